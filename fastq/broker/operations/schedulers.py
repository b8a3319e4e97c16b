"""The data that schedulers publish: their entries, which live as long as their heartbeats, and their history."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from fastq.broker.operation import Operation, scripted
from fastq.wire import keys
from fastq.wire.history import MAX_TYPES, OTHER_TYPES

OWN_SCHEDULER: Final = "fastq-"
"""The beginning of the last part of fastq's scheduler ids, ``host:pid:fastq-uuid``; asynq's have a UUID there."""
MAX_EVENTS: Final = 1000
ENTRIES_A_CALL: Final = 2_000
COUNTS_TTL_S: Final = 90 * 86_400


class TickOutcome(StrEnum):
    """The outcome of a tick that was due while a scheduler ran, or that it knew to have been missed."""

    ENQUEUED = "enqueued"
    DUPLICATE = "duplicate"
    """The id or the unique lock of the tick's task was taken."""

    FAILED = "failed"
    """``pre_enqueue`` raised, or made a task that cannot be enqueued."""

    MISSED = "missed"
    """The tick was left out because of the entry's policy for missed ticks."""


def publish_scheduler(
    scheduler_id: str, entries: Sequence[bytes], now_s: int, ttl_s: int
) -> tuple[Operation[int], ...]:
    """Publish encoded SchedulerEntry messages, the next one due first, for ``ttl_s`` seconds.

    Up to 2 000 entries are sent in one call, which replaces all published before; the rest follows in calls of that
    size.
    """
    key = keys.scheduler_entries(scheduler_id)
    first, *others = [entries[at : at + ENTRIES_A_CALL] for at in range(0, len(entries), ENTRIES_A_CALL)] or [()]
    return (
        Operation("ZADD", (keys.all_schedulers(),), (now_s + ttl_s, key), int, idempotent=True),
        scripted("write_scheduler_entries", (key,), (ttl_s, *first), int, idempotent=True),
        *(Operation("LPUSH", (key,), some, int) for some in others),
    )


def clear_scheduler(scheduler_id: str, entry_ids: Iterable[str]) -> tuple[Operation[int], ...]:
    """Delete the published data, and the history of these entries."""
    key = keys.scheduler_entries(scheduler_id)
    return (
        Operation("ZREM", (keys.all_schedulers(),), (key,), int, idempotent=True),
        Operation("DEL", (key,), (), int, idempotent=True),
        *(Operation("DEL", (keys.scheduler_history(entry_id),), (), int, idempotent=True) for entry_id in entry_ids),
    )


def record_event(entry_id: str, event: bytes, now_s: int) -> tuple[Operation[int], ...]:
    """Add an encoded SchedulerEnqueueEvent to an entry's history, which keeps the newest 1000."""
    history = keys.scheduler_history(entry_id)
    return (
        Operation("ZREMRANGEBYRANK", (history,), (0, -MAX_EVENTS), int, idempotent=True),
        Operation("ZADD", (history,), (now_s, event), int, idempotent=True),
    )


def count_ticks(counts: Mapping[tuple[TickOutcome, str], int]) -> Operation[int]:
    """Add to the counters of ticks by outcome and type of task, which expire 90 days after the last tick.

    Types beyond a limit are counted together. Not sent again, so never counted twice.
    """
    words = [word for (outcome, kind), count in counts.items() for word in (outcome, kind, count)]
    most = MAX_TYPES * len(TickOutcome)
    return scripted("count_ticks", (keys.scheduler_ticks(),), (COUNTS_TTL_S, most, OTHER_TYPES, *words), int)
