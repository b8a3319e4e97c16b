"""What the inspectors leave in Redis is what Go's inspector left there (golden/keyspace.json), key by key.

What their calls returned is compared, too, errors by their class. How a case begins is made by a client and a server.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from fastq import DailyStats, FastqError, GroupInfo, QueueInfo, TaskInfo
from fastq.pool.shared.event_kind import EventKind
from tests.broker.harness import run
from tests.inspector.harness import FACES, Ask
from tests.keyspace import (
    FASTQS_OF_A_TASK,
    Cells,
    Difference,
    IntendedDifferences,
    Moment,
    Place,
    Window,
    differences_between,
    golden,
    snapshot,
)
from tests.test_keyspace_client import golden_info_value, info_value
from tests.test_keyspace_server import Stage

HOUR = timedelta(hours=1)
QUEUE = "default"

Call = tuple[Any, ...]
Begin = Callable[[Stage], Awaitable[None]]


# How the cases begin ------------------------------------------------------------------------------------------------


async def nothing(stage: Stage) -> None:
    """Go on with what the step before left."""


async def setup(stage: Stage) -> None:
    await stage.enqueue("pend")
    await stage.enqueue("sched", "s", None, process_in=HOUR)
    await stage.enqueue("grp", "g", None, group="g1")
    await stage.enqueue("uniq", "u", b"u", unique=HOUR)
    await stage.enqueue("uniq-sched", "us", b"u", unique=HOUR, process_in=HOUR)


async def setup_and_more(stage: Stage) -> None:
    await setup(stage)
    for task_id in ("p1", "p2", "p3"):
        await stage.enqueue(task_id, "p", None)


async def one_pending(stage: Stage) -> None:
    await stage.enqueue("id-1")


async def one_active(stage: Stage) -> None:
    await stage.enqueue("id-1")
    await stage.fetch()


async def one_completed(stage: Stage) -> None:
    await stage.enqueue("id-1", retention=HOUR)
    await stage.fetch()
    await stage.end(EventKind.DONE)


async def only_completed(stage: Stage) -> None:
    await stage.enqueue("comp", "ok", None, retention=HOUR)
    await stage.fetch()
    await stage.end(EventKind.DONE)


async def one_of_each_end(stage: Stage) -> None:
    await only_completed(stage)
    for task_id, options in (("retr", {}), ("arch", {"max_retry": 0})):
        await stage.enqueue(task_id, "bad", None, **options)
        await stage.fetch()
        await stage.end(EventKind.FAILED, b"x")


# What is called -----------------------------------------------------------------------------------------------------


def each(method: str, *task_ids: str) -> list[Call]:
    return [(method, QUEUE, task_id) for task_id in task_ids]


PENDING_PAGES = [(30, 1), (2, 1), (2, 2), (2, 3), (2, 4), (0, 1), (2, 0), (-1, 1), (2, -1)]
SCHEDULED_PAGES = [(30, 1), (1, 1), (1, 2), (1, 3), (0, 1), (1, 0)]


def page(method: str, size: int, number: int) -> Call:
    return (method, QUEUE, {"page_size": size, "page": number})


READS: list[Call] = [
    ("get_queue_info", QUEUE),
    ("get_queue_info", "nosuch"),
    *(page("list_pending_tasks", *each) for each in PENDING_PAGES),
    *(page("list_scheduled_tasks", *each) for each in SCHEDULED_PAGES),
    ("list_aggregating_tasks", QUEUE, "g1"),
    ("list_aggregating_tasks", QUEUE, "nosuch group"),
    ("list_pending_tasks", "nosuch"),
    ("list_pending_tasks", " "),
    *each("get_task_info", "pend", "sched", "grp", "uniq", "nosuch"),
    ("get_task_info", "nosuch", "x"),
    ("groups", QUEUE),
    ("groups", "nosuch"),
    ("history", QUEUE, 0),
    ("history", QUEUE, 3),
    ("queues",),
]

CASES: dict[str, list[tuple[Begin, list[Call]]]] = {
    "inspector_archive": [(setup, each("archive_task", "pend", "sched", "grp", "uniq", "pend", "nosuch"))],
    "inspector_run": [
        (setup, [*each("archive_task", "uniq"), *each("run_task", "sched", "grp", "uniq", "pend", "nosuch")])
    ],
    "inspector_delete": [(setup, each("delete_task", "pend", "sched", "grp", "uniq", "uniq-sched", "nosuch"))],
    "inspector_active_errors": [
        (
            one_active,
            [
                *((method, QUEUE, "id-1") for method in ("run_task", "archive_task", "delete_task")),
                ("update_task_payload", QUEUE, "id-1", b"new payload"),
                ("delete_queue", QUEUE, {"force": False}),
                ("delete_queue", QUEUE, {"force": True}),
            ],
        )
    ],
    "inspector_run_completed": [(one_completed, each("run_task", "id-1"))],
    "inspector_update_payload": [
        (setup, [("update_task_payload", QUEUE, task_id, b"new payload") for task_id in ("uniq-sched", "pend", "none")])
    ],
    "inspector_delete_all_scheduled": [
        (
            setup,
            [
                ("delete_all_scheduled_tasks", QUEUE),
                ("delete_all_aggregating_tasks", QUEUE, "g1"),
                ("delete_all_scheduled_tasks", "nosuch"),
            ],
        )
    ],
    "inspector_delete_queue": [(setup, [("delete_queue", QUEUE, {"force": force}) for force in (False, True, True)])],
    "inspector_delete_queue_leftovers": [
        (one_of_each_end, [("pause_queue", QUEUE)]),
        (nothing, [("delete_queue", QUEUE, {"force": force}) for force in (False, True)]),
    ],
    "inspector_delete_queue_only_completed": [(only_completed, [("delete_queue", QUEUE, {"force": False})])],
    "inspector_reads": [(setup_and_more, READS)],
    "pause_queue": [
        (one_pending, [("pause_queue", QUEUE)] * 2),
        (nothing, [("unpause_queue", QUEUE)] * 2),
        (nothing, [("pause_queue", "nosuch")]),
    ],
}


# What came back -----------------------------------------------------------------------------------------------------


GO_ERRORS = {
    "task not found": "TaskNotFoundError",
    "queue not found": "QueueNotFoundError",
    "does not exist": "QueueNotFoundError",
    "queue is not empty": "QueueNotEmptyError",
    "cannot remove queue with active tasks": "QueueNotEmptyError",
    "number of days must be positive": "ValueError",
    "must contain one or more characters": "ValueError",
    "is already paused": "QueueStateError",
    "is not paused": "QueueStateError",
    "task is already": "TaskStateError",
    "cannot archive task in active state": "TaskStateError",
    "cannot delete task in active state": "TaskStateError",
    "cannot update task that is not in scheduled state": "TaskStateError",
}
"""Error texts are for people; what they stand for is a class."""


def cells_of_golden(returned: Sequence[Mapping[str, Any]]) -> Cells:
    """Turn what Go's inspector returned into cells; what clients returned is theirs to compare."""
    cells: Cells = {}
    for index, call in enumerate(call for call in returned if not call["call"].startswith("client.")):
        if call["error"] is not None:
            (error,) = {name for text, name in GO_ERRORS.items() if text in call["error"]}
            cells[Place(f"returned[{index}]", "outcome")] = error
        else:
            cells |= {Place(f"returned[{index}]", part): value for part, value in parts_of_golden(call)}
    return cells


def parts_of_golden(call: Mapping[str, Any]) -> list[tuple[str, Any]]:
    value = call["value"]
    match value:
        case None if call["call"].startswith("Groups"):  # a nil slice
            return [("outcome", "[]")]
        case {"id": _}:
            return [
                (name, golden_moment(each) if name == "next_process_at" else golden_info_value(name, each))
                for name, each in value.items()
            ]
        case {"size": _}:
            return [(name, str(each)) for name, each in value.items()]
        case [{"date": _}, *_]:  # the days are others now
            return [("outcome", str([(day["processed"], day["failed"]) for day in value]))]
        case [{"Group": _}, *_]:
            return [("outcome", str([(each["Group"], each["Size"]) for each in value]))]
    return [("outcome", str(value))]


def golden_moment(text: str | None) -> Moment | str:
    """Read a time of nanoseconds, or of whole seconds."""
    return "None" if text is None else Moment(datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00").timestamp())


FASTQS = {"archive_max", "archive_full", "archive_dropped", "lost", "max_pending", "orphaned", "overdue"}
"""What only fastq tells of a queue; of a task it is ``FASTQS_OF_A_TASK``."""


def cells_of_outcomes(outcomes: Sequence[Any]) -> Cells:
    return {
        Place(f"returned[{index}]", part): value
        for index, outcome in enumerate(outcomes)
        for part, value in parts_of(outcome)
    }


def parts_of(outcome: Any) -> list[tuple[str, Any]]:
    match outcome:
        case TaskInfo():
            names = [name for name in TaskInfo.__slots__ if name not in FASTQS_OF_A_TASK]
            return [(name, info_value(name, getattr(outcome, name))) for name in names]
        case QueueInfo(memory_usage=memory, latency=latency):
            signs = [("latency_positive", str(latency > timedelta(0))), ("memory_usage_positive", str(bool(memory)))]
            left_out = {"queue", "timestamp", "memory_usage", "latency", *FASTQS}
            return signs + [(name, str(getattr(outcome, name))) for name in QueueInfo.__slots__ if name not in left_out]
        case [DailyStats(), *_]:
            return [("outcome", str([(day.processed, day.failed) for day in outcome]))]
        case [GroupInfo(), *_]:
            return [("outcome", str([(each.group, each.size) for each in outcome]))]
        case [TaskInfo(), *_]:
            return [("outcome", str([info.id for info in outcome]))]
        case Exception():
            return [("outcome", type(outcome).__name__)]
    return [("outcome", str(outcome))]


def outcome_of(ask: Ask, call: Call) -> Any:
    named = call[-1] if isinstance(call[-1], dict) else {}
    try:
        return ask(*(call[:-1] if named else call), **named)
    except (FastqError, ValueError, TypeError) as error:
        return error


# Comparing ----------------------------------------------------------------------------------------------------------


def replay(case: str, face: str, db: Redis, url: str, intended: IntendedDifferences) -> dict[str, Difference]:
    """Make a case's steps; return what differs from Go and is not intended."""
    ask = FACES[face](url)
    windows: list[Window] = []
    found: dict[str, Difference] = {}
    for number, (begin, calls) in enumerate(CASES[case]):
        start_s = time.time()
        run(lambda begin=begin: began(begin, db, url))  # type: ignore[misc]  # a default argument, as lambdas bind late
        outcomes = [outcome_of(ask, call) for call in calls]
        windows.append(Window(start_s, time.time()))
        expected = golden(case, number)
        expected = replace(expected, cells=expected.cells | cells_of_golden(expected.returned))
        cells = snapshot(db) | (cells_of_outcomes(outcomes) if expected.returned else {})
        left = intended.unexplained(expected, differences_between(expected, cells, windows), windows)
        found |= {f"step {number}: {place.key} {place.part}": value for place, value in left.items()}
    return found


async def began(begin: Begin, db: Redis, url: str) -> None:
    async with aclosing(Stage(db, url)) as stage:
        await begin(stage)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("case", CASES)
def test_the_keyspace_and_the_answers_are_as_gos(case: str, face: str, db: Redis, url: str) -> None:
    assert replay(case, face, db, url, IntendedDifferences()) == {}


def test_every_intended_difference_is_needed(db: Redis, url: str) -> None:
    intended = IntendedDifferences()
    for case in CASES:
        replay(case, "Inspector", db, url, intended)
        db.flushall()
    assert intended.unused(CASES) == []
