"""The acker: writes what came of tasks, many in one round trip.

Wakes: when results are there; it flushes at 500 of them, 2 ms after the first, or when the pool runs dry. Writes: done,
completed, retry, archived, pending of its queues, and takes the tasks off active and lease. What Redis failed to take
goes to the syncer. If it dies: tasks stay held and leased until it is back.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from fastq.broker.operations.finish import Finish
from fastq.errors import BrokerConnectionError, BrokerError
from fastq.server.actors.actor import Actor
from fastq.server.commands import Commands
from fastq.server.inflight._results import live
from fastq.server.inflight.batches import Writer
from fastq.server.inflight.holdings import Holdings
from fastq.server.inflight.result import Result
from fastq.server.trouble import is_everybodys

__all__ = ["Acker", "Result"]

FLUSH_AT: Final = 500
FLUSH_AFTER_S: Final = 0.002


class Acker(Actor):
    """Gather results and flush them."""

    name = "acker"

    def __init__(self, commands: Commands, holdings: Holdings) -> None:
        super().__init__()
        self._commands = commands
        self._stall = holdings.stall
        self._held = holdings.held
        self._owner = holdings.owner
        self._clock = holdings.clock
        self._waiting: list[Result] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_outage = False
        self._under_way: list[list[Result]] = []
        self.failed: list[Result] = []
        self.on_failed: Callable[[], None] = lambda: None

    def first_tick_after_s(self) -> None:
        """Wait for the first result."""

    def add(self, results: list[Result], *, pool_is_dry: bool) -> None:
        """Take results to be written soon; at once when nothing more will come for now."""
        self._waiting += results
        if pool_is_dry or len(self._waiting) >= FLUSH_AT:
            self.wake()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self.wake)

    async def tick(self) -> None:
        """Write everything that waits, in one round trip."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        results, self._waiting = self._waiting, []
        if results:
            # Work that was done is written whoever holds the lease, unless this process may have slept through it.
            await self.write(results, checks_done=self._stall.suspect)

    def write_again(self, results: list[Result]) -> None:
        """Leave results to the syncer, which writes them soon if nothing is in doubt about their tasks."""
        self.failed += results
        self.on_failed()

    def tasks(self) -> set[object]:
        """Return the tasks whose results are to be written."""
        return {result.task for results in (self._waiting, self.failed, *self._under_way) for result in results}

    async def flush(self) -> None:
        """Write what waits now; for the shutdown, after the loop of ticks has ended."""
        await self.tick()

    async def write(self, results: list[Result], *, checks_done: bool) -> None:
        """Write results; those whose write failed for want of Redis are added to ``failed``.

        With ``checks_done`` work that was done, too, is written only while the lease is ours.

        What became of a task that was let go of is not written: it is another's to say.
        """
        held = live(results)
        self._under_way.append(held)
        try:
            await self._write(held, checks_done=checks_done)
        finally:
            self._under_way.remove(held)

    async def _write(self, held: list[Result], *, checks_done: bool) -> None:
        try:
            writer = Writer(self._held, self._owner, self._clock.unix_ns(), checks_done=checks_done)
            batches = writer.batches(held)
            outcomes = await self._commands.run_many([batch.operation for batch in batches])
        except asyncio.CancelledError:
            self._keep(held, BrokerConnectionError("given up on the way", maybe_applied=True))
            raise
        except Exception as error:
            # A defect; what it is about must not be held for ever.
            self._keep(held, BrokerError(f"a defect: {error!r}", maybe_applied=True))
            raise
        for batch, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                if not self._is_outage:
                    self._log.warning("%d results wait for Redis: %s", len(batch.results), outcome)
                    self._is_outage = True
                self._keep(batch.results, outcome)
            else:
                self._settle(batch.results, outcome)
        if self._is_outage and not self.failed:
            self._is_outage = False
            self._log.info("no result waits for Redis any more")

    def _keep(self, results: list[Result], error: BrokerError) -> None:
        for result in results:
            if error.maybe_applied:
                self._held.doubt(result.task)
            if not is_everybodys(error):
                result.task.refuse(error)
        self.write_again(results)

    def _settle(self, results: list[Result], outcomes: Sequence[Finish]) -> None:
        if outcomes.count(Finish.OK) == len(outcomes):
            self._held.drop_all(results)
            return
        for result, outcome in zip(results, outcomes, strict=True):
            task = result.task
            # What is not there any more was written by the try that had no reply.
            if outcome is not Finish.OK and task.held and not task.in_doubt:
                self._log.warning(
                    "task %s of queue %s was lost before its outcome was written (%s): its lease had ended",
                    task.id,
                    task.queue,
                    outcome.name.lower(),
                )
            self._held.drop(task)
