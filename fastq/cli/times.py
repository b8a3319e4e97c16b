"""Durations and times as people type them: seconds or 1h30m, and RFC 3339."""

from fastq.inspector.json_records import read_time
from fastq.server.settings import parse_kind

__all__ = ["read_duration", "read_time"]


def read_duration(text: str) -> float:
    """Return the seconds of ``90``, ``1.5`` or ``1h30m``; a ``ValueError`` names the accepted forms."""
    seconds: float = parse_kind("seconds", text)
    return seconds
