"""BullMQ's package for Python, two workers."""

from typing import Any

from benchmarks.compare.contender import Contender, Guarantee, Rates, module

STATES = ("wait", "active", "paused")
SORTED = ("prioritized", "delayed")


def _left(db: Any) -> int:
    waiting = sum(int(db.llen(f"bull:compare:{state}")) for state in STATES)
    return waiting + sum(int(db.zcard(f"bull:compare:{state}")) for state in SORTED)


_WORKER = module("bullmq_app", "work")

BULLMQ = Contender(
    name="bullmq",
    title="BullMQ for Python",
    guarantee=Guarantee.LEAST,
    detail="lock of 30 s, renewed while the worker lives",
    settings="two workers of concurrency 32; jobs are removed when they end, unless their result is kept; bulk by "
    "`addBulk`",
    guess=Rates(each=1_500, many=3_000, noop=1_500),
    produce=module("bullmq_app"),
    work=lambda place: [_WORKER(place) for _ in range(2)],
    left=_left,
    environment="bullmq",
    package="bullmq",
)
