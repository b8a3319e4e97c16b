"""Time as the rest of fastq sees it: wall time for what is stored, monotonic time for differences."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol, Self

__all__ = ["EPOCH", "Clock", "ManualClock", "Moment", "SystemClock", "at_unix_ns"]

EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Clock(Protocol):
    """A source of time. Everything that waits or takes timestamps gets one, so that tests need not sleep."""

    def unix_ns(self) -> int:
        """Return wall time in nanoseconds since the Unix epoch."""

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""


class Moment(NamedTuple):
    """A point in time by both clocks: the monotonic one stands still while the machine is suspended."""

    monotonic_s: float
    unix_ns: int

    @classmethod
    def now(cls, clock: Clock) -> Self:
        """Return the present moment."""
        return cls(clock.monotonic_s(), clock.unix_ns())

    def until(self, later: "Moment") -> float:
        """Return the seconds from here to a later moment; where the clocks differ the most that it may be."""
        return max(later.monotonic_s - self.monotonic_s, (later.unix_ns - self.unix_ns) / 1e9)


class SystemClock:
    """The machine's clocks."""

    unix_ns = staticmethod(time.time_ns)
    monotonic_s = staticmethod(time.monotonic)


class ManualClock:
    """A clock that moves only when told to; for tests."""

    def __init__(self, unix_s: float = 1_700_000_000.0) -> None:
        self._unix_ns = int(unix_s * 1_000_000_000)
        self._monotonic_ns = 0

    def unix_ns(self) -> int:
        """Return the wall time that was set, in nanoseconds."""
        return self._unix_ns

    def monotonic_s(self) -> float:
        """Return the seconds advanced so far."""
        return self._monotonic_ns / 1_000_000_000

    def advance(self, seconds: float) -> None:
        """Move both clocks forward by ``seconds``."""
        step_ns = round(seconds * 1_000_000_000)
        self._unix_ns += step_ns
        self._monotonic_ns += step_ns

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, as an operator or NTP does."""
        self._unix_ns += round(seconds * 1_000_000_000)


def at_unix_ns(unix_ns: int) -> datetime:
    """Return a time in UTC with microseconds; times that a datetime cannot hold become its first or last one."""
    try:
        return EPOCH + timedelta(microseconds=unix_ns // 1000)
    except OverflowError:
        return (datetime.max if unix_ns > 0 else datetime.min).replace(tzinfo=UTC)
