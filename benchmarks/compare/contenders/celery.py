"""Celery: prefork as its docs advise for many short tasks, acknowledging early and late; and two solo workers, late."""

from typing import Any

from benchmarks.compare.contender import APPS, Command, Contender, Guarantee, Place, Rates, beside, module

COMMON = "prefetch multiplier 128, results ignored, no gossip, mingle or heartbeat; bulk through one producer"
LATE = {"COMPARE_ACKS_LATE": "1"}
LATE_DETAIL = "acks_late; back after the visibility timeout of 1 h"


def _worker(place: Place, *arguments: str) -> Command:
    quiet = ("--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat")
    return beside(place, "celery", "--app", f"{APPS}.celery_app", "worker", *quiet, *arguments)


def _prefork(place: Place) -> list[Command]:
    return [_worker(place, "--concurrency", "2")]


def _solo(place: Place) -> list[Command]:
    return [_worker(place, "--pool", "solo", "--hostname", f"solo{number}@%h") for number in (1, 2)]


def _threads(place: Place) -> list[Command]:
    return [_worker(place, "--pool", "threads", "--concurrency", "64")]


def _left(db: Any) -> int:
    return int(db.llen("celery")) + int(db.hlen("unacked"))


CELERY = Contender(
    name="celery",
    title="celery, prefork",
    guarantee=Guarantee.MOST,
    detail="its default: acknowledged before the task runs",
    settings=f"`--concurrency 2`; {COMMON}",
    guess=Rates(each=1_900, many=5_000, noop=1_000),
    produce=module("celery_app"),
    work=_prefork,
    work_waiting=_threads,
    settings_waiting="one worker with `--pool threads --concurrency 64`",
    left=_left,
    environment="celery",
    package="celery",
)

CELERY_LATE = Contender(
    name="celery-late",
    title="celery, prefork, acks_late",
    guarantee=Guarantee.LEAST,
    detail=LATE_DETAIL,
    settings=f"`--concurrency 2`; {COMMON}",
    guess=Rates(each=1_900, many=5_000, noop=1_000),
    produce=module("celery_app"),
    work=_prefork,
    work_waiting=_threads,
    settings_waiting="one worker with `--pool threads --concurrency 64`",
    left=_left,
    environment="celery",
    package="celery",
    variables=LATE,
)

CELERY_SOLO = Contender(
    name="celery-solo",
    title="celery, two solo, acks_late",
    guarantee=Guarantee.LEAST,
    detail=LATE_DETAIL,
    settings=f"two workers with `--pool solo`; {COMMON}",
    guess=Rates(each=1_900, many=5_000, noop=1_900),
    produce=module("celery_app"),
    work=_solo,
    work_waiting=_threads,
    settings_waiting="one worker with `--pool threads --concurrency 64`",
    left=_left,
    environment="celery",
    package="celery",
    variables=LATE,
)
