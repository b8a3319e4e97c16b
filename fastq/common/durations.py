"""Durations as asynq writes them: whole nanoseconds, and the text of Go's ``time.Duration``."""

import math
import re
from datetime import timedelta

_SECOND = 1_000_000_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_MAX_NS = 2**63 - 1
_MIN_NS = -(2**63)
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": _SECOND,
    "m": _MINUTE,
    "h": _HOUR,
}
_TERM = re.compile(r"([0-9]*)(\.[0-9]*)?([^.0-9]*)")


def nanoseconds_of(value: object, *, name: str) -> int:
    """Return a ``timedelta``, or seconds, in nanoseconds; ``name`` is the option's name, for the errors.

    Raises ``TypeError`` for anything else, including bools, and ``ValueError`` for durations that Go cannot hold: NaN,
    infinity, or more than 292 years.
    """
    if isinstance(value, timedelta):
        ns = (value.days * 86_400 + value.seconds) * _SECOND + value.microseconds * 1_000
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a timedelta or seconds, not {value!r}")
    elif isinstance(value, int):
        ns = value * _SECOND
    elif math.isfinite(value):
        whole = int(value)
        ns = whole * _SECOND + round((value - whole) * _SECOND)
    else:
        raise ValueError(f"{name} must be finite, not {value!r}")
    if not _MIN_NS <= ns <= _MAX_NS:
        raise ValueError(f"{name} must be within 292 years, not {value!r}")
    return ns


def format_duration(ns: int) -> str:
    """Return nanoseconds as Go's ``Duration.String`` does: ``1h30m0s``, ``1.5s``, ``250µs``, ``0s``."""
    sign = "-" if ns < 0 else ""
    ns = abs(ns)
    if ns < _SECOND:
        return sign + _format_below_a_second(ns)
    minutes, ns = divmod(ns, _MINUTE)
    hours, minutes = divmod(minutes, 60)
    seconds = _decimal(ns, 9) + "s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else sign + seconds


def _format_below_a_second(ns: int) -> str:
    if ns == 0:
        return "0s"
    if ns < 1_000:
        return f"{ns}ns"
    return f"{_decimal(ns, 3)}\u00b5s" if ns < 1_000_000 else f"{_decimal(ns, 6)}ms"


def _decimal(value: int, digits: int) -> str:
    whole, fraction = divmod(value, 10**digits)
    return f"{whole}.{fraction:0{digits}}".rstrip("0") if fraction else str(whole)


def parse_duration(text: str) -> int:
    """Return the nanoseconds that Go's ``ParseDuration`` reads from ``text``; a ``ValueError`` says what is wrong."""
    unsigned = text[1:] if text[:1] in {"+", "-"} else text
    if unsigned == "0":
        return 0
    if not unsigned:
        raise ValueError(f"invalid duration {text!r}: it is empty")
    ns = 0
    position = 0
    while position < len(unsigned):
        term = _TERM.match(unsigned, position)
        assert term is not None  # every part of the pattern may be empty
        ns += _term_ns(text, *term.groups(default=""))
        position = term.end()
    ns = -ns if text.startswith("-") else ns
    if not _MIN_NS <= ns <= _MAX_NS:
        raise ValueError(f"invalid duration {text!r}: it is beyond 292 years")
    return ns


def _term_ns(text: str, whole: str, fraction: str, unit: str) -> int:
    digits = fraction[1:]
    if not whole and not digits:
        raise ValueError(f"invalid duration {text!r}: a number is missing before {(fraction + unit)!r}")
    if unit not in _UNITS:
        problem = f"unknown unit {unit!r}" if unit else "a unit is missing"
        raise ValueError(f"invalid duration {text!r}: {problem}; write ns, us, ms, s, m or h")
    scale = _UNITS[unit]
    return int(whole or 0) * scale + (int(digits) * scale // 10 ** len(digits) if digits else 0)
