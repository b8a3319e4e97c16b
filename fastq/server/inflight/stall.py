"""Detects that this process was suspended for so long that other servers may have its leases.

A frozen process (SIGSTOP, a suspended machine, swapping) wakes and still believes that its leases are valid. A ticker
on the loop notices the gap; the beacon notes a sign that failed. A late sign counts like a failed one, because while
the network is cut a sign takes long to fail. Until the leases have been extended again, every write checks the owner.
"""

import asyncio
from collections import deque
from math import inf
from typing import Final

from fastq.common.clock import Clock, Moment
from fastq.server.base.timing import STANDARD
from fastq.server.inflight.tally import Histogram

TICKS_A_STALL: Final = 5
TICKS_REMEMBERED: Final = 60
LAG_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class StallWatch:
    """Watches the event loop by both clocks, because the monotonic clock stops while the machine is suspended."""

    def __init__(self, clock: Clock, stall_s: float = STANDARD.stall_s) -> None:
        self._clock = clock
        self._stall_s = stall_s
        self._tick_s = stall_s / TICKS_A_STALL
        self._alive = Moment.now(clock)
        self._beat_s = self._alive.monotonic_s
        self._stalled = False
        self._noticed_s = 0.0
        self._awake_since_s = -inf
        self._sign: tuple[Moment, float] | None = None
        self._lags_s: deque[float] = deque(maxlen=TICKS_REMEMBERED)
        self.lags_s = Histogram(LAG_BOUNDS_S)
        """The delays of the loop since the start."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin on the running loop."""
        self._beat_s = self._clock.monotonic_s()
        self._schedule()

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self.beat)

    def beat(self) -> None:
        """Note the delay of the loop; the ticker calls this."""
        self.look()
        lag_s = max(0.0, self._alive.monotonic_s - self._beat_s - self._tick_s)
        self._lags_s.append(lag_s)
        self.lags_s.observe(lag_s)
        self._beat_s = self._alive.monotonic_s
        self._schedule()

    def look(self) -> None:
        """Note that the loop runs, and whether it was stalled before."""
        now = Moment.now(self._clock)
        is_silent = self._sign is not None and self._sign[0].until(now) > self._sign[1]
        was_asleep = self._alive.until(now) > self._stall_s
        if was_asleep:
            self._awake_since_s = now.monotonic_s
        if is_silent or was_asleep:
            self.doubt()
        self._alive = now

    def signed(self, asked: Moment, good_for_s: float) -> None:
        """Note when the last sign of life was given, and for how long others surely leave the leases alone after it."""
        self._sign = asked, good_for_s

    def forget_sign(self) -> None:
        """Note that Redis has refused the first sign, so that no other server knows this one."""
        self._sign = None

    @property
    def awake_since_s(self) -> float:
        """Return since when (monotonic) this process has run without a stall."""
        self.look()
        return self._awake_since_s

    @property
    def suspect(self) -> bool:
        """Return whether leases may have been lost unnoticed."""
        self.look()
        return self._stalled

    def doubt(self) -> None:
        """Note that leases may be lost from now on, until they are confirmed."""
        self._stalled = True
        self._noticed_s = self._clock.monotonic_s()

    def leases_confirmed(self, since_s: float) -> None:
        """Note that a check begun at ``since_s`` (monotonic) found the leases ours; an older stall is over."""
        self.look()
        if since_s >= self._noticed_s:
            self._stalled = False

    @property
    def lag_s(self) -> float:
        """Return the longest delay of the loop in the last 60 ticks (a minute), in seconds."""
        return max(self._lags_s, default=0.0)
