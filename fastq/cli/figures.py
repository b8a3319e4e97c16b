"""Formats the figures of plans and measurements with three digits and a suitable unit."""

import math


def _three(value: float) -> str:
    """Format a number with three digits, or all digits of a larger whole number."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def count(value: float) -> str:
    """Format a count that need not be a whole number."""
    return "no limit" if math.isinf(value) else _three(value)


def rate(a_second: float) -> str:
    """Write tasks per second."""
    return "no limit" if math.isinf(a_second) else f"{_three(a_second)}/s"


def duration(seconds: float) -> str:
    """Write a time from microseconds to days."""
    if math.isinf(seconds):
        return "never"
    for limit, length, unit in ((1e-3, 1e-6, "us"), (1, 1e-3, "ms"), (120, 1, "s"), (7_200, 60, "min")):
        if seconds < limit:
            return f"{_three(seconds / length)} {unit}"
    return f"{_three(seconds / 3_600)} h" if seconds < 172_800 else f"{_three(seconds / 86_400)} days"


def microseconds(seconds: float) -> str:
    """Write a cost of time in microseconds."""
    return f"{_three(seconds * 1e6)} us"


def percent(share: float) -> str:
    """Write a share, with one decimal if it is small."""
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def traffic(bytes_a_second: float) -> str:
    """Write bytes per second, in units of 1000 as usual for networks."""
    for limit, unit in ((1e3, "B"), (1e6, "kB"), (1e9, "MB")):
        if bytes_a_second < limit:
            return f"{_three(bytes_a_second / limit * 1e3)} {unit}/s"
    return f"{_three(bytes_a_second / 1e9)} GB/s"
