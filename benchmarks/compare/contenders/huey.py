"""Huey, two process workers."""

from typing import Any

from benchmarks.compare.contender import APPS, Contender, Guarantee, Rates, beside, module

WORDS = ("--worker-type", "process", "--workers", "2", "--quiet")
WAITING = ("--worker-type", "thread", "--workers", "64", "--quiet")


def _left(db: Any) -> int:
    return int(db.llen("huey.redis.compare"))


HUEY = Contender(
    name="huey",
    title="huey",
    guarantee=Guarantee.MOST,
    detail="off the list before the task runs",
    settings="`--worker-type process --workers 2`, no result kept of a task that returns none; it has no call for many",
    guess=Rates(each=6_300, many=6_400, noop=5_400),
    produce=module("huey_app"),
    work=lambda place: [beside(place, "huey_consumer", *WORDS, f"{APPS}.huey_app.huey")],
    work_waiting=lambda place: [beside(place, "huey_consumer", *WAITING, f"{APPS}.huey_app.huey")],
    settings_waiting="one process with 64 threads",
    left=_left,
    environment="huey",
    package="huey",
)
