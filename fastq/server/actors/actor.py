"""What every actor of the server shares: start, stop, a rhythm, and back-off after errors.

An actor is a loop around one ``tick``. It wakes when its interval is over or when ``wake`` is called. An outage of
Redis is logged once for all actors, and once when it is over; ticks continue with growing pauses. Any other error is a
defect: it is logged with its traceback, and the actor continues, so that one actor does not stop another. The watchdog
uses ``why_stuck`` and ``restart``.
"""

import asyncio
import logging
from collections.abc import Sequence
from math import inf

from fastq.broker.transport.end_task import end_task
from fastq.errors import BrokerError
from fastq.server.base.outage import MAX_BACKOFF_S, Outage, backoff_s, is_shared

TICK_LIMIT_S = 90.0
"""Longer than any request to Redis may take, including the time for the requests queued before it."""
RESTART_WITHIN_S = 1.0
MOST_IDS_LOGGED = 10
SAME_TIME_S = 1e-6
"""A timer may fire a little early."""


def first_of(ids: Sequence[str]) -> str:
    """Return the first ids of a possibly long list, for a log line."""
    return ", ".join([*ids[:MOST_IDS_LOGGED], *(["…"] if len(ids) > MOST_IDS_LOGGED else [])])


class Actor:
    """An actor, which runs ``tick`` repeatedly until stopped; subclasses define a tick and the pause after it."""

    name = "actor"
    tick_limit_s: float | None = TICK_LIMIT_S
    """The time that a tick may take without progress; None for a tick that may wait forever."""
    logs_outages = True
    longest_backoff_s = MAX_BACKOFF_S
    """The longest pause after a failed tick."""

    def __init__(self, outage: Outage) -> None:
        self._log = logging.getLogger(f"fastq.{self.name}")
        self._is_woken = False
        self._sleeping: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = inf
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._finishing = False
        self._is_ticking = False
        self._got_on_s = 0.0
        self.outage = outage
        self.ticks = 0

    async def tick(self) -> float | None:
        """Do the work once; return the seconds until the next tick, None to wait until woken."""
        raise NotImplementedError

    def first_tick_after_s(self) -> float | None:
        """Return the seconds before the first tick: 0 unless overridden, None to wait until woken."""
        return 0.0

    def start(self) -> None:
        """Begin on the running loop."""
        self.outage.retries[self] = self.try_again
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name=f"fastq {self.name}")

    def wake(self) -> None:
        """Let the next tick begin now, or right after the current one."""
        self._is_woken = True
        if self._sleeping is not None and not self._sleeping.done():
            self._sleeping.set_result(None)

    async def wind_down(self, within_s: float) -> None:
        """Start no further tick, and wait for the current tick, at most ``within_s`` seconds."""
        self._finishing = True
        self.wake()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=within_s)

    def try_again(self) -> None:
        """End the pause after a failed tick."""
        if self._failures:
            self.wake()

    async def finish(self, within_s: float) -> None:
        """End after the current tick, or in the middle of the tick once ``within_s`` seconds are over.

        For actors whose ticks hold replies of Redis: a canceled tick would lose these replies.
        """
        await self.wind_down(within_s)
        await self.stop()

    async def stop(self) -> None:
        """End, even in the middle of a tick; may be called twice."""
        self._finishing = True
        self.outage.retries.pop(self, None)
        if self._task is not None:
            await end_task(self._task)
            self._task = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.outage.clear(self)

    def get_on(self) -> None:
        """Report progress, for a tick that takes long because it has much to do."""
        self._got_on_s = asyncio.get_running_loop().time()

    def why_stuck(self) -> str:
        """Return why this actor is stuck; "" if it seems healthy."""
        if self._task is None or self._finishing:
            return ""
        if self._task.done():
            error = None if self._task.cancelled() else self._task.exception()
            return f"its task has died ({error!r})" if error else "its task has died"
        still_s = asyncio.get_running_loop().time() - self._got_on_s
        if self._is_ticking and self.tick_limit_s is not None and still_s > self.tick_limit_s:
            return f"it has made no progress for {still_s:.0f} s"
        return ""

    async def restart(self) -> None:
        """Restart; a loop that does not end within a second of its cancellation is abandoned."""
        old, self._task = self._task, None
        if old is not None:
            old.cancel()
            await asyncio.wait({old}, timeout=RESTART_WITHIN_S)
        if not self._finishing:
            self.start()

    async def _run(self) -> None:
        this = self._task
        await self._sleep(self.first_tick_after_s())
        while not self._finishing and self._task is this:
            self._is_woken = False
            self._is_ticking = True
            self.get_on()
            pause_s = await self._guarded_tick()
            self._is_ticking = False
            self.ticks += 1
            if not self._finishing:
                await self._sleep(pause_s)

    async def _guarded_tick(self) -> float | None:
        try:
            pause_s = await self.tick()
        except BrokerError as error:
            self._note_outage(error)
            return self._backoff_s()
        except Exception:  # noqa: BLE001 - a defect in one actor must not stop the others
            self._log.exception("unexpected error in the %s; continuing", self.name)
            return self._backoff_s()
        self._note_success()
        return pause_s

    def _note_outage(self, error: BrokerError) -> None:
        if (self.logs_outages or not is_shared(error)) and self.outage.report(self, error):
            self._log.warning("%s; trying again until it works", error)

    def _note_success(self) -> None:
        self._failures = 0
        if failures := self.outage.clear(self):
            self._log.info("Redis operations succeed again after %d failed attempts", failures)

    def _backoff_s(self) -> float:
        self._failures += 1
        return min(self.longest_backoff_s, backoff_s(self._failures))

    async def _sleep(self, seconds: float | None) -> None:
        if self._is_woken or (seconds is not None and seconds <= 0):
            return
        self._due_s = inf
        if seconds is not None:
            self._due_s = self._loop.time() + seconds
            if self._timer is None or self._timer.when() > self._due_s:
                self._ring_at(self._due_s)
        self._sleeping = self._loop.create_future()
        try:
            await self._sleeping
        finally:
            self._sleeping = None

    def _ring_at(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._ring)

    def _ring(self) -> None:
        """Wake the actor if its pause is over.

        The timer may belong to an earlier pause, since a pause that ends early does not cancel its timer.
        """
        self._timer = None
        if self._sleeping is None:
            return
        if self._loop.time() >= self._due_s - SAME_TIME_S:
            self.wake()
        elif self._due_s < inf:
            self._ring_at(self._due_s)


async def stop_all(*actors: Actor) -> None:
    """Stop actors, all at once."""
    await asyncio.gather(*(actor.stop() for actor in actors))
