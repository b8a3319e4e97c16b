"""The acker: writes how tasks ended, many in one round trip.

Wakes: when tasks have ended; it flushes at 500 of them, 2 ms after the first, or when the pool runs dry. Writes: done,
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
from fastq.server.inflight._held import HeldTask, live
from fastq.server.inflight.batches import Writer
from fastq.server.inflight.holdings import Holdings
from fastq.server.trouble import is_everybodys

__all__ = ["Acker"]

FLUSH_AT: Final = 500
FLUSH_AFTER_S: Final = 0.002


class Acker(Actor):
    """Gather tasks that have ended, and write their ends."""

    name = "acker"

    def __init__(self, commands: Commands, holdings: Holdings) -> None:
        super().__init__()
        self._commands = commands
        self._stall = holdings.stall
        self._held = holdings.held
        self._owner = holdings.owner
        self._clock = holdings.clock
        self._waiting: list[HeldTask] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_outage = False
        self._under_way: list[list[HeldTask]] = []
        self.failed: list[HeldTask] = []
        self.on_failed: Callable[[], None] = lambda: None

    def first_tick_after_s(self) -> None:
        """Wait for the first task."""

    def add(self, tasks: list[HeldTask], *, pool_is_dry: bool) -> None:
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
            # Work that was done is written whoever holds the lease, unless this process may have slept through it.
            await self.write(tasks, checks_done=self._stall.suspect)

    def write_again(self, tasks: list[HeldTask]) -> None:
        """Leave ends to the syncer, which writes them soon if nothing is in doubt about their tasks."""
        self.failed += tasks
        self.on_failed()

    def tasks(self) -> set[object]:
        """Return the tasks whose ends are to be written."""
        return {task for tasks in (self._waiting, self.failed, *self._under_way) for task in tasks}

    async def flush(self) -> None:
        """Write what waits now; for the shutdown, after the loop of ticks has ended."""
        await self.tick()

    async def write(self, tasks: list[HeldTask], *, checks_done: bool) -> None:
        """Write the ends of tasks; those whose write failed for want of Redis are added to ``failed``.

        With ``checks_done`` work that was done, too, is written only while the lease is ours.

        What became of a task that was let go of is not written: it is another's to say.
        """
        held = live(tasks)
        self._under_way.append(held)
        try:
            await self._write(held, checks_done=checks_done)
        finally:
            self._under_way.remove(held)

    async def _write(self, held: list[HeldTask], *, checks_done: bool) -> None:
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
                    self._log.warning("%d results wait for Redis: %s", len(batch.tasks), outcome)
                    self._is_outage = True
                self._keep(batch.tasks, outcome)
            else:
                self._settle(batch.tasks, outcome)
        if self._is_outage and not self.failed:
            self._is_outage = False
            self._log.info("no result waits for Redis any more")

    def _keep(self, tasks: list[HeldTask], error: BrokerError) -> None:
        for task in tasks:
            if error.maybe_applied:
                self._held.doubt(task)
            if not is_everybodys(error):
                task.refuse(error)
        self.write_again(tasks)

    def _settle(self, tasks: list[HeldTask], outcomes: Sequence[Finish]) -> None:
        if outcomes.count(Finish.OK) == len(outcomes):
            self._held.drop_all(tasks)
            return
        for task, outcome in zip(tasks, outcomes, strict=True):
            # What is not there any more was written by the try that had no reply.
            if outcome is not Finish.OK and task.held and not task.in_doubt:
                self._log.warning(
                    "task %s of queue %s was lost before its outcome was written (%s): its lease had ended",
                    task.id,
                    task.queue,
                    outcome.name.lower(),
                )
            self._held.drop(task)
