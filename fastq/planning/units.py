"""Rates, durations, sizes and counts as people type them: 5000/s, 300k/h, 20ms, 2kB, 1M. A bare number is refused.

A ``ValueError`` names the expected form. 1 kB is 1024 bytes, as everywhere in fastq; in a count, 1k is 1000.
"""

import math
import re
from collections.abc import Mapping
from typing import Final

from fastq.common.durations import parse_duration

_NUMBER: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)")
_COUNTS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_PERIODS: Final = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}
_SIZES: Final = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "k": 2**10, "m": 2**20, "g": 2**30}
_LINKS: Final = {"mbit": 10**6 / 8, "gbit": 10**9 / 8}
_MOST: Final = 1e15


def _number(text: str, units: Mapping[str, float], expected: str, whole: str = "") -> float:
    """Read a number with its unit; ``whole`` is the complete text, for errors."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[2].lower() not in units:
        raise ValueError(f"{(whole or text)!r} is not {expected}")
    value = float(match[1]) * units[match[2].lower()]
    if not math.isfinite(value) or value > _MOST:
        raise ValueError(f"{(whole or text)!r} is too large")
    return value


def parse_count(text: str) -> int:
    """Return the number of ``250k``, ``1M`` or ``1000000``."""
    return round(_number(text, _COUNTS, "a number such as 250k or 1M"))


def parse_rate(text: str) -> float:
    """Return the tasks per second of ``5000/s``, ``300k/h`` or ``2M/d``."""
    count, slash, period = text.strip().partition("/")
    if not slash or period.strip().lower() not in _PERIODS:
        raise ValueError(f"{text!r} is not a rate with its period, such as 5000/s, 90k/min, 300k/h or 2M/d")
    a_period = _number(count, _COUNTS, "a rate such as 5000/s or 300k/h", whole=text)
    return a_period / _PERIODS[period.strip().lower()]


def parse_span(text: str) -> float:
    """Return the seconds of ``20ms``, ``1.5s`` or ``1h30m``."""
    try:
        seconds = parse_duration(text.strip()) / 1e9
    except ValueError:
        raise ValueError(f"{text!r} is not a duration with its unit, such as 20ms, 1.5s or 1h30m") from None
    if seconds < 0:
        raise ValueError(f"{text!r} is negative")
    return seconds


def parse_size(text: str) -> int:
    """Return the bytes of ``2kB``, ``100B`` or ``4GB``."""
    return round(_number(text, _SIZES, "a size with its unit, such as 100B, 2kB or 4GB"))


def parse_link(text: str) -> float:
    """Return the bytes per second of ``1Gbit`` or ``500Mbit/s``."""
    return _number(text.strip().removesuffix("/s"), dict(_LINKS), "a speed such as 500Mbit or 10Gbit")
