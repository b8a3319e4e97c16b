"""Durations and times as people type them: seconds or 1h30m, and RFC 3339."""

from datetime import datetime

from fastq.common.durations import parse_duration


def read_duration(text: str) -> float:
    """Return the seconds of ``90``, ``1.5`` or ``1h30m``; a ``ValueError`` names the accepted forms."""
    text = text.strip()
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return parse_duration(text) / 1e9
    except ValueError:
        raise ValueError(f"{text!r} is neither seconds nor a duration such as 1m30s") from None


def read_time(text: str) -> datetime:
    """Parse a time in the form of RFC 3339; raise ``ValueError`` if the text is no such time, or has no zone."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise ValueError(f"{text!r} is not a time with its zone, such as 2026-11-21T07:00:00Z")
    return moment
