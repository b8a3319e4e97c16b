"""The syncer: writes again what Redis failed to take, until it is written or another server has the task.

Wakes: a second after the acker kept a result that it could not write. Each write checks the owner, and "not there any
more" after a try of ours that had no reply is success. A lease that has ended is still ours until a recoverer takes the
task, and no recoverer can while Redis is away: results are kept however long that lasts. They are no more than the
tasks that were held when it began, since nothing is fetched meanwhile. What Redis refuses for good ends with the lease
that the task had then. If it dies: the tasks are recovered after their leases, and run again.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from fastq.server.actors.acker import Acker
from fastq.server.actors.actor import Actor
from fastq.server.inflight.held import HeldTask
from fastq.server.inflight.holdings import Holdings

__all__ = ["Syncer"]

INTERVAL_S = 1.0
MOST_IDS_SAID: Final = 10


class Syncer(Actor):
    """Retry failed writes of the acker."""

    name = "syncer"

    def __init__(self, acker: Acker, holdings: Holdings) -> None:
        super().__init__()
        self._acker = acker
        self._held = holdings.held
        self._clock = holdings.clock
        self._timer: asyncio.TimerHandle | None = None
        self.may_bring: Callable[[str], bool] = lambda queue: False
        acker.on_failed = self._take_note

    def _take_note(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S * random.uniform(0.75, 1.25), self.wake)

    def first_tick_after_s(self) -> None:
        """Wait for the first failed write."""

    async def tick(self) -> None:
        """Try every failed write once more; what fails again asks for the next tick."""
        self._timer = None
        tasks, self._acker.failed = self._acker.failed, []
        now_s = self._clock.monotonic_s()
        alive = [task for task in tasks if task.is_writable(now_s)]
        self._give_up([task for task in tasks if not task.is_writable(now_s)])
        ready = [task for task in alive if not self._is_early(task)]
        if len(ready) < len(alive):
            self._acker.failed += [task for task in alive if self._is_early(task)]
            self._take_note()
        if ready:
            await self._acker.write(ready, checks_done=True)

    def _is_early(self, task: HeldTask) -> bool:
        """Tell whether a task whose end is in doubt may have come back, with our mark, without our knowing.

        Written now, the end of this run would be that of the next one.
        """
        return task.in_doubt and self.may_bring(task.queue)

    def _give_up(self, tasks: Sequence[HeldTask]) -> None:
        """Let go of tasks whose outcome Redis refuses, and say so once for each queue and reason."""
        by_reason: defaultdict[tuple[str, str], list[HeldTask]] = defaultdict(list)
        for task in tasks:
            if task.held:
                by_reason[task.queue, str(task.refused)].append(task)
                self._held.drop(task)
        for (queue, why), given_up in by_reason.items():
            ids = ", ".join(task.id for task in given_up[:MOST_IDS_SAID])
            self._log.error(
                "queue %s: Redis refused the outcome of %d tasks until their leases ended: %s; "
                "they count as lost once a recoverer takes them: %s%s",
                queue,
                len(given_up),
                why,
                ids,
                ", …" if len(given_up) > MOST_IDS_SAID else "",
            )
