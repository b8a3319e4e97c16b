"""Numbers, sizes, times and bytes as text for people; control characters are escaped."""

from datetime import UTC, datetime, timedelta
from typing import Final

from fastq.log.printable import clean

__all__ = ["bound_text", "clean", "number", "payload_text", "plural", "share", "size", "span", "stamp", "when"]

NOTHING: Final = "-"
_SIZES: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_SPANS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_SHOWN_BYTES: Final = 16


def number(value: int) -> str:
    """Write a whole number with a comma between groups of three digits."""
    return f"{value:,}"


def plural(count: int, word: str) -> str:
    """Write a count with its noun: "1 server" or "2 servers"."""
    return f"{number(count)} {word}{'' if count == 1 else 's'}"


def size(count: int | None) -> str:
    """Write a number of bytes, in units of 1024."""
    if count is None:
        return NOTHING
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_SIZES[unit]}" if unit else f"{count} B"


def span(duration: timedelta) -> str:
    """Write a duration with its two largest units: 2d 3h, 5m 12s, 1.3s, 40ms."""
    seconds = abs(duration.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds else "0s"
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    whole = round(seconds)
    for index, (unit, length) in enumerate(_SPANS):
        if whole >= length:
            rest = whole % length
            smaller = _SPANS[index + 1 : index + 2]
            more = [f"{rest // length}{unit}" for unit, length in smaller if rest >= length]
            return " ".join([f"{whole // length}{unit}", *more])
    return "0s"


def bound_text(bound: timedelta | None) -> str:
    """Write the upper bound of a bucket of durations, exact in milliseconds; "-" for None."""
    if bound is None:
        return "-"
    return f"{bound.total_seconds() * 1000:g}ms" if bound < timedelta(seconds=1) else span(bound)


def when(moment: datetime | None, now: datetime) -> str:
    """Write a time as seen from ``now``: in 5m 12s, 2h ago."""
    if moment is None:
        return NOTHING
    if abs(moment - now) < timedelta(seconds=1):
        return "now"
    return f"in {span(moment - now)}" if moment > now else f"{span(now - moment)} ago"


def stamp(moment: datetime | None) -> str:
    """Write a time to the second, in UTC."""
    return NOTHING if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def share(failed: int, processed: int) -> str:
    """Write the failed share of the processed tasks."""
    return f"{100 * failed / processed:.2f}%" if processed else NOTHING


def payload_text(data: bytes | None) -> str:
    """Return bytes as text on one line; for bytes that are not text, the size and the beginning."""
    if data is None:
        return NOTHING
    try:
        return clean(data.decode())
    except UnicodeDecodeError:
        more = " …" if len(data) > _SHOWN_BYTES else ""
        return f"{size(len(data))}, not text: {data[:_SHOWN_BYTES].hex(' ')}{more}"
