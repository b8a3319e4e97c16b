"""Durations and times as people type them: seconds or 1h30m, and RFC 3339."""

from datetime import datetime

from fastq.server.settings import parse_kind

__all__ = ["read_duration", "read_time"]


def read_duration(text: str) -> float:
    """Return the seconds of ``90``, ``1.5`` or ``1h30m``; a ``ValueError`` says what it takes."""
    seconds: float = parse_kind("seconds", text)
    return seconds


def read_time(text: str) -> datetime:
    """Return a time as RFC 3339 has it; a ``ValueError`` says what it takes."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise ValueError(f"{text!r} is not a time with its zone, such as 2026-11-21T07:00:00Z")
    return moment
