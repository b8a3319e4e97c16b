"""The progress of a running task: JSON in a field that fastq adds to the hash of the task."""

import math
from datetime import datetime
from typing import NamedTuple

import orjson

from fastq.common.clock import at_unix_ns

MAX_NOTE = 200


class TaskProgress(NamedTuple):
    """A handler's last report of its progress, and its time; ``total`` is None if it is not known."""

    current: float
    total: float | None
    note: str
    at: datetime


def encode_progress(current: float, total: float | None, note: str, unix_ns: int) -> bytes:
    """Return progress as JSON; ``TypeError`` or ``ValueError`` names a bad value."""
    for name, value in (("current", current), ("total", 0 if total is None else total)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} must be a number, not {value!r}")
        if not (math.isfinite(value) and 0 <= value < 2**53):
            raise ValueError(f"{name} must be between 0 and 2**53, not {value!r}")
    if not isinstance(note, str):
        raise TypeError(f"note must be a str, not {note!r}")
    if len(note) > MAX_NOTE:
        raise ValueError(f"note must have at most {MAX_NOTE} characters, not {len(note)}: {note[:20]!r}…")
    try:
        return orjson.dumps({"current": current, "total": total, "note": note, "at": unix_ns})
    except TypeError:
        raise ValueError(f"note must be valid Unicode text: {note!r}") from None


def read_progress(data: bytes | None) -> TaskProgress | None:
    """Read what ``encode_progress`` wrote; return None for missing or unreadable data."""
    try:
        body = orjson.loads(data or b"")
        return TaskProgress(body["current"], body["total"], body["note"], at_unix_ns(body["at"]))
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
