"""Writes of the history of a queue: what its servers counted, by minute, by type, and by hour."""

from collections.abc import Mapping, Sequence

from fastq.broker.operation import Operation, scripted
from fastq.common.clock import at_unix_ns
from fastq.wire import keys
from fastq.wire.history import (
    DAY_S,
    HOUR_S,
    HOURS_KEPT_S,
    MAX_TYPES,
    MINUTE_S,
    MINUTES_KEPT_S,
    OTHER_TYPES,
    STEP_OF_TYPES,
    encode_counts,
    sum_of,
)


def add_history(queue: str, now_s: int, by_type: Mapping[str, Sequence[int]]) -> Operation[bool]:
    """Add counts of at most 200 types to the current minute and hour; False if the queue was deleted meanwhile.

    Not sent again, so never counted twice.
    """
    now = at_unix_ns(now_s * 1_000_000_000)
    hour_s, day_s = now_s // HOUR_S * HOUR_S, now_s // DAY_S * DAY_S
    minute = (now_s - hour_s) // MINUTE_S
    words = [word for name, counts in by_type.items() for word in (name, encode_counts(counts))]
    return scripted(
        "add_history",
        (
            keys.history_minutes(queue, now),
            keys.history_hours(queue, now),
            keys.processed_total(queue),
            keys.lost(queue, now),
            keys.active(queue),
        ),
        (
            minute,
            (now_s - day_s) // HOUR_S,
            hour_s + HOUR_S + MINUTES_KEPT_S,
            day_s + DAY_S + HOURS_KEPT_S,
            MAX_TYPES,
            OTHER_TYPES,
            encode_counts(sum_of(by_type.values())),
            minute - minute % STEP_OF_TYPES,
            *words,
        ),
        bool,
    )
