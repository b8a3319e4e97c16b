"""StreaQ, two worker processes."""

from typing import Any

from benchmarks.compare.contender import APPS, Contender, Guarantee, Rates, beside, module


def _left(db: Any) -> int:
    return int(db.xlen("streaq:default:queues:default"))


STREAQ = Contender(
    name="streaq",
    title="streaq",
    guarantee=Guarantee.LEAST,
    detail="back when it has been idle for 60 s",
    settings="`--workers 2`, concurrency 32, results not kept, its log off; bulk by `enqueue_many`, 500 a call",
    guess=Rates(each=3_200, many=12_000, noop=2_000),
    produce=module("streaq_app"),
    work=lambda place: [beside(place, "streaq", "run", f"{APPS}.streaq_app:worker", "--workers", "2")],
    left=_left,
    environment="streaq",
    package="streaq",
)
