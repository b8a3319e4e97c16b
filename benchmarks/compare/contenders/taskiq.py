"""Taskiq with its two kinds of queue in Redis, two worker processes each."""

from typing import Any

from benchmarks.compare.contender import APPS, Command, Contender, Guarantee, Place, Rates, beside, module

SETTINGS = "`--workers 2`, 100 async tasks a process as it comes, uvloop, no result backend; bulk by 32 coroutines"


def _work(place: Place) -> list[Command]:
    return [beside(place, "taskiq", "worker", f"{APPS}.taskiq_app:broker", "--workers", "2", "--log-level", "WARNING")]


def _list_left(db: Any) -> int:
    return int(db.llen("taskiq"))


def _stream_left(db: Any) -> int:
    groups = db.xinfo_groups("taskiq") if db.exists("taskiq") else []
    return sum(group["pending"] + (group["lag"] or 0) for group in groups)


TASKIQ_LIST = Contender(
    name="taskiq-list",
    title="taskiq, list",
    guarantee=Guarantee.MOST,
    detail="off the list before the task runs",
    settings=SETTINGS,
    guess=Rates(each=3_400, many=4_100, noop=5_600),
    produce=module("taskiq_app"),
    work=_work,
    left=_list_left,
    environment="taskiq",
    package="taskiq",
    variables={"COMPARE_BROKER": "list"},
)

TASKIQ_STREAM = Contender(
    name="taskiq-stream",
    title="taskiq, stream",
    guarantee=Guarantee.LEAST,
    detail="back when it has been idle for 10 min",
    settings=f"{SETTINGS}; the stream is never trimmed, as it comes",
    guess=Rates(each=2_900, many=4_300, noop=5_200),
    produce=module("taskiq_app"),
    work=_work,
    left=_stream_left,
    environment="taskiq",
    package="taskiq",
    variables={"COMPARE_BROKER": "stream"},
)
