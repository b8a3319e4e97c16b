"""The watchdog: restarts an actor whose coroutine died, or that has been in one tick for too long.

It also logs how many troubles with Redis were not logged, because there were too many.

Wakes: every 5 s. Reads: the progress of the other actors. If it dies: a hanging actor keeps hanging.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from fastq.server.actors.actor import Actor
from fastq.server.base.outage import MOST_TOLD
from fastq.server.base.timing import Timing
from fastq.server.inflight.stats import ServerStats

LATE: Final = 2.0
"""A check this many intervals after the last one means that the whole process was suspended, not just one actor."""


class Watchdog(Actor):
    """The actor that watches over other actors."""

    name = "watchdog"

    def __init__(self, actors: Sequence[Actor], timing: Timing, stats: ServerStats) -> None:
        super().__init__(stats.outage)
        self._actors = actors
        self._interval_s = timing.watchdog_interval_s
        self._looked_s: float | None = None
        self._stats = stats

    async def tick(self) -> float:
        """Check each actor, and restart those without progress."""
        now_s = asyncio.get_running_loop().time()
        stood_still = self._looked_s is not None and now_s - self._looked_s > LATE * self._interval_s
        self._looked_s = now_s
        for actor in self._actors:
            if stood_still:
                actor.get_on()
            elif why := actor.why_stuck():
                self._log.error("restarting the %s: %s", actor.name, why)
                self._stats.restarts[actor.name] += 1
                await actor.restart()
        self._tell_untold(self.outage.take_untold())
        return self._interval_s

    async def stop(self) -> None:
        """End, even in the middle of a tick."""
        await super().stop()
        self._tell_untold(self.outage.take_untold(at_once=True))

    def _tell_untold(self, count: int) -> None:
        if count:
            text = "%d more troubles with Redis were soon over, and not logged: more than %d a minute"
            self._log.warning(text, count, MOST_TOLD)
