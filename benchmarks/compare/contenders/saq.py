"""SAQ, two worker processes."""

from typing import Any

from benchmarks.compare.contender import APPS, Contender, Guarantee, Rates, beside, module


def _left(db: Any) -> int:
    return int(db.zcard("saq:default:incomplete"))


SAQ = Contender(
    name="saq",
    title="saq",
    guarantee=Guarantee.LEAST,
    detail="swept after its timeout of 10 s, and back, as retries=2 (by default it would be aborted)",
    settings="`--workers 2`, concurrency 32, results not kept; bulk by 32 coroutines",
    guess=Rates(each=3_500, many=9_000, noop=3_700),
    produce=module("saq_app"),
    work=lambda place: [beside(place, "saq", f"{APPS}.saq_app.settings", "--workers", "2")],
    left=_left,
    environment="saq",
    package="saq",
)
