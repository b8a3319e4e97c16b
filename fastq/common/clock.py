"""Time for all of fastq: wall time for stored times, monotonic time for differences."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol, Self

EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Clock(Protocol):
    """A source of time. Everything that waits or takes timestamps gets one, so that tests need not sleep."""

    def unix_ns(self) -> int:
        """Return wall time in nanoseconds since the Unix epoch."""

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""


class Moment(NamedTuple):
    """A point in time on both clocks. The monotonic clock stands still while the machine is suspended."""

    monotonic_s: float
    unix_ns: int

    @classmethod
    def now(cls, clock: Clock) -> Self:
        """Return the present moment."""
        return cls(clock.monotonic_s(), clock.unix_ns())

    def until(self, later: "Moment") -> float:
        """Return the seconds from this moment to a later one; the larger number if the clocks differ about it."""
        return max(later.monotonic_s - self.monotonic_s, (later.unix_ns - self.unix_ns) / 1e9)


class SystemClock:
    """The machine's clocks."""

    unix_ns = staticmethod(time.time_ns)
    monotonic_s = staticmethod(time.monotonic)


def at_unix_ns(unix_ns: int) -> datetime:
    """Return a time in UTC with microseconds; a time beyond the range of datetime becomes the range's nearest end."""
    try:
        return EPOCH + timedelta(microseconds=unix_ns // 1000)
    except OverflowError:
        return (datetime.max if unix_ns > 0 else datetime.min).replace(tzinfo=UTC)
