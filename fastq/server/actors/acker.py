"""The acker: writes how tasks ended, many in one round trip.

Wakes: when tasks have ended; it flushes at 500 of them, 2 ms after the first, or when the pool runs dry. Writes: done,
completed, retry, archived, pending of its queues, and takes the tasks off active and lease. What Redis failed to take
goes to the syncer. If it dies: tasks stay in flight and leased until it is back.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from fastq.server.actors.actor import Actor
from fastq.server.inflight.ack_writer import AckWriter
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.tasks import InFlightTask

__all__ = ["Acker"]

FLUSH_AT: Final = 500
FLUSH_AFTER_S: Final = 0.002


class Acker(Actor):
    """The first write of each end; ``wake_syncer`` is called after it, as it may have failed."""

    name = "acker"

    def __init__(self, writer: AckWriter, in_flight: InFlight, wake_syncer: Callable[[], None]) -> None:
        super().__init__(in_flight.stats.outage)
        self._writer = writer
        self._stall = in_flight.stall
        self._wake_syncer = wake_syncer
        self._waiting: list[InFlightTask] = []
        self._timer: asyncio.TimerHandle | None = None

    def first_tick_after_s(self) -> None:
        """Wait for the first task."""

    def add(self, tasks: list[InFlightTask], *, pool_is_dry: bool) -> None:
        """Take tasks that have ended; write their ends soon, at once when nothing more will come for now."""
        self._waiting += tasks
        if pool_is_dry or len(self._waiting) >= FLUSH_AT:
            self.wake()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self.wake)

    async def tick(self) -> None:
        """Write everything that waits, in one round trip."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks, self._waiting = self._waiting, []
        if tasks:
            try:
                # Work that was done is written whoever holds the lease, unless this process may have slept through it.
                await self._writer.write(tasks, checks_done=self._stall.suspect)
            finally:
                self._wake_syncer()

    def tasks(self) -> set[object]:
        """Return the tasks whose ends are to be written, or are being written."""
        return self._writer.tasks().union(self._waiting)

    async def flush(self) -> None:
        """Write what waits now; for the shutdown, after the loop of ticks has ended."""
        await self.tick()
