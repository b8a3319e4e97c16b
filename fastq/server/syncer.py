"""The syncer: writes again what Redis failed to take, until the lease of the task has run out.

Wakes: when the acker hands it results, then every second. Each write checks the owner, and "not there any more" after
an earlier try of ours is success. If it dies: the tasks are recovered after their leases, and run again.
"""

from fastq.broker.finish import Guard
from fastq.server.acker import Acker, Result
from fastq.server.actor import Actor
from fastq.server.holdings import Holdings

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

    def wake(self) -> None:
        """End the wait for failed writes, too."""
        self._acker.on_failed.set()
        super().wake()

    async def tick(self) -> float | None:
        """Try every failed write once more."""
        if not self._acker.failed:
            self._acker.on_failed.clear()
            await self._acker.on_failed.wait()
            return INTERVAL_S
        results, self._acker.failed = self._acker.failed, []
        alive = [result for result in results if self._is_alive(result)]
        if alive:
            await self._acker.write(alive, Guard(self._owner), again=True)
        return INTERVAL_S if self._acker.failed else 0.0

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
