"""Reads of a queue: the number of tasks in each state, their ids, and the data of one. Nothing is changed."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from fastq.broker.operation import Operation
from fastq.wire import keys

__all__ = ["QueueCounts", "StoredTask", "count_existing", "count_tasks", "list_members", "read_stored"]


class QueueCounts(NamedTuple):
    """The number of ids in each state of a queue, and the totals of runs ever processed and failed."""

    scheduled: int
    retry: int
    pending: int
    active: int
    leased: int
    completed: int
    archived: int
    processed: int
    failed: int

    @property
    def unfinished(self) -> int:
        """Count the unfinished tasks; a task that moved during the count may count twice."""
        return self.scheduled + self.retry + self.pending + max(self.active, self.leased)


def count_tasks(queue: str) -> tuple[Operation[int], ...]:
    """Count a queue's tasks: one command per field of ``QueueCounts``, in its order.

    They are not atomic. In this order, a task on its way to a worker is never missed. A task that comes back for a
    retry may be missed, and then ``processed`` has grown.
    """
    return (
        _look("ZCARD", keys.scheduled(queue)),
        _look("ZCARD", keys.retry(queue)),
        _look("LLEN", keys.pending(queue)),
        _look("LLEN", keys.active(queue)),
        _look("ZCARD", keys.lease(queue)),
        _look("ZCARD", keys.completed(queue)),
        _look("ZCARD", keys.archived(queue)),
        _look("GET", keys.processed_total(queue)),
        _look("GET", keys.failed_total(queue)),
    )


_LISTS: Final = (keys.pending, keys.active)


def list_members(queue: str, state: str, start: int, count: int) -> Operation[list[str]]:
    """Read ids of a state ("pending", "active", "lease", "scheduled", "retry", "archived", "completed") by rank."""
    key_of = _KEYS[state]
    return Operation(
        "LRANGE" if key_of in _LISTS else "ZRANGE",
        (key_of(queue),),
        (start, start + count - 1),
        lambda reply: [member.decode("utf-8", "surrogateescape") for member in reply],
        idempotent=True,
    )


_KEYS: Final = {
    "scheduled": keys.scheduled,
    "retry": keys.retry,
    "pending": keys.pending,
    "active": keys.active,
    "lease": keys.lease,
    "completed": keys.completed,
    "archived": keys.archived,
}


class StoredTask(NamedTuple):
    """The fields of a task's hash; None for those that are missing."""

    message: bytes | None
    state: str | None
    result: bytes | None


def read_stored(queue: str, task_id: str) -> Operation[StoredTask]:
    """Read a task's hash; all fields are None if there is none."""
    key = keys.task(queue, task_id)
    return Operation("HMGET", (key,), ("msg", "state", "result"), _stored, idempotent=True)


def count_existing(same_queue_keys: Sequence[str]) -> Operation[int]:
    """Count the existing ones among some keys that share a hash tag."""
    return Operation("EXISTS", tuple(same_queue_keys), (), int, idempotent=True)


def _look(command: str, key: str) -> Operation[int]:
    return Operation(command, (key,), (), lambda reply: int(reply or 0), idempotent=True)


def _stored(reply: list[Any]) -> StoredTask:
    message, state, result = reply
    return StoredTask(message, None if state is None else state.decode(errors="replace"), result)
