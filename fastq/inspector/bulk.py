"""What an inspector does to all tasks of a state, or to all of a queue, as flows; in pieces, so not atomic."""

import logging
from collections.abc import Mapping
from typing import Final

from fastq.broker.inspect.bulk import Source, archive_all, delete_all, run_all
from fastq.broker.inspect.move import count_parked
from fastq.broker.inspect.queues import QueueStats, group_sizes, queue_stats
from fastq.broker.inspect.removal import (
    Closing,
    close_queue,
    delete_contents,
    find_groups,
    forget_queue,
    sweep_queue,
    unlist_groups,
)
from fastq.broker.inspect.tasks import container
from fastq.broker.operation import Flow
from fastq.errors import QueueNotEmptyError
from fastq.info import at_unix_ns
from fastq.inspector.checks import check_queue, check_state
from fastq.inspector.queues import require_queue
from fastq.states import TaskState

__all__ = ["archive_all_tasks", "delete_all_tasks", "delete_queue", "run_all_tasks"]

SECOND_NS: Final = 1_000_000_000
DELETABLE: Final = frozenset(TaskState) - {TaskState.ACTIVE}
RUNNABLE: Final = DELETABLE - {TaskState.PENDING}
ARCHIVABLE: Final = DELETABLE - {TaskState.ARCHIVED}

_log = logging.getLogger("fastq.inspector")


def delete_all_tasks(queue: str, state: TaskState | str, group: str | None) -> Flow[int]:
    """Delete all tasks of a state, with their unique locks."""
    source = _source(queue, state, group, "delete", DELETABLE)
    yield from require_queue(queue)
    return (yield from delete_all(source))


def run_all_tasks(queue: str, state: TaskState | str, group: str | None, now_ns: int) -> Flow[int]:
    """Move all tasks of a state to pending."""
    source = _source(queue, state, group, "run", RUNNABLE)
    yield from require_queue(queue)
    return (yield from run_all(source, now_ns))


def archive_all_tasks(queue: str, state: TaskState | str, group: str | None, now_ns: int) -> Flow[int]:
    """Move all tasks of a state to the archive."""
    source = _source(queue, state, group, "archive", ARCHIVABLE)
    yield from require_queue(queue)
    return (yield from archive_all(source, at_unix_ns(now_ns)))


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
    yield from require_queue(check_queue(queue))
    if parked := (yield count_parked(queue)):
        raise QueueNotEmptyError(queue, {"moving": parked})
    if not force:
        yield from _require_empty(queue, now_ns)
    closing: Closing = yield close_queue(queue, now_ns // SECOND_NS, force=force)
    if not closing.closed:
        in_groups = 0 if any(closing.sizes.values()) else (yield from _count_grouped(queue))
        raise _not_empty(queue, closing.sizes, in_groups)
    if force:  # else what is in it now came when it was found empty
        yield from delete_contents(queue)
    swept = yield from sweep_queue(queue)
    yield from forget_queue(queue)
    _log.info("deleted queue %r; %d of its keys belonged to no task", queue, swept)


def _require_empty(queue: str, now_ns: int) -> Flow[None]:
    """Refuse a queue that has tasks; take the groups of one that has none off its list."""
    stats: QueueStats = yield queue_stats(queue, now_ns / SECOND_NS)
    in_groups = 0 if any(stats.sizes.values()) else (yield from _count_grouped(queue))
    if in_groups or any(stats.sizes.values()):
        raise _not_empty(queue, stats.sizes, in_groups)
    yield from unlist_groups(queue, list((yield from group_sizes(queue))))


def _count_grouped(queue: str) -> Flow[int]:
    found = yield from find_groups(queue)
    return sum(group.size for group in found.values())


def _not_empty(queue: str, sizes: Mapping[TaskState, int], in_groups: int) -> QueueNotEmptyError:
    return QueueNotEmptyError(
        queue, {state.value: size for state, size in (*sizes.items(), (TaskState.AGGREGATING, in_groups))}
    )
