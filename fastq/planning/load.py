"""A load: similar tasks, with their rate, duration and size; ``rate=5000/s,duration=20ms,payload=2kB``."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fastq.planning.units import parse_rate, parse_size, parse_span

MOST_PAYLOAD: Final = 512 * 2**20
"""The largest size of a Redis string."""


@dataclass(frozen=True, slots=True)
class Load:
    """Similar tasks: ``rate`` per second; handlers take ``duration`` seconds, ``cpu`` of them computing.

    If ``cpu`` is None, a plain handler computes all of the time, and an ``async def`` handler none of it. ``payload``
    is in bytes. ``result`` is the number of bytes of a result, which Redis keeps for ``retention`` seconds.
    ``ValueError`` names a bad value.
    """

    rate: float
    duration: float
    payload: int
    cpu: float | None = None
    is_async: bool = False
    retention: float = 0.0
    result: int = 0

    def __post_init__(self) -> None:
        for name in ("rate", "duration", "payload", "retention", "result"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} must be finite and not negative: {value!r}")
        if self.payload > MOST_PAYLOAD:
            raise ValueError(f"payload must be at most 512 MB, the limit of Redis: {self.payload}")
        if self.cpu is not None and not 0 <= self.cpu <= self.duration:
            raise ValueError(f"cpu must be from 0 to the duration of {self.duration:g} s: {self.cpu:g} s")

    @property
    def cpu_s(self) -> float:
        """Return the seconds that a handler computes."""
        if self.cpu is not None:
            return self.cpu
        return 0.0 if self.is_async else self.duration

    @property
    def wait_s(self) -> float:
        """Return the seconds that a handler waits."""
        return self.duration - self.cpu_s


def total_rate(loads: Sequence[Load]) -> float:
    """Return the tasks per second of all loads."""
    return sum(load.rate for load in loads)


def scaled(loads: Sequence[Load], factor: float) -> tuple[Load, ...]:
    """Return the same mix at a multiple of the rate."""
    return tuple(replace(load, rate=load.rate * factor) for load in loads)


_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "rate": parse_rate,
    "duration": parse_span,
    "payload": parse_size,
    "cpu": parse_span,
    "retention": parse_span,
    "result": parse_size,
}
_NEEDED: Final = ("rate", "duration", "payload")


def parse_load(text: str) -> Load:
    """Read ``rate=5000/s,duration=20ms,payload=2kB``, and after it ``cpu=5ms``, ``async``, ``retention=1h``."""
    given: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if name == "async" and not equals:
            name, found = "is_async", True
        elif name in _PARSERS and equals:
            found = _PARSERS[name](value)
        else:
            words = ", ".join(f"{word}=" for word in _PARSERS)
            raise ValueError(f"{part.strip()!r} is not one of {words} and async")
        if name in given:
            raise ValueError(f"{part.strip()!r} is given twice")
        given[name] = found
    if missing := [name for name in _NEEDED if name not in given]:
        raise ValueError(f"{text!r} lacks {' and '.join(f'{name}=' for name in missing)}")
    return Load(**given)
