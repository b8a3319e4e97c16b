"""The syncer: writes again what Redis failed to take, until the lease of the task has run out.

Wakes: a second after the acker kept a result that it could not write. Each write checks the owner, and "not there any
more" after a try of ours that had no reply is success. If it dies: the tasks are recovered after their leases, and run
again.
"""

import asyncio

from fastq.broker.finish import Guard
from fastq.server.acker import Acker
from fastq.server.actor import Actor
from fastq.server.holdings import Holdings
from fastq.server.result import Result

__all__ = ["Syncer"]

INTERVAL_S = 1.0


class Syncer(Actor):
    """Retry failed writes of the acker."""

    name = "syncer"

    def __init__(self, acker: Acker, holdings: Holdings) -> None:
        super().__init__()
        self._acker = acker
        self._held = holdings.held
        self._owner = holdings.owner
        self._clock = holdings.clock
        self._timer: asyncio.TimerHandle | None = None
        acker.on_failed = self._take_note

    def _take_note(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self.wake)

    def first_tick_after_s(self) -> None:
        """Wait for the first failed write."""

    async def tick(self) -> None:
        """Try every failed write once more; what fails again asks for the next tick."""
        self._timer = None
        results, self._acker.failed = self._acker.failed, []
        alive = [result for result in results if self._is_alive(result)]
        if alive:
            await self._acker.write(alive, Guard(self._owner))

    def _is_alive(self, result: Result) -> bool:
        if result.task.leased_until_s > self._clock.monotonic_s():
            return True
        self._held.drop(result.task)
        self._log.error(
            "the outcome of task %s of queue %s could not be written before its lease ended; it will run again",
            result.task.id,
            result.task.queue,
        )
        return False
