"""Huey, two process workers."""

from typing import Any

from benchmarks.compare.contender import APPS, Contender, Guarantee, Rates, beside, module

__all__ = ["HUEY"]

WORDS = ("--worker-type", "process", "--workers", "2", "--quiet")


def _left(db: Any) -> int:
    return int(db.llen("huey.redis.compare"))


HUEY = Contender(
    name="huey",
    title="huey",
    guarantee=Guarantee.MOST,
    detail="off the list before the task runs",
    settings="`--worker-type process --workers 2`, results off; it has no call for many",
    guess=Rates(each=6_300, many=6_400, noop=5_400, ms=1_500),
    produce=module("huey_app"),
    work=lambda place: [beside(place, "huey_consumer", *WORDS, f"{APPS}.huey_app.huey")],
    left=_left,
    environment="huey",
    package="huey",
)
