"""The inspector's methods for whole queues."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import timedelta
from itertools import chain, islice
from typing import Any, Final

from fastq.broker.inspect.keyspace import has_keys
from fastq.broker.inspect.queues import (
    MemorySample,
    QueueStats,
    group_sizes,
    list_queues,
    pause_queue,
    queue_exists,
    queue_stats,
    read_counters,
    read_groups,
    sample_memory,
    set_max_pending,
    unpause_queue,
)
from fastq.broker.inspect.removal import find_groups
from fastq.broker.operation import Flow, Operation, together
from fastq.common.clock import at_unix_ns
from fastq.errors import BrokerError, QueueNotFoundError, QueueStateError
from fastq.inspector.checks import MAX_PAGE_SIZE, MAX_PENDING, check_count, check_queue
from fastq.inspector.driver import Driver, action, operation
from fastq.inspector.records import DailyStats, GroupInfo, QueueInfo

SECOND_NS: Final = 1_000_000_000
FAR_S: Final = 1e10
_ALIKE: Final = {*QueueStats._fields} & {each.name for each in fields(QueueInfo)}
MAX_DAYS: Final = 3650
MAX_CURSOR: Final = 2**64 - 1
MANY_GROUPS: Final = 1_000
SAMPLED_GROUPS: Final = 200
DAYS_A_TRIP: Final = 3_000
QUEUES_A_TRIP: Final = 8
"""Few, because Redis serves no other client during the whole pipeline, and each queue takes some milliseconds."""


class QueueMethods(Driver):
    """The inspector's methods for whole queues."""

    @operation
    def queues(self) -> Flow[list[str]]:
        """List the names of all queues."""
        names: list[str] = yield list_queues()
        return names

    @operation
    def get_queue_info(self, queue: str, *, search: bool = False, estimate: bool = False) -> Flow[QueueInfo]:
        """Describe a queue: the number of tasks in each state, its counters, latency and memory.

        With ``search`` all keys of Redis are scanned, in chunks, to count the tasks of unlisted groups; then a queue
        that is not listed, but has keys, is described, too. With ``estimate``, if there are more than 1 000 groups, the
        number of their tasks is estimated from about 200 groups, because counting 100 000 groups takes Redis 0.1 s.
        """
        now_ns = self._now_ns()
        read = yield _reads(check_queue(queue), now_ns)
        info = yield from _describe(queue, read, now_ns, search=search, estimate=estimate)
        if info is None:
            raise QueueNotFoundError(queue)
        return info

    @operation
    def get_queue_infos(self, queues: Iterable[str], *, estimate: bool = False) -> Flow[list[QueueInfo]]:
        """Describe several queues, some in each round trip; queues that do not exist are left out."""
        now_ns, names, infos = self._now_ns(), [check_queue(queue) for queue in queues], list[QueueInfo]()
        for at in range(0, len(names), QUEUES_A_TRIP):
            some = names[at : at + QUEUES_A_TRIP]
            read = yield tuple(each for queue in some for each in _reads(queue, now_ns))
            for queue, *of_queue in zip(some, read[::3], read[1::3], read[2::3], strict=True):
                info = yield from _describe(queue, of_queue, now_ns, search=False, estimate=estimate)
                infos += [] if info is None else [info]
        return infos

    @operation
    def history(self, queue: str, days: int) -> Flow[list[DailyStats]]:
        """Read how many tasks were processed and failed on each of the last UTC days, today first.

        Redis keeps 90 days; earlier days are 0.
        """
        found = yield from _histories([check_queue(queue)], check_count(days, "days", MAX_DAYS), self._now_ns())
        if queue not in found:
            raise QueueNotFoundError(queue)
        return found[queue]

    @operation
    def histories(self, queues: Iterable[str], days: int) -> Flow[dict[str, list[DailyStats]]]:
        """Read the last UTC days of several queues, many in each round trip; queues that do not exist are left out."""
        names = [check_queue(queue) for queue in queues]
        return _histories(names, check_count(days, "days", MAX_DAYS), self._now_ns())

    @operation
    def groups(self, queue: str) -> Flow[list[GroupInfo]]:
        """List a queue's groups with their number of tasks; empty if there is no such queue, as in asynq."""
        sizes = yield from group_sizes(check_queue(queue))
        return [GroupInfo(name, size) for name, size in sorted(sizes.items())]

    @operation
    def list_groups(self, queue: str, *, cursor: str = "", page_size: int = 100) -> Flow[tuple[list[GroupInfo], str]]:
        """Read about ``page_size`` of a queue's groups, and the cursor of the next page, "" after the last one.

        Groups are sorted only within a page. If groups change meanwhile, a group may appear on two pages.
        """
        if not re.fullmatch(r"[0-9]{0,20}", cursor) or int(cursor or 0) > MAX_CURSOR:
            raise ValueError(f"cursor must be that of the page before, not {cursor!r}")
        most = check_count(page_size, "page_size", MAX_PAGE_SIZE)
        page = yield from read_groups(check_queue(queue), cursor or "0", most)
        groups = [GroupInfo(name, size) for name, size in sorted(page.sizes.items())]
        return groups, "" if page.cursor == "0" else page.cursor

    @action
    def pause_queue(self, queue: str, *, ahead: bool = True) -> Flow[None]:
        """Stop servers from taking tasks of a queue; ``QueueStateError`` if it is paused already.

        As in asynq, a queue may be paused before it exists; with ``ahead=False`` this raises ``QueueNotFoundError``.
        """
        if not ahead:
            yield from require_queue(check_queue(queue))
        yield from pause(queue, self._now_ns())

    @action
    def set_max_pending(self, queue: str, max_pending: int | None) -> Flow[None]:
        """Limit a queue to ``max_pending`` pending tasks: fastq's clients then refuse to enqueue more. None removes the
        limit. Tasks by key, in lanes or groups, scheduled tasks and ticks are not refused. The queue need not exist
        yet. A client that has just enqueued to the queue may take 10 s to learn of its first limit; a change of a
        limit, and its removal, apply at once.
        """
        most = None if max_pending is None else check_count(max_pending, "max_pending", MAX_PENDING)
        yield set_max_pending(check_queue(queue), most)

    @action
    def unpause_queue(self, queue: str) -> Flow[None]:
        """Let servers take tasks from a queue again; ``QueueStateError`` if it is not paused."""
        return unpause(queue)


def _histories(queues: Sequence[str], days: int, now_ns: int) -> Flow[dict[str, list[DailyStats]]]:
    today = at_unix_ns(now_ns).date()
    dates = [today - timedelta(days=ago) for ago in range(days)]
    found: dict[str, list[DailyStats]] = {}
    a_trip = max(1, DAYS_A_TRIP // days)
    for at in range(0, len(queues), a_trip):
        reads = {queue: (queue_exists(queue), *read_counters(queue, dates)) for queue in queues[at : at + a_trip]}
        results = iter((yield from together(*chain.from_iterable(reads.values()))))
        for queue, operations in reads.items():
            exists, *pages = islice(results, len(operations))
            if exists:
                counts = zip(dates, chain.from_iterable(pages), strict=True)
                found[queue] = [DailyStats(queue, processed, failed, day) for day, (processed, failed) in counts]
    return found


def _reads(queue: str, now_ns: int) -> tuple[Operation[Any], ...]:
    """Return the operations whose results ``_describe`` needs."""
    return queue_exists(queue), queue_stats(queue, now_ns / SECOND_NS), sample_memory(queue)


def _describe(queue: str, read: Sequence[Any], now_ns: int, *, search: bool, estimate: bool) -> Flow[QueueInfo | None]:
    """Describe a queue; None if it does not exist."""
    exists, stats, memory = read
    for result in (exists, stats):
        if isinstance(result, BrokerError):
            raise result
    if not exists and not (search and (yield from has_keys(queue))):
        return None
    aggregating = 0
    if search:
        aggregating = sum(group.size for group in (yield from find_groups(queue)).values())
    elif estimate and stats.groups > MANY_GROUPS:
        # SSCAN returns groups in the order of their names' hashes. So its first groups are a fair sample, and always
        # the same.
        sizes = (yield from read_groups(queue, most=SAMPLED_GROUPS)).sizes.values()
        aggregating = round(stats.groups * sum(sizes) / max(len(sizes), 1))
    elif stats.groups:
        aggregating = sum((yield from group_sizes(queue)).values())
    return _queue_info(queue, stats, aggregating, _memory(memory, stats, aggregating), now_ns)


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
        return None  # not every Redis user may read the memory
    return sample.ungrouped + sample.grouped_task * aggregating + sample.group * stats.groups


def _overdue(due_s: float | None, now_ns: int) -> timedelta:
    past_s = 0.0 if due_s is None else min(max(0.0, now_ns / SECOND_NS - due_s), FAR_S)
    return timedelta(seconds=past_s)


def _queue_info(queue: str, stats: QueueStats, aggregating: int, memory: int | None, now_ns: int) -> QueueInfo:
    waiting_ns = 0 if stats.oldest_pending_ns is None else now_ns - stats.oldest_pending_ns
    alike: dict[str, Any] = {state.value: size for state, size in stats.sizes.items()}
    alike |= {name: getattr(stats, name) for name in _ALIKE}
    return QueueInfo(
        queue=queue,
        memory_usage=memory,
        latency=timedelta(microseconds=waiting_ns // 1000),
        size=sum(stats.sizes.values()) + aggregating,
        aggregating=aggregating,
        timestamp=at_unix_ns(now_ns),
        overdue=_overdue(stats.next_due_s, now_ns),
        **alike,
    )
