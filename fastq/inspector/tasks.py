"""The inspector's reading of tasks: one by id, a page of a state, or all of a state."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from fastq.broker.inspect.put import lock_of, read_holder
from fastq.broker.inspect.queues import queue_exists
from fastq.broker.inspect.tasks import (
    FollowUp,
    FoundTask,
    list_ids,
    list_ids_newest_first,
    read_again,
    read_all_tasks,
    read_payload,
    read_tasks,
)
from fastq.broker.operation import Flow, together
from fastq.broker.operations.errors import read_attempts, read_tracebacks
from fastq.common.clock import at_unix_ns
from fastq.common.states import TaskState
from fastq.errors import InvalidMessageError, QueueNotFoundError, TaskNotFoundError
from fastq.info import TaskHead, TaskInfo, task_info
from fastq.inspector.checks import check_page, check_queue, check_state, check_task_id
from fastq.inspector.driver import Driver, Given, Stream, alias, operation, stream
from fastq.inspector.queues import require_queue
from fastq.inspector.records import FailedAttempt, TaskLocks
from fastq.wire.attempts import AttemptRecord, own_traceback
from fastq.wire.codec import clean_text, decode_task_message, view_task_message
from fastq.wire.messages import UNDECODABLE_TYPE, TaskMessage

DEFAULT_PAGE_SIZE: Final = 30
SECOND_NS: Final = 1_000_000_000
MS_NS: Final = 1_000_000
FAR_S: Final = 1e15
IDS_A_CALL: Final = 5_000
STATES: Final = frozenset(state.value for state in TaskState)
TIMED: Final = frozenset({TaskState.SCHEDULED, TaskState.RETRY})


@dataclass(frozen=True, slots=True)
class Listing:
    """The tasks of a queue in one state; ``group`` applies to aggregating tasks."""

    queue: str
    state: TaskState
    group: str

    @classmethod
    def of(cls, queue: str, state: TaskState | str, group: str | None) -> "Listing":
        """Check the user's arguments; ``ValueError`` or ``TypeError`` names the bad one."""
        return cls(check_queue(queue), *check_state(state, group))

    def page(self, page: int, page_size: int, now_ns: int, *, newest_first: bool = False) -> Flow[list[TaskInfo]]:
        """Read a page; tasks that leave the state while it is read are left out."""
        return (yield from self.read((yield from self.ids_of_page(page, page_size, newest_first)), now_ns))

    def ids_of_page(self, page: int, page_size: int, newest_first: bool) -> Flow[list[bytes]]:
        """Read the ids of a page."""
        start, count = check_page(page, page_size)
        listed = list_ids_newest_first if newest_first else list_ids
        exists, ids = yield from together(
            queue_exists(self.queue), listed(self.queue, self.state, self.group, start, count)
        )
        if not exists:
            raise QueueNotFoundError(self.queue)
        return list(ids)

    def read(self, ids: Sequence[bytes], now_ns: int) -> Flow[list[TaskInfo]]:
        """Read the tasks, without those that have left this state."""
        found = yield from read_all_tasks(self.queue, ids)
        infos = (describe(self.queue, task_id, task, now_ns) for task_id, task in zip(ids, found, strict=True))
        return [info for info in infos if info is not None and info.state is self.state]

    def read_some(self, ids: Sequence[bytes], now_ns: int) -> Flow[tuple[list[TaskInfo], int]]:
        """Read the first of the tasks, fewer if they are large; returns the tasks in this state, and how many were
        read.
        """
        found = yield read_tasks(self.queue, ids)
        infos = (describe(self.queue, task_id, task, now_ns) for task_id, task in zip(ids, found, strict=False))
        return [info for info in infos if info is not None and info.state is self.state], len(found)

    def ids(self) -> Flow[list[bytes]]:
        """Read the ids of all tasks in this state, in the order of the pages.

        Reading begins at the newest end, since tasks leave a state at its oldest end: then a task that leaves does not
        shift unread tasks. A task that arrives shifts read tasks, so an id may be read twice; it is returned once.
        """
        yield from require_queue(self.queue)
        ids: dict[bytes, None] = {}
        start = 0
        while True:
            some = yield list_ids_newest_first(self.queue, self.state, self.group, start, IDS_A_CALL)
            ids.update(dict.fromkeys(some))
            start += len(some)
            if len(some) < IDS_A_CALL:
                return list(reversed(ids))

    def pieces(self, ids: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
        """Cut ids into chunks, which are read one after the other."""
        return [ids[start : start + size] for start in range(0, len(ids), size)]


def _follow_up(found: FollowUp | None) -> tuple[int | None, datetime | None, datetime | None]:
    if found is None:
        return None, None, None
    run_at, latest = (at_unix_ns(second * SECOND_NS) if second else None for second in found[1:])
    return found.payload_size, run_at, latest


def _lock(queue: str, message: bytes) -> str:
    """Return the unique lock that a message names, empty for none."""
    try:
        return lock_of(queue, view_task_message(message).unique_key)
    except InvalidMessageError:
        return ""


def _list(
    self: Driver, state: TaskState, queue: str, *, page: int = 1, page_size: int = DEFAULT_PAGE_SIZE
) -> Flow[list[TaskInfo]]:
    return Listing.of(queue, state, None).page(page, page_size, self._now_ns())


def _list_group(
    self: Driver, state: TaskState, queue: str, group: str, *, page: int = 1, page_size: int = DEFAULT_PAGE_SIZE
) -> Flow[list[TaskInfo]]:
    return Listing.of(queue, state, group).page(page, page_size, self._now_ns())


class TaskMethods(Driver):
    """The inspector's reading of tasks."""

    @operation
    def get_task_info(self, queue: str, task_id: str) -> Flow[TaskInfo]:
        """Describe a task; ``TaskNotFoundError`` if the queue has no task with this id."""
        check_queue(queue)
        check_task_id(task_id)
        exists, found = yield from together(queue_exists(queue), read_tasks(queue, [task_id]))
        if not exists:
            raise QueueNotFoundError(queue)
        info = describe(queue, task_id.encode(), found[0], self._now_ns())
        if info is None:
            raise TaskNotFoundError(queue, task_id)
        return info

    @operation
    def get_task_heads(self, queue: str, task_ids: Sequence[str], most_bytes: int) -> Flow[list[TaskHead | None]]:
        """Describe tasks with the first bytes of payload, result and error; None for each id that is not in the queue.
        A list of large tasks takes little memory and bandwidth, since Redis sends only these bytes. The type, and all
        headers together, have at most 1 000 bytes each, or ``most_bytes`` if that is more; further headers are left
        out.
        """
        check_queue(queue)
        for task_id in task_ids:
            check_task_id(task_id)
        yield from require_queue(queue)
        ids = [task_id.encode() for task_id in task_ids]
        return (yield from _heads(queue, ids, most_bytes, self._now_ns()))

    @operation
    def list_task_heads(
        self,
        queue: str,
        state: TaskState | str,
        *,
        most_bytes: int,
        group: str | None = None,
        page: int = 1,
        page_size: int = DEFAULT_PAGE_SIZE,
        newest_first: bool = False,
    ) -> Flow[list[TaskHead]]:
        """Read a page as ``list_tasks`` does, but only the first bytes of each payload, result and error."""
        listing = Listing.of(queue, state, group)
        ids = yield from listing.ids_of_page(page, page_size, newest_first)
        heads = yield from _heads(queue, ids, most_bytes, self._now_ns())
        return [head for head in heads if head is not None and head.state is listing.state]

    @operation
    def read_payload(self, queue: str, task_id: str, start: int, count: int) -> Flow[bytes]:
        """Read some bytes of a payload; ``TaskNotFoundError`` if the queue has no task with this id."""
        return (yield from _part(queue, task_id, "msg", start, count))

    @operation
    def read_result(self, queue: str, task_id: str, start: int, count: int) -> Flow[bytes]:
        """Read some bytes of a result; ``TaskNotFoundError`` if the queue has no task with this id, or no result."""
        return (yield from _part(queue, task_id, "result", start, count))

    @operation
    def get_failed_attempts(self, queue: str, task_id: str) -> Flow[list[FailedAttempt]]:
        """Return the last five failed attempts of a task, the oldest first, with the tracebacks that are kept.

        Attempts by Go servers leave no record. ``TaskNotFoundError`` if the queue has no task with this id.
        """
        check_queue(queue)
        check_task_id(task_id)
        exists, records = yield from together(queue_exists(queue), read_attempts(queue, task_id))
        if not exists:
            raise QueueNotFoundError(queue)
        if records is None:
            raise TaskNotFoundError(queue, task_id)
        fingerprints = list(dict.fromkeys(record.fingerprint for record in records if record.fingerprint))
        kept: dict[str, str] = (yield read_tracebacks(queue, fingerprints)) if fingerprints else {}
        return [_attempt(record, kept.get(record.fingerprint)) for record in records]

    @operation
    def get_task_locks(self, queue: str, task_id: str) -> Flow[TaskLocks]:
        """Read the lease of a task, the holder of its unique lock, and the run that will follow the current run.

        ``TaskNotFoundError`` if the queue has no task with this id.
        """
        check_queue(queue)
        check_task_id(task_id)
        exists, (found,), follows = yield from together(
            queue_exists(queue), read_tasks(queue, [task_id]), read_again(queue, task_id)
        )
        if not exists:
            raise QueueNotFoundError(queue)
        if found.message is None:
            raise TaskNotFoundError(queue, task_id)
        lease_s = None if found.score is None or found.state != TaskState.ACTIVE else min(found.score, FAR_S)
        until = None if lease_s is None else at_unix_ns(int(lease_s) * SECOND_NS)
        is_of_go = lease_s is not None and lease_s == int(lease_s)
        lock = _lock(queue, found.message)
        holder, left_ms = (yield from together(*read_holder(lock))) if lock else (None, 0)
        locked_until = None
        if holder is not None and left_ms >= 0:
            locked_until = at_unix_ns(self._now_ns() + left_ms * MS_NS)
        held_by = (holder or b"").decode(errors="surrogateescape")
        return TaskLocks(until, is_of_go, bool(lock), held_by, locked_until, *_follow_up(follows))

    @operation
    def list_tasks(
        self,
        queue: str,
        state: TaskState | str,
        *,
        group: str | None = None,
        page: int = 1,
        page_size: int = DEFAULT_PAGE_SIZE,
        newest_first: bool = False,
    ) -> Flow[list[TaskInfo]]:
        """Read a page of the tasks in a state, ``page`` from 1 on; empty past the end.

        The oldest tasks come first: for pending and active those that were added first, for the other states those with
        the earliest time. ``newest_first`` reverses the order. ``group`` is for aggregating tasks. A page is shorter
        than its size if tasks leave the state while it is read.
        """
        return Listing.of(queue, state, group).page(page, page_size, self._now_ns(), newest_first=newest_first)

    list_pending_tasks = alias(_list, TaskState.PENDING, "List pending tasks, the next one to run first.")
    list_active_tasks = alias(
        _list, TaskState.ACTIVE, "List active tasks; ``is_orphaned`` are those that no server has a lease for."
    )
    list_scheduled_tasks = alias(_list, TaskState.SCHEDULED, "List scheduled tasks, the next one due first.")
    list_retry_tasks = alias(_list, TaskState.RETRY, "List tasks that wait for a retry, the next one due first.")
    list_archived_tasks = alias(_list, TaskState.ARCHIVED, "List archived tasks, the oldest first.")
    list_completed_tasks = alias(_list, TaskState.COMPLETED, "List completed tasks, the next one to expire first.")
    list_aggregating_tasks = alias(
        _list_group, TaskState.AGGREGATING, "List the tasks of a group, the one that joined first at the front."
    )

    @stream
    def iter_tasks(
        self, queue: str, state: TaskState | str, *, group: str | None = None, page_size: int = 100
    ) -> Stream[TaskInfo]:
        """Iterate over all tasks in a state, in the order of ``list_tasks``.

        A round trip reads ``page_size`` tasks, or fewer if they are large: it ends with the task with which it exceeds
        256 kB. All ids are read at the beginning, and take about 100 bytes each. A task comes at most once, and only if
        it is still in the state when it is read, so tasks may be deleted or moved during the iteration. Tasks that
        arrive later are left out.
        """
        listing = Listing.of(queue, state, group)
        check_page(1, page_size)
        return self._iterate(listing, page_size)

    def _iterate(self, listing: Listing, page_size: int) -> Stream[TaskInfo]:
        ids, start = (yield from listing.ids()), 0
        while start < len(ids):
            infos, count = yield from listing.read_some(ids[start : start + page_size], self._now_ns())
            start += count
            yield Given(infos)


def _heads(queue: str, ids: Sequence[bytes], most: int, now_ns: int) -> Flow[list[TaskHead | None]]:
    found = yield from read_all_tasks(queue, ids, most)
    infos = (describe(queue, task_id, task, now_ns) for task_id, task in zip(ids, found, strict=True))
    return [
        None if info is None else TaskHead.of(info, task.payload_size, task.result_size, task.message_size)
        for info, task in zip(infos, found, strict=True)
    ]


def _part(queue: str, task_id: str, field: str, start: int, count: int) -> Flow[bytes]:
    check_queue(queue)
    check_task_id(task_id)
    data: bytes | None = yield read_payload(queue, task_id, field, start, count)
    if data is None:
        raise TaskNotFoundError(queue, task_id)
    return data


def describe(queue: str, task_id: bytes, found: FoundTask, now_ns: int) -> TaskInfo | None:
    """Describe a task; None if it does not exist, or is in a state that asynq does not know."""
    if found.message is None or found.state not in STATES:
        return None
    state = TaskState(found.state)
    next_ns = None
    if state is TaskState.PENDING:
        next_ns = now_ns
    elif state in TIMED and found.score is not None:
        next_ns = int(max(-FAR_S, min(found.score, FAR_S))) * SECOND_NS  # a score may be infinite
    orphaned = state is TaskState.ACTIVE and (found.score is None or found.score <= now_ns // SECOND_NS)
    info = task_info(
        _message_of(queue, task_id, found.message),
        state,
        next_process_at=None if next_ns is None else at_unix_ns(next_ns),
        is_orphaned=orphaned,
        result=found.result,
        lost=found.lost,
    )
    return info if found.progress is None else replace(info, progress=found.progress)


def _attempt(record: AttemptRecord, kept: str | None) -> FailedAttempt:
    started_at = at_unix_ns(record.started_ms * MS_NS) if record.started_ms else None
    ended_at = at_unix_ns(record.ended_ms * MS_NS)
    traceback = None if kept is None else own_traceback(kept, record.error)
    return FailedAttempt(
        record.attempt, started_at, ended_at, record.server, record.error, record.fingerprint, traceback
    )


def _message_of(queue: str, task_id: bytes, data: bytes) -> TaskMessage:
    """Decode a message; an undecodable message becomes the task as which servers archive it (asynq hides it)."""
    try:
        return decode_task_message(data)
    except InvalidMessageError as error:
        return TaskMessage(
            type=UNDECODABLE_TYPE,
            payload=data,
            id=task_id.decode(errors="replace"),
            queue=queue,
            error_msg=clean_text(f"InvalidMessageError: {error}"),
        )
