"""A bare loop over BRPOP: what Python and redis-py can do without promising anything."""

from typing import Any

from benchmarks.compare.contender import Contender, Guarantee, Kind, Rates, module


def _left(db: Any) -> int:
    return int(db.llen("queue"))


BRPOP = Contender(
    name="brpop",
    title="BRPOP loop, redis-py",
    guarantee=Guarantee.MOST,
    detail="a list, no retries, no anything",
    settings="two processes, with hiredis; bulk by LPUSH of 500",
    guess=Rates(each=7_000, many=210_000, noop=12_000),
    produce=module("brpop_app", "produce"),
    work=lambda place: [module("brpop_app", "work")(place)] * 2,
    left=_left,
    kinds=frozenset({Kind.NOOP, Kind.SHORT, Kind.MS, Kind.WAIT}),
    environment="brpop",
    package="redis",
)
