"""The inspector's actions on all tasks of a state, or on a whole queue. They work in chunks, so they are not atomic."""

import logging
from collections.abc import Mapping
from typing import Final

from fastq.broker.inspect.bulk import archive_all, delete_all, run_all
from fastq.broker.inspect.keyspace import has_keys
from fastq.broker.inspect.move import count_parked
from fastq.broker.inspect.queues import QueueStats, group_sizes, queue_exists, queue_stats
from fastq.broker.inspect.removal import (
    CloseOutcome,
    close_queue,
    delete_contents,
    find_groups,
    forget_queue,
    sweep_queue,
    unlist_groups,
)
from fastq.broker.inspect.tasks import container
from fastq.broker.operation import Flow, together
from fastq.broker.operations.keyed import count_again
from fastq.broker.operations.walk import Source
from fastq.common.clock import at_unix_ns
from fastq.common.states import TaskState
from fastq.errors import QueueNotEmptyError, QueueNotFoundError
from fastq.inspector.audit import audited
from fastq.inspector.checks import check_queue, check_state
from fastq.inspector.driver import Driver, action, alias, operation
from fastq.inspector.progress import OnProgress, reporting, sizes_of
from fastq.inspector.queues import require_queue

SECOND_NS: Final = 1_000_000_000
DELETABLE: Final = frozenset(TaskState) - {TaskState.ACTIVE}
RUNNABLE: Final = DELETABLE - {TaskState.PENDING}
ARCHIVABLE: Final = DELETABLE - {TaskState.ARCHIVED}

_log = logging.getLogger("fastq.inspector")


@audited
def _delete(self: Driver, state: TaskState, queue: str) -> Flow[int]:
    return delete_all_tasks(queue, state, None)


@audited
def _delete_group(self: Driver, state: TaskState, queue: str, group: str) -> Flow[int]:
    return delete_all_tasks(queue, state, group)


@audited
def _run(self: Driver, state: TaskState, queue: str) -> Flow[int]:
    return run_all_tasks(queue, state, None, self._now_ns())


@audited
def _run_group(self: Driver, state: TaskState, queue: str, group: str) -> Flow[int]:
    return run_all_tasks(queue, state, group, self._now_ns())


@audited
def _archive(self: Driver, state: TaskState, queue: str) -> Flow[int]:
    return archive_all_tasks(queue, state, None, self._now_ns())


@audited
def _archive_group(self: Driver, state: TaskState, queue: str, group: str) -> Flow[int]:
    return archive_all_tasks(queue, state, group, self._now_ns())


class BulkMethods(Driver):
    """The inspector's actions on all tasks of a state, or on a whole queue."""

    @action
    def delete_all_tasks(
        self, queue: str, state: TaskState | str, *, group: str | None = None, progress: OnProgress | None = None
    ) -> Flow[int]:
        """Delete all tasks in ``state`` (any but active), with their unique locks; returns how many there were.

        It deletes as many tasks as there are at the start, a few hundred per round trip, so tasks that arrive meanwhile
        may remain. ``progress`` is called before each chunk, and may end the work by raising an exception.
        """
        return delete_all_tasks(queue, state, group, progress)

    @action
    def run_all_tasks(
        self, queue: str, state: TaskState | str, *, group: str | None = None, progress: OnProgress | None = None
    ) -> Flow[int]:
        """Move all tasks in ``state`` (any but pending and active) to pending; returns how many there were."""
        return run_all_tasks(queue, state, group, self._now_ns(), progress)

    @action
    def archive_all_tasks(
        self, queue: str, state: TaskState | str, *, group: str | None = None, progress: OnProgress | None = None
    ) -> Flow[int]:
        """Move all tasks in ``state`` (any but active and archived) to the archive; returns how many there were.

        The archive keeps the last 10 000 tasks; older ones are deleted.
        """
        return archive_all_tasks(queue, state, group, self._now_ns(), progress)

    delete_all_pending_tasks = alias(_delete, TaskState.PENDING, "Delete all pending tasks.")
    delete_all_scheduled_tasks = alias(_delete, TaskState.SCHEDULED, "Delete all scheduled tasks.")
    delete_all_retry_tasks = alias(_delete, TaskState.RETRY, "Delete all tasks that wait for a retry.")
    delete_all_archived_tasks = alias(_delete, TaskState.ARCHIVED, "Delete all archived tasks.")
    delete_all_completed_tasks = alias(_delete, TaskState.COMPLETED, "Delete all completed tasks.")
    delete_all_aggregating_tasks = alias(_delete_group, TaskState.AGGREGATING, "Delete all tasks of a group.")
    run_all_scheduled_tasks = alias(_run, TaskState.SCHEDULED, "Move all scheduled tasks to pending.")
    run_all_retry_tasks = alias(_run, TaskState.RETRY, "Move all tasks that wait for a retry to pending.")
    run_all_archived_tasks = alias(_run, TaskState.ARCHIVED, "Move all archived tasks to pending.")
    run_all_aggregating_tasks = alias(_run_group, TaskState.AGGREGATING, "Move all tasks of a group to pending.")
    archive_all_pending_tasks = alias(_archive, TaskState.PENDING, "Archive all pending tasks.")
    archive_all_scheduled_tasks = alias(_archive, TaskState.SCHEDULED, "Archive all scheduled tasks.")
    archive_all_retry_tasks = alias(_archive, TaskState.RETRY, "Archive all tasks that wait for a retry.")
    archive_all_aggregating_tasks = alias(_archive_group, TaskState.AGGREGATING, "Archive all tasks of a group.")

    @operation
    def count_tasks(self, queue: str, state: TaskState | str, *, group: str | None = None) -> Flow[int]:
        """Count the tasks of a queue in a state; for aggregating ones, the tasks of a group."""
        known, name = check_state(state, group)
        source = Source(check_queue(queue), container(queue, known, name), known, name)
        exists, size = yield from together(queue_exists(queue), source.size())
        if not exists:
            raise QueueNotFoundError(queue)
        count: int = size
        return count

    @action
    def delete_queue(self, queue: str, *, force: bool = False, progress: OnProgress | None = None) -> Flow[None]:
        """Delete a queue with all its keys; ``QueueNotEmptyError`` if it has tasks, in any state.

        With ``force`` its tasks are deleted too, except active ones: a queue with active tasks is not deleted. The
        queue is paused meanwhile. All keys of Redis are scanned in chunks for leftovers. A task enqueued meanwhile
        creates a new queue of the same name; with ``force`` that task may be deleted.

        A queue that is not listed is deleted, too, if it has keys: asynq's ``DeleteQueue`` leaves some behind. So a
        later queue of the same name inherits no pause and no rule of the archive.

        If Redis fails, or ``progress`` ends the work, the queue stays paused; call this again to delete the rest.
        Clients in other processes add a queue to the list of queues only every 10 s, so a queue to which they enqueue
        again may be missing there for that long.
        """
        return reporting(delete_queue(queue, self._now_ns(), force=force), progress, _count_all(queue))


def delete_all_tasks(
    queue: str, state: TaskState | str, group: str | None, progress: OnProgress | None = None
) -> Flow[int]:
    """Delete all tasks of a state, with their unique locks."""
    source = _source(queue, state, group, "delete", DELETABLE)
    yield from require_queue(queue)
    return (yield from reporting(delete_all(source), progress, sizes_of(source)))


def run_all_tasks(
    queue: str, state: TaskState | str, group: str | None, now_ns: int, progress: OnProgress | None = None
) -> Flow[int]:
    """Move all tasks of a state to pending."""
    source = _source(queue, state, group, "run", RUNNABLE)
    yield from require_queue(queue)
    return (yield from reporting(run_all(source, now_ns), progress, sizes_of(source)))


def archive_all_tasks(
    queue: str, state: TaskState | str, group: str | None, now_ns: int, progress: OnProgress | None = None
) -> Flow[int]:
    """Move all tasks of a state to the archive."""
    source = _source(queue, state, group, "archive", ARCHIVABLE)
    yield from require_queue(queue)
    return (yield from reporting(archive_all(source, at_unix_ns(now_ns)), progress, sizes_of(source)))


def _source(
    queue: str, state: TaskState | str, group: str | None, action: str, allowed: frozenset[TaskState]
) -> Source:
    check_queue(queue)
    known, name = check_state(state, group)
    if known not in allowed:
        raise ValueError(
            f"state must be one of {', '.join(sorted(allowed))} to {action} its tasks, not {known.value!r}"
        )
    return Source(queue, container(queue, known, name), known, name)


def delete_queue(queue: str, now_ns: int, *, force: bool) -> Flow[None]:
    """Delete a queue with all its keys; see ``Inspector.delete_queue``."""
    if not (yield queue_exists(check_queue(queue))) and not (yield from has_keys(queue)):
        raise QueueNotFoundError(queue)
    if parked := (yield count_parked(queue)):
        raise QueueNotEmptyError(queue, {"moving": parked})
    if not force:
        yield from _require_empty(queue, now_ns)
    closing: CloseOutcome = yield close_queue(queue, now_ns // SECOND_NS, force=force)
    if not closing.closed:
        in_groups = 0 if any(closing.sizes.values()) else (yield from _count_grouped(queue))
        raise _not_empty(queue, closing.sizes, in_groups)
    if force:  # without it, the tasks here have arrived after the queue was found empty
        yield from delete_contents(queue)
    swept = yield from sweep_queue(queue)
    yield from forget_queue(queue)
    _log.info("deleted queue %r; %d of its keys belonged to no task", queue, swept)


def _require_empty(queue: str, now_ns: int) -> Flow[None]:
    """Raise if the queue has tasks, also such as wait for the end of a run.

    Otherwise remove its empty groups from the list of groups.
    """
    stats: QueueStats = yield queue_stats(queue, now_ns / SECOND_NS)
    in_groups = 0 if any(stats.sizes.values()) else (yield from _count_grouped(queue))
    if in_groups or any(stats.sizes.values()):
        raise _not_empty(queue, stats.sizes, in_groups)
    if behind := (yield count_again(queue)):
        raise QueueNotEmptyError(queue, {"behind a run": behind})
    yield from unlist_groups(queue, list((yield from group_sizes(queue))))


def _count_grouped(queue: str) -> Flow[int]:
    found = yield from find_groups(queue)
    return sum(group.size for group in found.values())


def _not_empty(queue: str, sizes: Mapping[TaskState, int], in_groups: int) -> QueueNotEmptyError:
    return QueueNotEmptyError(
        queue, {state.value: size for state, size in (*sizes.items(), (TaskState.AGGREGATING, in_groups))}
    )


def _count_all(queue: str) -> Flow[int]:
    stats: QueueStats = yield queue_stats(queue, 0.0)
    grouped = sum((yield from group_sizes(queue)).values()) if stats.groups else 0
    return sum(stats.sizes.values()) + grouped
