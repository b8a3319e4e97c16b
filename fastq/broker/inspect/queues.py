"""Reads of whole queues: their names, contents and counters; pausing and resuming them."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple

from fastq.broker.inspect.tasks import STATES, containers
from fastq.broker.operation import Flow, Operation, scripted, together
from fastq.broker.operations.finish import ARCHIVE_MAX_SIZE
from fastq.common.states import TaskState
from fastq.wire import keys

GROUPS_A_CALL: Final = 100
"""So many groups keep Redis busy for 0.25 ms. With 500, some calls took over 5 ms on a busy machine."""
COUNTERS_A_CALL: Final = 2_000
SAMPLED_TASKS: Final = 20
SAMPLED_GROUPS: Final = 5


def list_queues() -> Operation[list[str]]:
    """Read the names of all queues, in alphabetical order."""
    return Operation("SMEMBERS", (keys.all_queues(),), (), _names, idempotent=True)


def queue_exists(queue: str) -> Operation[bool]:
    """Return whether the queue is listed."""
    return Operation("SISMEMBER", (keys.all_queues(),), (queue,), bool, idempotent=True)


class QueueStats(NamedTuple):
    """The size of each state except aggregating, today's counters (UTC) and the totals of a queue.

    The oldest pending task has waited since ``oldest_pending_ns`` (Unix), None if no task is pending. The archive keeps
    ``archive_max`` tasks. ``archive_full`` says what happens beyond that, and ``archive_dropped`` counts the tasks
    dropped so far. ``lost`` tasks were lost today with their servers. ``orphaned`` counts the active tasks without a
    lease that has not expired. The next scheduled task or retry is due at ``next_due_s`` (Unix), None if there is none.
    The queue may have ``max_pending`` pending tasks, None for any number.
    """

    sizes: dict[TaskState, int]
    groups: int
    processed: int
    failed: int
    processed_total: int
    failed_total: int
    paused: bool
    oldest_pending_ns: int | None
    archive_max: int
    archive_full: str
    archive_dropped: int
    lost: int
    orphaned: int
    next_due_s: float | None
    max_pending: int | None


def queue_stats(queue: str, now_s: float) -> Operation[QueueStats]:
    """Count a queue's tasks, all at one moment; those in groups are counted by ``group_sizes``."""
    today = datetime.fromtimestamp(now_s, UTC)
    script_keys = (
        *containers(queue),
        keys.groups(queue),
        keys.processed(queue, today),
        keys.failed(queue, today),
        keys.processed_total(queue),
        keys.failed_total(queue),
        keys.paused(queue),
        keys.archive_rule(queue),
        keys.lost(queue, today),
        keys.lease(queue),
        keys.quota(queue),
    )
    args = (keys.task_prefix(queue), int(now_s))
    return scripted("queue_stats", script_keys, args, _parse_stats, idempotent=True)


def _parse_stats(reply: list[Any]) -> QueueStats:
    counts, (groups, *counters, paused, oldest, most, full, dropped, lost, leased, due, quota) = reply[:6], reply[6:]
    sizes = dict(zip(STATES, counts, strict=True))
    processed, failed, processed_total, failed_total = (int(counter or 0) for counter in counters)
    return QueueStats(
        sizes=sizes,
        groups=groups,
        processed=processed,
        failed=failed,
        processed_total=processed_total,
        failed_total=failed_total,
        paused=bool(paused),
        oldest_pending_ns=int(oldest) if oldest.isdigit() else None,
        archive_max=int(most or ARCHIVE_MAX_SIZE),
        archive_full=full.decode() or "trim",
        archive_dropped=int(dropped or 0),
        lost=int(lost or 0),
        orphaned=max(0, sizes[TaskState.ACTIVE] - leased),
        next_due_s=float(due) if due else None,
        max_pending=int(quota) if quota else None,
    )


def set_max_pending(queue: str, most: int | None) -> Operation[bool]:
    """Set the limit of a queue's pending tasks; return whether it is new.

    None removes the limit; then the result says whether there was one.
    """
    command, value = ("HDEL", ()) if most is None else ("HSET", (most,))
    return Operation(command, (keys.quota(queue),), ("pending", *value), bool, idempotent=most is not None)


class Pulse(NamedTuple):
    """The contents of a queue, and since when it is paused.

    ``paused_since_s`` is None if the queue is not paused, and 0 if the time is unknown.
    """

    stats: QueueStats
    paused_since_s: int | None


def read_pulse(queue: str, now_s: float) -> Flow[Pulse]:
    """Read contents and pause in one round trip."""
    stats, paused = yield from together(
        queue_stats(queue, now_s), Operation("GET", (keys.paused(queue),), (), _second, idempotent=True)
    )
    return Pulse(stats, paused)


def _second(reply: bytes | None) -> int | None:
    return None if reply is None else int(reply) if reply.isdigit() else 0


class Peek(NamedTuple):
    """The number of tasks in each state, the ids that entered the state last, and the total of finished runs.

    In pending and active the newest ids come first, in the other states the ids with the highest scores.
    """

    sizes: dict[TaskState, int]
    ids: dict[TaskState, list[bytes]]
    processed: int


def peek_queue(queue: str, window: int) -> Operation[Peek]:
    """Look at a queue at one moment; at most ``window`` ids of each state are read."""
    script_keys = (*containers(queue), keys.processed_total(queue))
    return scripted("peek_queue", script_keys, (window,), _parse_peek, idempotent=True)


def _parse_peek(reply: list[Any]) -> Peek:
    return Peek(
        dict(zip(STATES, reply[0:12:2], strict=True)),
        dict(zip(STATES, reply[1:12:2], strict=True)),
        int(reply[12] or 0),
    )


class MemorySample(NamedTuple):
    """Estimates in bytes: for the queue without its groups, for one grouped task, for one group without its tasks."""

    ungrouped: int
    grouped_task: int
    group: int


def sample_memory(queue: str) -> Operation[MemorySample]:
    """Estimate the memory of a queue from a few tasks."""
    return scripted(
        "sample_memory",
        (
            *containers(queue),
            keys.groups(queue),
        ),
        (keys.task_prefix(queue), keys.group_prefix(queue), SAMPLED_TASKS, SAMPLED_GROUPS),
        lambda reply: MemorySample(*reply),
        idempotent=True,
    )


class GroupPage(NamedTuple):
    """A page of groups with their sizes, and the cursor of the next page; "0" after the last one."""

    cursor: str
    sizes: dict[str, int]


def list_groups(queue: str, cursor: str = "0", count: int = GROUPS_A_CALL) -> Operation[GroupPage]:
    """Read some of a queue's groups; while groups come and go, one may appear on two pages."""
    return scripted(
        "list_groups",
        (keys.groups(queue),),
        (keys.group_prefix(queue), cursor, count),
        _parse_groups,
        idempotent=True,
    )


def _parse_groups(reply: list[Any]) -> GroupPage:
    cursor, pairs = reply[0].decode(), reply[1:]
    return GroupPage(cursor, {_text(pairs[at]): pairs[at + 1] for at in range(0, len(pairs), 2)})


def read_groups(queue: str, cursor: str = "0", most: float = math.inf) -> Flow[GroupPage]:
    """Read groups of a queue, some hundreds per round trip, until there are no more or at least ``most`` are read."""
    sizes: dict[str, int] = {}
    while True:
        page: GroupPage = yield list_groups(queue, cursor)
        sizes.update(page.sizes)
        cursor = page.cursor
        if cursor == "0" or len(sizes) >= most:
            return GroupPage(cursor, sizes)


def group_sizes(queue: str) -> Flow[dict[str, int]]:
    """Read all groups of a queue with their number of tasks."""
    return (yield from read_groups(queue)).sizes


def read_counters(queue: str, days: Sequence[date]) -> tuple[Operation[list[tuple[int, int]]], ...]:
    """Read how many tasks were processed and how many of these failed, for each UTC day, 1 000 days a call."""
    names = [name for day in days for name in (keys.processed(queue, day), keys.failed(queue, day))]
    return tuple(
        Operation("MGET", names[at : at + COUNTERS_A_CALL], (), _parse_counters, idempotent=True)
        for at in range(0, len(names), COUNTERS_A_CALL)
    )


def _parse_counters(reply: list[bytes | None]) -> list[tuple[int, int]]:
    counts = [int(value or 0) for value in reply]
    return list(zip(counts[::2], counts[1::2], strict=True))


def pause_queue(queue: str, now_s: int) -> Operation[bool]:
    """Stop servers from taking tasks of a queue; False if it was paused before."""
    return scripted("pause_queue", (keys.paused(queue),), (now_s,), bool)


def unpause_queue(queue: str) -> Operation[bool]:
    """Let servers take a queue's tasks again; False if the queue was not paused."""
    return Operation("DEL", (keys.paused(queue),), (), bool)


def _names(reply: list[bytes]) -> list[str]:
    return sorted(map(_text, reply))


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
