"""Reads of tasks: the ids of a state by rank, tasks by id; and a new payload for a scheduled task."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from fastq.broker.operation import Flow, Operation, scripted
from fastq.broker.operations.lease import lost_count
from fastq.broker.operations.walk import LISTS
from fastq.common.states import TaskState
from fastq.wire import keys
from fastq.wire.progress import TaskProgress, read_progress

TASKS_A_CALL: Final = 200
MAX_READ_BYTES: Final = 256_000

_CONTAINERS: Final[dict[TaskState, Callable[[str], str]]] = {
    TaskState.PENDING: keys.pending,
    TaskState.ACTIVE: keys.active,
    TaskState.SCHEDULED: keys.scheduled,
    TaskState.RETRY: keys.retry,
    TaskState.ARCHIVED: keys.archived,
    TaskState.COMPLETED: keys.completed,
}
STATES: Final = tuple(_CONTAINERS)
"""The states that have one list or set in a queue, in the order in which scripts take their keys."""


def container(queue: str, state: TaskState, group: str = "") -> str:
    """Name the list or sorted set of the ids in a state."""
    return keys.group(queue, group) if state is TaskState.AGGREGATING else _CONTAINERS[state](queue)


def containers(queue: str, *, active: bool = True) -> tuple[str, ...]:
    """Name the lists and sets of all ``STATES``, with or without active."""
    return tuple(key_of(queue) for state, key_of in _CONTAINERS.items() if active or state is not TaskState.ACTIVE)


def list_ids(queue: str, state: TaskState, group: str, start: int, count: int) -> Operation[list[bytes]]:
    """Read ids of a state by rank: pending and active from the oldest on, other states from the lowest score on.

    ``group`` applies to aggregating only.
    """
    key = (container(queue, state, group),)
    if state in LISTS:  # the newest are at the head
        return Operation("LRANGE", key, (-(start + count), -(start + 1)), lambda ids: ids[::-1], idempotent=True)
    return Operation("ZRANGE", key, (start, start + count - 1), idempotent=True)


def list_ids_newest_first(queue: str, state: TaskState, group: str, start: int, count: int) -> Operation[list[bytes]]:
    """Read ids as ``list_ids`` does, but from the other end."""
    key = (container(queue, state, group),)
    words = (start, start + count - 1)
    return Operation("LRANGE" if state in LISTS else "ZREVRANGE", key, words, idempotent=True)


class FoundTask(NamedTuple):
    """The data of a task in Redis.

    ``score`` is its score in the sorted set of its state: when it is due, or when its lease ends. ``lost`` counts how
    often the task was lost with its server. ``progress`` is the last report of its handler. The sizes are given for a
    payload, a result and a message that were cut, else None.
    """

    message: bytes | None
    state: str | None
    result: bytes | None
    score: float | None
    lost: int = 0
    progress: TaskProgress | None = None
    payload_size: int | None = None
    result_size: int | None = None
    message_size: int | None = None


def read_tasks(queue: str, task_ids: Sequence[str | bytes], most: int | None = None) -> Operation[list[FoundTask]]:
    """Read tasks atomically; if they are big, only the first may be returned.

    ``most`` bytes of each payload, result and error are read at most.
    """
    return scripted(
        "read_tasks",
        (keys.scheduled(queue), keys.retry(queue), keys.lease(queue)),
        (keys.task_prefix(queue), MAX_READ_BYTES, "" if most is None else most, *task_ids),
        _parse_tasks,
        idempotent=True,
    )


def _parse_tasks(reply: list[Any]) -> list[FoundTask]:
    return [
        FoundTask(
            message=reply[at],
            state=None if reply[at + 1] is None else reply[at + 1].decode(errors="replace"),
            result=reply[at + 2],
            score=None if reply[at + 5] is None else float(reply[at + 5]),
            lost=lost_count(reply[at + 3]),
            progress=read_progress(reply[at + 4]),
            payload_size=reply[at + 6],
            result_size=reply[at + 7],
            message_size=reply[at + 8],
        )
        for at in range(0, len(reply), 9)
    ]


def read_all_tasks(queue: str, task_ids: Sequence[str | bytes], most: int | None = None) -> Flow[list[FoundTask]]:
    """Read any number of tasks, as ``read_tasks`` does, in round trips of bounded size."""
    found: list[FoundTask] = []
    while len(found) < len(task_ids):
        found += yield read_tasks(queue, task_ids[len(found) : len(found) + TASKS_A_CALL], most)
    return found


def read_payload(queue: str, task_id: str, field: str, start: int, count: int) -> Operation[bytes | None]:
    """Read some bytes of a payload (``msg``) or a result (``result``); None if there is no such task."""
    return scripted(
        "read_payload", (keys.task(queue, task_id),), (field, start, count), lambda reply: reply, idempotent=True
    )


class FollowUp(NamedTuple):
    """A task that was enqueued by key while the task with that key ran: its payload's size, and its times (0: none)."""

    payload_size: int
    run_at_s: int = 0
    latest_s: int = 0


def read_again(queue: str, task_id: str) -> Operation[FollowUp | None]:
    """Read which task is to follow the present run of a task; None if there is none."""

    def parse(reply: list[Any] | None) -> FollowUp | None:
        return None if reply is None else FollowUp(reply[2], int(reply[0] or 0), int(reply[1] or 0))

    return scripted("read_again", (keys.again(queue),), (task_id,), parse, idempotent=True)


def read_message(queue: str, task_id: str) -> Operation[bytes | None]:
    """Read the encoded message of a task; None if there is no such task."""
    return Operation("HGET", (keys.task(queue, task_id),), ("msg",), idempotent=True)


def update_payload(queue: str, task_id: str, old: bytes, new: bytes) -> Operation[int | str]:
    """Replace a scheduled task's message: 1 done, 0 no such task, -1 not ``old`` any more, else the task's state."""
    return scripted(
        "update_payload",
        (keys.task(queue, task_id),),
        (old, new),
        lambda reply: reply.decode(errors="replace") if isinstance(reply, bytes) else reply,
    )
