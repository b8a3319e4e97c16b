"""The recoverer: brings back the tasks of dead servers, and mends what such a death leaves.

Wakes: at start and every 30 s. Reads: leases that ended 30 s ago or earlier. Writes: those tasks to retry, or to
archived if they are out of retries; ids without lease or task, and leases without task, are mended, and all is counted;
what dead servers left of groups is seen to (``reclaimer``). If it dies: another server's recoverer does the same (Go's
only what it knows of).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from fastq.broker.finish import Finish, Guard, Retried, archive, retry
from fastq.broker.lease import LeasedTask, list_leases
from fastq.broker.repair import repair_active, repair_lease
from fastq.clock import Clock
from fastq.codec import rewrite_task_message
from fastq.errors import InvalidMessageError
from fastq.info import at_unix_ns
from fastq.server.actor import Actor
from fastq.server.commands import Commands
from fastq.server.held import view_leased
from fastq.server.outcomes import Archived, undecodable
from fastq.server.repairs import Repair, Repairs, describe
from fastq.server.timing import STANDARD, Timing
from fastq.worker.report import FailureReport

__all__ = ["Recoverer"]

BATCH: Final = 100
STRETCH: Final = 500
LEASE_EXPIRED: Final = "asynq: task lease expired"
DEFAULT_REPORT: Final = FailureReport(LEASE_EXPIRED)

Judge: TypeAlias = Callable[[bytes], Awaitable[FailureReport | None]]


class Recoverer(Actor):
    """Recover expired leases of every queue."""

    name = "recoverer"

    def __init__(
        self,
        commands: Commands,
        queues: Sequence[str],
        retry_delay_s: Callable[[int], float],
        clock: Clock,
        timing: Timing = STANDARD,
    ) -> None:
        super().__init__()
        self.judge: Judge | None = None
        self.reclaim: Callable[[str], Awaitable[None]] | None = None
        self.is_held: Callable[[str, str], bool] = lambda queue, task_id: False
        self._timing = timing
        self._commands = commands
        self._queues = queues
        self._retry_delay_s = retry_delay_s
        self._clock = clock
        self.repairs: Repairs = Repairs()
        self._done: Repairs = Repairs()

    @property
    def recovered(self) -> int:
        """Return how many tasks were brought back whose leases had ended."""
        return self.repairs[Repair.RECOVERED]

    @property
    def mended(self) -> int:
        """Return how many ids and leases were mended."""
        return self.repairs.total() - self.recovered

    async def tick(self) -> float:
        """Go through all queues; what fails in one does not keep the rest of it, or the others, waiting."""
        failure: Exception | None = None
        for queue in self._queues:
            for care in (self._mend_active, self._recover, self.reclaim):
                try:
                    if care is not None:
                        await care(queue)
                except Exception as error:  # noqa: BLE001 - raised below, once all had their turn
                    failure = error
            self._say_and_count(queue)
        if failure is not None:
            raise failure
        return self._timing.recoverer_interval_s

    def _say_and_count(self, queue: str) -> None:
        done, self._done = +self._done, Repairs()
        if done:
            self._log.warning("queue %s: %s", queue, describe(done))
            self.repairs.update(done)

    async def _recover(self, queue: str) -> None:
        while True:
            self.get_on()
            cutoff_s = self._clock.unix_ns() // 1_000_000_000 - self._timing.recover_grace_s
            expired = await self._commands.run(list_leases(queue, "-inf", str(cutoff_s), BATCH))
            self._done[Repair.NO_TASK] += expired.ghosts
            # After a long outage our own leases have ended, too: the heartbeater is about to extend them.
            others = [task for task in expired.tasks if not self.is_held(queue, task.id)]
            moved = await self._move(queue, others, cutoff_s) if others else 0
            # A list is bounded in bytes, too: only one that brought nothing, or nothing that can be moved, is the last.
            if not moved and not expired.ghosts:
                return

    async def _move(self, queue: str, expired: Sequence[LeasedTask], cutoff_s: int) -> int:
        now_ns = self._clock.unix_ns()
        retries, dead = await self._sorted(queue, expired, now_ns // 1_000_000_000)
        guard = Guard(expired_at=cutoff_s)
        now = at_unix_ns(now_ns)
        outcomes: list[Finish] = []
        if retries:
            outcomes += await self._commands.run(retry(queue, retries, now, guard))
        if dead:
            outcomes += await self._commands.run(archive(queue, dead, now, guard))
        ids = [task.id for task in retries] + [task_id for task_id, _ in dead]
        recovered = outcomes.count(Finish.OK)
        self._done[Repair.RECOVERED] += recovered
        astray = [task_id for task_id, outcome in zip(ids, outcomes, strict=True) if outcome is Finish.NOT_ACTIVE]
        while astray:
            self.get_on()
            done = await self._commands.run(repair_lease(queue, astray, cutoff_s, now_ns))
            self._done[Repair.NOT_ACTIVE] += done.mended
            recovered += done.mended
            astray = astray[done.looked_at :]
        return recovered

    async def _sorted(
        self, queue: str, expired: Sequence[LeasedTask], now_s: int
    ) -> tuple[list[Retried], list[tuple[str, bytes]]]:
        retries: list[Retried] = []
        dead: list[tuple[str, bytes]] = []
        for task in expired:
            self.get_on()
            try:
                write = await self._write_for(task, now_s)
            except InvalidMessageError as error:
                write = Archived(task.id, undecodable(task.id, queue, task.message, str(error), now_s))
            if isinstance(write, Archived):
                dead.append((write.id, write.message))
            else:
                retries.append(write)
        return retries, dead

    async def _write_for(self, task: LeasedTask, now_s: int) -> Retried | Archived:
        view = view_leased(task)
        will_retry = view.retried < view.retry
        report = await self._judged(task) if will_retry else DEFAULT_REPORT
        message = rewrite_task_message(
            task.message,
            retried=view.retried + 1 if will_retry and report.is_failure else view.retried,
            error_msg=LEASE_EXPIRED,
            last_failed_at=now_s,
        )
        if not will_retry:
            return Archived(task.id, message)
        delay_s = self._retry_delay_s(view.retried) if report.retry_in_s is None else report.retry_in_s
        return Retried(task.id, message, int(now_s + delay_s), report.is_failure)

    async def _judged(self, task: LeasedTask) -> FailureReport:
        """Ask the app's hooks about a task that is tried again; the error handler is not told, as in asynq."""
        report = await self.judge(task.message) if self.judge is not None else None
        return report or DEFAULT_REPORT

    async def _mend_active(self, queue: str) -> None:
        start = 0
        while True:
            self.get_on()
            now_s = self._clock.unix_ns() // 1_000_000_000
            found = await self._commands.run(repair_active(queue, start, STRETCH, now_s))
            self._done[Repair.NO_LEASE] += found.leased
            self._done[Repair.NO_TASK] += found.dropped
            if found.looked_at < STRETCH:
                return
            start += STRETCH - found.dropped
