"""Actions on all tasks of a state, some hundreds per call, so that Redis is never blocked for long."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from fastq.broker.inspect.tasks import LISTS
from fastq.broker.operation import Flow, Operation, Word, scripted, together
from fastq.broker.operations.finish import archive_bounds, archive_keys
from fastq.broker.transport.replies import scored
from fastq.errors import BrokerError, InvalidMessageError
from fastq.states import TaskState
from fastq.wire import keys
from fastq.wire.codec import view_task_message

__all__ = [
    "TASKS_A_CALL",
    "BulkResult",
    "Source",
    "archive_all",
    "delete_all",
    "delete_some",
    "release_locks",
    "run_all",
]

TASKS_A_CALL: Final = 200
MAX_DELETED_BYTES: Final = 6_000_000
"""Redis takes up to 0.4 ms to free a message of 1 MB."""


class Source(NamedTuple):
    """A list or sorted set of a queue's ids, and the state of the tasks in it; ``group`` applies to that of a group.

    ``last`` is the newest id of a list, or the greatest score, that is still included; empty includes all.
    """

    queue: str
    key: str
    state: TaskState
    group: str = ""
    last: bytes = b""

    def size(self) -> Operation[int]:
        """Count the ids."""
        return Operation("LLEN" if self._is_list else "ZCARD", (self.key,), (), idempotent=True)

    def find_last(self) -> Operation[bytes]:
        """Read the value of ``last`` for the present ids."""
        if self._is_list:
            return Operation("LINDEX", (self.key,), (0,), lambda reply: reply or b"", idempotent=True)
        return Operation("ZRANGE", (self.key,), (-1, -1, "WITHSCORES"), _greatest, idempotent=True)

    @property
    def _is_list(self) -> bool:
        return self.state in LISTS


def _greatest(reply: list[Any]) -> bytes:
    return b"%r" % scored(reply)[0][1] if reply else b""


class BulkResult(NamedTuple):
    """The result of one call: how many ids were taken off the list, and on how many tasks the action was carried out.

    The other ids had no task, or one in another state. ``unsure`` lists deleted tasks whose messages may name locks
    that their hashes did not name, as (id, message).
    """

    ids: int
    tasks: int
    unsure: list[tuple[bytes, bytes]]


BulkAction: TypeAlias = Callable[[Source, int], Operation[BulkResult]]


def delete_some(source: Source, count: int | None = None) -> Operation[BulkResult]:
    """Delete some tasks and release their locks, except locks that only their messages name."""
    return _take("delete_tasks", source, (), count or TASKS_A_CALL, (MAX_DELETED_BYTES,))


def _run_some(now_ns: int, source: Source, count: int) -> Operation[BulkResult]:
    return _take("run_tasks", source, (keys.pending(source.queue),), count, (now_ns,))


def _archive_some(now: datetime, source: Source, count: int) -> Operation[BulkResult]:
    return _take(
        "archive_tasks", source, (keys.archived(source.queue), *archive_keys(source.queue)), count, archive_bounds(now)
    )


def _take(
    name: str, source: Source, more_keys: tuple[str, ...], count: int, more: tuple[Word, ...]
) -> Operation[BulkResult]:
    queue = source.queue
    script_keys = (source.key, keys.lease(queue), keys.groups(queue), *more_keys)
    args = (keys.task_prefix(queue), source.state.value, source.group, count, source.last, *more)
    return scripted(name, script_keys, args, _parse)


def _parse(reply: list[Any]) -> BulkResult:
    ids, tasks, *unsure = reply
    return BulkResult(ids, tasks, list(zip(unsure[::2], unsure[1::2], strict=True)))


def delete_all(source: Source) -> Flow[int]:
    """Delete as many tasks as there are now, with their locks; returns how many there were."""
    return _take_all(source, delete_some)


def run_all(source: Source, now_ns: int) -> Flow[int]:
    """Move as many tasks as there are now to pending, in their order; returns how many there were."""
    return _take_all(source, partial(_run_some, now_ns))


def archive_all(source: Source, now: datetime) -> Flow[int]:
    """Move as many tasks as there are now to the archive, which keeps the last 10 000; returns how many there were."""
    return _take_all(source, partial(_archive_some, now))


def _take_all(source: Source, take: BulkAction) -> Flow[int]:
    left: int = yield source.size()
    source = source._replace(
        last=(yield source.find_last())
    )  # later tasks are not included, even if others take some of these
    tasks = 0
    while left > 0:
        try:
            taken: BulkResult = yield take(source, min(left, TASKS_A_CALL))
        except BrokerError as error:
            error.add_note(f"{tasks} tasks were done before this error, {left} were left")
            raise
        yield from release_locks(source.queue, taken.unsure)
        if not taken.ids:
            break
        tasks += taken.tasks
        left -= taken.ids
    return tasks


def release_locks(queue: str, deleted: Sequence[tuple[bytes, bytes]]) -> Flow[None]:
    """Release the locks that the messages of deleted tasks name; asynq notes none in the hash of a grouped task."""
    yield from together(*(_release(lock, task_id) for task_id, lock in _locks(queue, deleted)))


def _locks(queue: str, deleted: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, str]]:
    for task_id, message in deleted:
        try:
            lock = view_task_message(message).unique_key
        except InvalidMessageError:
            continue
        if lock.startswith(keys.queue_prefix(queue)):  # a message may name any key as its lock
            yield task_id, lock


def _release(lock: str, owner: bytes) -> Operation[int]:
    return scripted("release_lock", (lock,), (owner,), int, idempotent=True)
