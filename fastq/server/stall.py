"""Whether this process stood still for so long that its leases may be others' by now.

A frozen process (SIGSTOP, a suspended machine, swapping) wakes with its old beliefs. A ticker on the loop notices the
gap; until the leases were extended again, every write checks the owner.
"""

import asyncio

from fastq.clock import Clock
from fastq.server.timing import STANDARD

__all__ = ["StallWatch"]

TICKS_A_STALL = 5


class StallWatch:
    """Watch the event loop's pulse; ``lag_s`` is the longest delay since it was last read by ``take_lag_s``."""

    def __init__(self, clock: Clock, stall_s: float = STANDARD.stall_s) -> None:
        self._clock = clock
        self._stall_s = stall_s
        self._tick_s = stall_s / TICKS_A_STALL
        self._last_s = clock.monotonic_s()
        self._stalled = False
        self._lag_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin on the running loop."""
        self._last_s = self._clock.monotonic_s()
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._beat)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self._look()
        self._last_s = self._clock.monotonic_s()
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._beat)

    def _look(self) -> None:
        gap_s = self._clock.monotonic_s() - self._last_s
        self._lag_s = max(self._lag_s, gap_s - self._tick_s)
        self._stalled = self._stalled or gap_s > self._stall_s

    @property
    def suspect(self) -> bool:
        """Tell whether leases may have been lost unnoticed."""
        self._look()
        return self._stalled

    def leases_confirmed(self) -> None:
        """Note that the leases were extended and found ours, with no stall since."""
        if self._clock.monotonic_s() - self._last_s <= self._stall_s:
            self._stalled = False

    def take_lag_s(self) -> float:
        """Return the longest delay of the loop since the last call, in seconds."""
        lag_s, self._lag_s = self._lag_s, 0.0
        return lag_s
