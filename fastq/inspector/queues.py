"""The inspector's methods for whole queues."""

from datetime import timedelta
from itertools import chain
from typing import Final

from fastq.broker.inspect.queues import (
    MemorySample,
    QueueStats,
    group_sizes,
    list_queues,
    pause_queue,
    queue_exists,
    queue_stats,
    read_counters,
    sample_memory,
    unpause_queue,
)
from fastq.broker.inspect.removal import find_groups
from fastq.broker.operation import Flow, together
from fastq.clock import at_unix_ns
from fastq.errors import BrokerError, QueueNotFoundError, QueueStateError
from fastq.inspector.checks import check_count, check_queue
from fastq.inspector.driver import Driver, action, operation
from fastq.inspector.records import DailyStats, GroupInfo, QueueInfo

__all__ = ["QueueMethods", "pause", "require_queue", "unpause"]

SECOND_NS: Final = 1_000_000_000
FAR_S: Final = 1e10
MAX_DAYS: Final = 3650


class QueueMethods(Driver):
    """The inspector's methods for whole queues."""

    @operation
    def queues(self) -> Flow[list[str]]:
        """List the names of all queues."""
        names: list[str] = yield list_queues()
        return names

    @operation
    def get_queue_info(self, queue: str, *, search: bool = False, aggregating: int | None = None) -> Flow[QueueInfo]:
        """Describe a queue: the number of tasks in each state, its counters, latency and memory.

        With ``search`` all keys of Redis are scanned, in pieces, to count the tasks of unlisted groups. ``aggregating``
        is a number of tasks in groups that was counted before, to be taken as it is: to count those of 100 000 groups
        takes Redis 0.1 s.
        """
        now_ns = self._now_ns()
        exists, stats, memory = yield (
            queue_exists(check_queue(queue)),
            queue_stats(queue, now_ns / SECOND_NS),
            sample_memory(queue),
        )
        for result in (exists, stats):
            if isinstance(result, BrokerError):
                raise result
        if not exists:
            raise QueueNotFoundError(queue)
        if aggregating is None or not stats.groups:
            aggregating = sum((yield from group_sizes(queue)).values()) if stats.groups else 0
        if search:
            aggregating = sum(group.size for group in (yield from find_groups(queue)).values())
        return _queue_info(queue, stats, aggregating, _memory(memory, stats, aggregating), now_ns)

    @operation
    def history(self, queue: str, days: int) -> Flow[list[DailyStats]]:
        """Read how many tasks were processed and failed on each of the last UTC days, today first.

        Redis keeps 90 days; earlier days are 0.
        """
        check_queue(queue)
        check_count(days, "days", MAX_DAYS)
        today = at_unix_ns(self._now_ns()).date()
        dates = [today - timedelta(days=ago) for ago in range(days)]
        exists, *pages = yield from together(queue_exists(queue), *read_counters(queue, dates))
        if not exists:
            raise QueueNotFoundError(queue)
        counts = chain.from_iterable(pages)
        return [
            DailyStats(queue, processed, failed, day) for day, (processed, failed) in zip(dates, counts, strict=True)
        ]

    @operation
    def groups(self, queue: str) -> Flow[list[GroupInfo]]:
        """List a queue's groups with their number of tasks; empty if there is no such queue, as in asynq."""
        sizes = yield from group_sizes(check_queue(queue))
        return [GroupInfo(name, size) for name, size in sorted(sizes.items())]

    @action
    def pause_queue(self, queue: str, *, ahead: bool = True) -> Flow[None]:
        """Stop servers from taking tasks of a queue; ``QueueStateError`` if it is paused already.

        As in asynq, a queue may be paused before it exists; with ``ahead=False`` this raises ``QueueNotFoundError``.
        """
        if not ahead:
            yield from require_queue(check_queue(queue))
        yield from pause(queue, self._now_ns())

    @action
    def unpause_queue(self, queue: str) -> Flow[None]:
        """Let servers take tasks from a queue again; ``QueueStateError`` if it is not paused."""
        return unpause(queue)


def require_queue(queue: str) -> Flow[None]:
    """Raise ``QueueNotFoundError`` unless the queue is listed."""
    if not (yield queue_exists(queue)):
        raise QueueNotFoundError(queue)


def pause(queue: str, now_ns: int) -> Flow[None]:
    """Stop servers from taking tasks of a queue."""
    if not (yield pause_queue(check_queue(queue), now_ns // SECOND_NS)):
        raise QueueStateError(queue, paused=True)


def unpause(queue: str) -> Flow[None]:
    """Let servers take tasks from a queue again."""
    if not (yield unpause_queue(check_queue(queue))):
        raise QueueStateError(queue, paused=False)


def _memory(sample: MemorySample | BrokerError, stats: QueueStats, aggregating: int) -> int | None:
    if isinstance(sample, BrokerError):
        return None  # not every Redis user may read it
    return sample.ungrouped + sample.grouped_task * aggregating + sample.group * stats.groups


def _overdue(due_s: float | None, now_ns: int) -> timedelta:
    past_s = 0.0 if due_s is None else min(max(0.0, now_ns / SECOND_NS - due_s), FAR_S)
    return timedelta(seconds=past_s)


def _queue_info(queue: str, stats: QueueStats, aggregating: int, memory: int | None, now_ns: int) -> QueueInfo:
    waiting_ns = 0 if stats.oldest_pending_ns is None else now_ns - stats.oldest_pending_ns
    return QueueInfo(
        queue=queue,
        memory_usage=memory,
        latency=timedelta(microseconds=waiting_ns // 1000),
        size=sum(stats.sizes.values()) + aggregating,
        groups=stats.groups,
        aggregating=aggregating,
        processed=stats.processed,
        failed=stats.failed,
        processed_total=stats.processed_total,
        failed_total=stats.failed_total,
        paused=stats.paused,
        timestamp=at_unix_ns(now_ns),
        archive_max=stats.archive_max,
        archive_full=stats.archive_full,
        archive_dropped=stats.archive_dropped,
        lost=stats.lost,
        orphaned=stats.orphaned,
        overdue=_overdue(stats.next_due_s, now_ns),
        **{state.value: size for state, size in stats.sizes.items()},
    )
