"""What an inspector tells, in words that both sides' answers can be put into."""

import base64
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

from fastq.info import TaskInfo
from fastq.inspector.records import QueueInfo
from tests.interop.differential.goal import GROUPS, OK, Build, Goal, always
from tests.interop.differential.operation import Operation
from tests.interop.differential.state import State
from tests.keyspace import FASTQS_OF_A_TASK

LISTED: Final = ("pending", "active", "scheduled", "retry", "archived", "completed", "aggregating")
PAGED: Final = {f"list_{state}_tasks" for state in LISTED}
DAYS: Final = 3
NOT_EXACT: Final = {
    "memory_usage",
    "latency",
    "timestamp",
    "archive_max",
    "archive_full",
    "archive_dropped",
    "lost",
    "max_pending",
    "orphaned",
    "overdue",
}
COUNTED: Final = [name for name in QueueInfo.__slots__ if name not in NOT_EXACT]
DAY_NS: Final = 86_400 * 10**9
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


# What is asked ------------------------------------------------------------------------------------------------------


def reading_goals() -> Iterator[Goal]:
    for state in LISTED:
        name, group = f"list_{state}_tasks", (GROUPS[0],) if state == "aggregating" else ()
        yield Goal(name, OK, listing(name, state))
        yield Goal(name, "QueueNotFoundError", always(Operation(name, name, ("nosuch", *group), page(1, 30))))
    yield Goal("get_task_info", OK, on_any_task)
    yield Goal("get_task_info", "TaskNotFoundError", in_any_queue("get_task_info", "none"))
    yield Goal(
        "get_task_info", "QueueNotFoundError", always(Operation("get_task_info", "get_task_info", ("nosuch", "x")))
    )
    yield Goal("queues", OK, always(Operation("queues", "queues")))
    yield Goal("groups", OK, in_any_queue("groups"))
    for name, *more in (("get_queue_info",), ("history", DAYS)):
        yield Goal(name, OK, in_any_queue(name, *more))
        yield Goal(name, "QueueNotFoundError", always(Operation(name, name, ("nosuch", *more))))
    yield Goal("history", "ValueError", in_any_queue("history", 0))


def page(number: int, size: int) -> Mapping[str, int]:
    return {"page": number, "page_size": size}


def listing(name: str, place: str) -> Build:
    def build(state: State, rng: Random) -> Operation | None:
        tasks = state.within((place,))
        if not tasks:
            return None
        task = rng.choice(tasks)
        group = (task.group,) if place == "aggregating" else ()
        return Operation(name, name, (task.queue, *group), page(rng.randint(1, 2), rng.choice((2, 30))))

    return build


def on_any_task(state: State, rng: Random) -> Operation | None:
    tasks = state.within(LISTED)
    if not tasks:
        return None
    task = rng.choice(tasks)
    return Operation("get_task_info", "get_task_info", (task.queue, task.id))


def in_any_queue(name: str, *more: Any) -> Build:
    def build(state: State, rng: Random) -> Operation | None:
        return Operation(name, name, (rng.choice(state.queues), *more)) if state.queues else None

    return build


# What is told -------------------------------------------------------------------------------------------------------


def told_by_fastq(method: str, answer: Any) -> str:
    """Put fastq's answer into words; what asks for nothing is told as it is."""
    tell = OURS.get(method, str)
    return tell(answer) if method not in PAGED else str([_our_task(info) for info in answer])


def told_by_go(method: str, answer: Any) -> str:
    tell = THEIRS.get(method, str)
    return tell(answer) if method not in PAGED else str([_their_task(told) for told in answer])


def _our_task(info: TaskInfo) -> list[tuple[str, Any]]:
    told = {name: getattr(info, name) for name in TaskInfo.__slots__ if name not in FASTQS_OF_A_TASK}
    told |= {"payload": info.payload, "headers": dict(info.headers), "state": info.state.value}
    told |= {"result": info.result or b"", "timeout": info.timeout / SECOND, "retention": info.retention / SECOND}
    told["deadline"] = None if info.deadline is None else (info.deadline - EPOCH) / SECOND
    return _task(told)


def _their_task(told: Mapping[str, Any]) -> list[tuple[str, Any]]:
    named = {name.removesuffix("_ns"): value for name, value in told.items()}
    named |= {name: base64.b64decode(told[name] or "") for name in ("payload", "result")}
    named["headers"] = told["headers"] or {}
    for name in ("timeout", "retention", "deadline"):
        if named[name] is not None:
            named[name] /= 1e9
    return _task(named)


SECOND: Final = timedelta(seconds=1)
MOMENTS: Final = ("last_failed_at", "next_process_at", "completed_at")


def _task(told: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Of moments it is told that there are any: that they are the same is seen in the keys."""
    return sorted((name, bool(value) if name in MOMENTS else value) for name, value in told.items())


OURS: Mapping[str, Callable[[Any], str]] = {
    "get_task_info": lambda info: str(_our_task(info)),
    "get_queue_info": lambda info: str([(name, getattr(info, name)) for name in COUNTED]),
    "queues": lambda names: str(sorted(names)),
    "groups": lambda found: str(sorted((each.group, each.size) for each in found)),
    "history": lambda days: str([((day.date - EPOCH.date()).days, day.processed, day.failed) for day in days]),
}
THEIRS: Mapping[str, Callable[[Any], str]] = {
    "get_task_info": lambda told: str(_their_task(told)),
    "get_queue_info": lambda told: str([(name, told[name]) for name in COUNTED]),
    "queues": lambda names: str(sorted(names)),
    "groups": lambda found: str(sorted((each["group"], each["size"]) for each in found or [])),
    "history": lambda days: str([(day["date_ns"] // DAY_NS, day["processed"], day["failed"]) for day in days]),
}
