"""Reads of the history of a queue."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, TypeAlias

from fastq.broker.operation import Operation
from fastq.broker.transport.replies import fields_of
from fastq.wire import keys
from fastq.wire.history import ALL_TYPES, decode_records

Records: TypeAlias = Mapping[int, Sequence[int]]
"""The counts by the number of the minute, or of the hour; those without a run are missing."""


def read_minutes(queue: str, hour: datetime) -> Operation[Records]:
    """Read the minutes of a UTC hour, all types together."""
    return _read(keys.history_minutes(queue, hour))


def read_hours(queue: str, day: date) -> Operation[Records]:
    """Read the hours of a UTC day."""
    return _read(keys.history_hours(queue, day))


def _read(key: str) -> Operation[Records]:
    return Operation("HGET", (key,), (ALL_TYPES,), lambda reply: decode_records(reply or b""), idempotent=True)


def read_minutes_by_type(queue: str, hour: datetime) -> Operation[dict[str, Records]]:
    """Read the minutes of a UTC hour by type, and under ``ALL_TYPES`` all together."""

    def parse(reply: Any) -> dict[str, Records]:
        found: Mapping[bytes, bytes] = fields_of(reply)
        return {name.decode("utf-8", "replace"): decode_records(value) for name, value in found.items()}

    return Operation("HGETALL", (keys.history_minutes(queue, hour),), (), parse, idempotent=True)
