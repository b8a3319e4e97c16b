"""The recoverer: brings back the tasks of dead servers, and repairs what they left behind.

Wakes: at start and every 30 s; twice per heartbeat while Redis has not answered for long enough (``redis_steadiness``).
Reads: leases that ended 30 s ago or earlier. Writes: the fates of those tasks (``lost_tasks``). It repairs ids without
lease or task and leases without task, and counts all repairs. It cleans up what dead servers left of groups
(``reclaimer``). It puts back tasks that were enqueued by key during a run, if that run ended on a server that did not
do so, such as Go's. If it dies: another server's recoverer does the same. Go's does so only for what asynq has, and
charges an attempt.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from fastq.broker.operations.finish import Guard
from fastq.broker.operations.keyed import count_again, list_again, put_again
from fastq.broker.operations.lease import LeaseList, list_leases
from fastq.broker.operations.repair import repair_active, repair_lease
from fastq.common.clock import Moment
from fastq.errors import BrokerError
from fastq.server.actors.actor import Actor
from fastq.server.actors.lost_tasks import LostTasks
from fastq.server.actors.redis_steadiness import Answers
from fastq.server.base.commands import Commands
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.stats import RepairKind, Repairs, describe_repairs

BATCH: Final = 100
STRETCH: Final = 500
CAUSE: Final = "their server died or is cut off from Redis"

Reclaim: TypeAlias = Callable[[str, Callable[[], None]], Awaitable[None]]
"""Handles the groups of a queue; its argument is called at each step, because the work may take long."""


class Recoverer(Actor):
    """The actor that recovers expired leases of every queue."""

    name = "recoverer"

    def __init__(
        self,
        commands: Commands,
        queues: Sequence[str],
        in_flight: InFlight,
        lost: LostTasks,
        reclaim: Reclaim | None,
    ) -> None:
        super().__init__(in_flight.stats.outage)
        self._commands = commands
        self._queues = queues
        self._tasks = in_flight.tasks
        self._clock = in_flight.clock
        self._timing = in_flight.timing
        self._lost = lost
        self._reclaim = reclaim
        self._answers = Answers(self._clock, self._timing)
        self._next_round_s = self._clock.monotonic_s()
        self._repairs = in_flight.stats.repairs
        self._done: Repairs = Repairs()

    async def tick(self) -> float:
        """Go through all queues; a failure in one does not stop its other work, or the other queues.

        Between two rounds, only leases are read, and only of queues about which Redis has not answered for long enough.
        """
        now_s = self._clock.monotonic_s()
        is_round = now_s >= self._next_round_s
        failure: Exception | None = None
        for queue in self._queues:
            cares = (
                (self._repair_active, self._recover, self._reclaim_groups, self._put_again)
                if is_round
                else (self._recover_if_unsteady,)
            )
            for care in cares:
                try:
                    await care(queue)
                except Exception as error:  # noqa: BLE001 - raised below, after all had their turn
                    failure = error
            self._log_and_count(queue)
        if failure is not None:
            raise failure
        if is_round:
            self._next_round_s = now_s + self._timing.recoverer_interval_s
        pause_s = max(0.0, self._next_round_s - self._clock.monotonic_s())
        if all(map(self._answers.are_steady, self._queues)):
            return pause_s
        return min(pause_s, self._timing.heartbeat_interval_s / 2)  # so that a late look does not count as a gap

    def _log_and_count(self, queue: str) -> None:
        done, self._done = +self._done, Repairs()
        self._repairs.update(done)
        if done:
            self._log.warning("queue %s: %s", queue, describe_repairs(done))

    async def _put_again(self, queue: str) -> None:
        """Put back tasks that were enqueued by key during a run, if the run's server did not: Go's or a dead one."""
        moved = await self._commands.run(count_again(queue)) > 0
        while moved:
            self.get_on()
            ids = await self._commands.run(list_again(queue))
            moved = bool(ids) and await self._commands.run(put_again(queue, ids, self._clock.unix_ns())) > 0

    async def _reclaim_groups(self, queue: str) -> None:
        if self._reclaim is not None:
            await self._reclaim(queue, self.get_on)

    async def _recover_if_unsteady(self, queue: str) -> None:
        if not self._answers.are_steady(queue):
            await self._recover(queue)

    async def _recover(self, queue: str) -> None:
        while True:
            self.get_on()
            cutoff_s = self._clock.unix_ns() // 1_000_000_000 - self._timing.recover_grace_s
            may_take = self._answers.are_steady(queue)
            expired = await self._look(queue, cutoff_s, BATCH if may_take else 0)
            self._done[RepairKind.NO_TASK] += expired.dangling
            if not self._answers.are_steady(queue):
                return
            # Our own tasks are left out: after a long outage their leases have expired, too, and the heartbeater
            # extends them.
            others = [
                (task, lost)
                for task, lost in zip(expired.tasks, expired.lost, strict=True)
                if self._tasks.get(queue, task.id) is None
            ]
            moved = 0
            if others:
                put = await self._lost.put(queue, others, Guard(expired_at=cutoff_s), CAUSE, self.get_on)
                moved = put.moved + await self._repair_astray(queue, put.astray, cutoff_s)
            # A list is bounded in bytes, too, so a short list need not be the last. The last list is empty, or no task
            # in it can be moved.
            if may_take and not moved and not expired.dangling:
                return

    async def _look(self, queue: str, cutoff_s: int, most: int) -> LeaseList:
        """List leases that ended up to a time, and note whether Redis has answered."""
        asked = Moment.now(self._clock)
        try:
            found = await self._commands.run(list_leases(queue, "-inf", str(cutoff_s), most))
        except BrokerError:
            self._answers.note_failure(queue)
            raise
        self._answers.note(queue, asked)
        return found

    async def _repair_astray(self, queue: str, astray: Sequence[str], cutoff_s: int) -> int:
        """Repair the leases of tasks that are not active; return the number of repairs."""
        repaired = 0
        while astray:
            self.get_on()
            done = await self._commands.run(repair_lease(queue, astray, cutoff_s, self._clock.unix_ns()))
            self._done[RepairKind.NOT_ACTIVE] += done.repaired
            repaired += done.repaired
            astray = astray[done.looked_at :]
        return repaired

    async def _repair_active(self, queue: str) -> None:
        start = 0
        while True:
            self.get_on()
            now_s = self._clock.unix_ns() // 1_000_000_000
            found = await self._commands.run(repair_active(queue, start, STRETCH, now_s))
            self._done[RepairKind.NO_LEASE] += found.leased
            self._done[RepairKind.NO_TASK] += found.dropped
            if found.looked_at < STRETCH:
                return
            start += STRETCH - found.dropped
