"""Actions on all or some tasks of a state, some hundreds per call, so that Redis is never blocked for long."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from hashlib import sha1
from typing import Any, Final, NamedTuple, TypeAlias

from fastq.broker.operation import Flow, Operation, Word, scripted, together
from fastq.broker.operations.finish import archive_bounds, archive_keys, release_lock
from fastq.broker.operations.walk import Source, WalkedTask
from fastq.errors import BrokerError, InvalidMessageError
from fastq.wire import keys
from fastq.wire.codec import view_task_message

TASKS_A_CALL: Final = 200
MAX_DELETED_BYTES: Final = 6_000_000
"""Redis takes up to 0.4 ms to free a message of 1 MB."""
MAX_READ_BYTES: Final = 1_000_000


class BulkResult(NamedTuple):
    """The result of one call: how many ids were taken off the list, and on how many tasks the action was carried out.

    The other ids had no task, or a task in another state. ``unsure`` lists deleted tasks whose messages may name locks
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
    more_keys = (keys.archived(source.queue), *archive_keys(source.queue))
    return _take("archive_tasks", source, more_keys, count, (*archive_bounds(now), MAX_READ_BYTES))


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
    )  # `last` excludes later tasks, even if other workers take some of these
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
    """Release the locks that the messages of deleted tasks name; the hash of a grouped task names none."""
    yield from together(*(release_lock(lock, task_id) for task_id, lock in _locks(queue, deleted)))


def _locks(queue: str, deleted: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, str]]:
    for task_id, message in deleted:
        try:
            lock = view_task_message(message).unique_key
        except InvalidMessageError:
            continue
        if lock.startswith(keys.queue_prefix(queue)):  # a message may name any key as its lock
            yield task_id, lock


class Chosen(NamedTuple):
    """A task as it was read; ``digest`` is its message's digest, and an empty one matches any message."""

    id: bytes
    digest: bytes = b""

    @classmethod
    def of(cls, task: WalkedTask) -> "Chosen":
        """Return the reference to a task that was read."""
        return cls(task.id, sha1(task.message or b"", usedforsecurity=False).digest())


def run_some(source: Source, chosen: Sequence[Chosen], now_ns: int) -> Operation[BulkResult]:
    """Move some tasks of a sorted set to pending, if they are still there and unchanged."""
    words = [word for task in chosen for word in (task.id, task.digest.hex())]
    args = (keys.task_prefix(source.queue), source.state.value, now_ns, *words)
    script_keys = (source.key, keys.pending(source.queue))
    return scripted("run_chosen", script_keys, args, _parse)


def run_chosen(source: Source, chosen: Sequence[Chosen], now_ns: int) -> Flow[int]:
    """Move any number of tasks to pending, as ``run_some`` does; returns how many were moved."""
    moved = 0
    for start in range(0, len(chosen), TASKS_A_CALL):
        taken: BulkResult = yield run_some(source, chosen[start : start + TASKS_A_CALL], now_ns)
        moved += taken.tasks
    return moved
