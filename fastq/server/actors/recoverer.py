"""The recoverer: brings back the tasks of dead servers, and repairs what they left behind.

Wakes: at start and every 30 s; twice a beat while Redis has not answered for long enough (``redis_steadiness``). Reads:
leases that ended 30 s ago or earlier. Writes: those tasks to retry, with no attempt charged but counted as lost; to
archived, if they were lost too often or may run once only; ids without lease or task, and leases without task, are
repaired, and all is counted; what dead servers left of groups is seen to (``reclaimer``). If it dies: another server's
recoverer does the same (Go's only what it knows of, and it charges an attempt).
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from fastq.broker.operation import Operation
from fastq.broker.operations.finish import Archived, FinishOutcome, Guard, Retried, archive, retry
from fastq.broker.operations.lease import LeasedTask, LeaseList, list_leases
from fastq.broker.operations.maintain import count_lost
from fastq.broker.operations.repair import repair_active, repair_lease
from fastq.common.clock import Moment, at_unix_ns
from fastq.errors import BrokerError, InvalidMessageError
from fastq.server.actors.actor import Actor, first_of
from fastq.server.actors.redis_steadiness import Answers
from fastq.server.base.commands import Commands
from fastq.server.inflight.dispositions import undecodable
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.stats import RepairKind, Repairs, describe_repairs
from fastq.server.inflight.tally import Tally
from fastq.server.inflight.tasks import view_leased
from fastq.wire.attempts import AttemptRecord
from fastq.wire.codec import clean_text, rewrite_task_message
from fastq.worker.shared.report import FailureReport

__all__ = ["LostTaskRules", "Recoverer"]

BATCH: Final = 100
STRETCH: Final = 500
LEASE_EXPIRED: Final = "asynq: task lease expired"
"""Go's text, with which the error of a lost task begins."""
MAY_RUN_ONCE: Final = "max_retry=0, and whether it had started is not known"

Judge: TypeAlias = Callable[[bytes], Awaitable[FailureReport | None]]
Reclaim: TypeAlias = Callable[[str, Callable[[], None]], Awaitable[None]]
"""Handles the groups of a queue; its argument is called at each step, because the work may take long."""


class LostTaskRules(NamedTuple):
    """The rules for lost tasks."""

    retry_delay_s: Callable[[int], float]
    """Seconds until the next attempt, given the number of retries."""
    max_lost: int
    """How often a task may be lost; then it is archived as poison."""
    judge: Judge | None
    """Asks the app's hooks for the time of a retry; None without such hooks."""
    tally: Callable[[str, str], Tally]
    """Returns what counts the tasks of a queue and type."""


class _LostTask(NamedTuple):
    """The fate of a lost task: a retry at a time, or the archive for a reason."""

    id: str
    message: bytes
    retry_at_s: int = 0
    why_archived: str = ""
    attempt: bytes = b""
    type: str = ""
    """Empty if the message cannot be read."""


class Recoverer(Actor):
    """The actor that recovers expired leases of every queue."""

    name = "recoverer"

    def __init__(
        self,
        commands: Commands,
        queues: Sequence[str],
        in_flight: InFlight,
        rules: LostTaskRules,
        reclaim: Reclaim | None,
    ) -> None:
        super().__init__(in_flight.stats.outage)
        self._commands = commands
        self._queues = queues
        self._tasks = in_flight.tasks
        self._clock = in_flight.clock
        self._timing = in_flight.timing
        self._rules = rules
        self._reclaim = reclaim
        self._answers = Answers(self._clock, self._timing)
        self._next_round_s = self._clock.monotonic_s()
        self._repairs = in_flight.stats.repairs
        self._done: Repairs = Repairs()

    async def tick(self) -> float:
        """Go through all queues; a failure in one does not stop its other work, or the other queues.

        Between two rounds, only leases are read, of queues for which Redis has not answered for long enough.
        """
        now_s = self._clock.monotonic_s()
        is_round = now_s >= self._next_round_s
        failure: Exception | None = None
        for queue in self._queues:
            cares = (
                (self._repair_active, self._recover, self._reclaim_groups) if is_round else (self._recover_if_unsteady,)
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
        del done[RepairKind.RECOVERED]  # logged with the ids
        if done:
            self._log.warning("queue %s: %s", queue, describe_repairs(done))

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
            # After a long outage our own leases have expired, too: the heartbeater is about to extend them.
            others = [
                (task, lost)
                for task, lost in zip(expired.tasks, expired.lost, strict=True)
                if self._tasks.get(queue, task.id) is None
            ]
            moved = await self._move(queue, others, cutoff_s) if others else 0
            # A list is also bounded in bytes, so only one that is empty, or has no movable task, is the last.
            if may_take and not moved and not expired.dangling:
                return

    async def _look(self, queue: str, cutoff_s: int, most: int) -> LeaseList:
        """List leases that ended by a time, and note whether Redis has answered."""
        asked = Moment.now(self._clock)
        try:
            found = await self._commands.run(list_leases(queue, "-inf", str(cutoff_s), most))
        except BrokerError:
            self._answers.note_failure(queue)
            raise
        self._answers.note(queue, asked)
        return found

    async def _move(self, queue: str, expired: Sequence[tuple[LeasedTask, int]], cutoff_s: int) -> int:
        now_ns = self._clock.unix_ns()
        now = at_unix_ns(now_ns)
        guard = Guard(expired_at=cutoff_s)
        lost_tasks = [await self._lost_task(queue, task, lost, now_ns // 1_000_000_000) for task, lost in expired]
        moved = 0
        if again := [one for one in lost_tasks if not one.why_archived]:
            retried = [Retried(*one[:3], is_failure=False, attempt=one.attempt) for one in again]
            moved += await self._write(queue, again, retry(queue, retried, now, guard), cutoff_s)
        if dead := [one for one in lost_tasks if one.why_archived]:
            archived = [Archived(one.id, one.message, one.attempt) for one in dead]
            moved += await self._write(queue, dead, archive(queue, archived, now, guard), cutoff_s)
        return moved

    async def _write(
        self, queue: str, lost_tasks: Sequence[_LostTask], operation: Operation[list[FinishOutcome]], cutoff_s: int
    ) -> int:
        """Move tasks, repair the leases of those that are not active, and return the numbers of both."""
        outcomes = await self._commands.run(operation)
        moved = [one for one, outcome in zip(lost_tasks, outcomes, strict=True) if outcome is FinishOutcome.OK]
        self._done[RepairKind.RECOVERED] += len(moved)
        if moved:
            self._log_lost(queue, moved)
            for one in moved:
                self._rules.tally(queue, one.type).lost += 1
            await self._count_lost(queue, len(moved))
        astray = [
            one.id for one, outcome in zip(lost_tasks, outcomes, strict=True) if outcome is FinishOutcome.NOT_ACTIVE
        ]
        repaired = 0
        while astray:
            self.get_on()
            done = await self._commands.run(repair_lease(queue, astray, cutoff_s, self._clock.unix_ns()))
            self._done[RepairKind.NOT_ACTIVE] += done.repaired
            repaired += done.repaired
            astray = astray[done.looked_at :]
        return len(moved) + repaired

    async def _count_lost(self, queue: str, count: int) -> None:
        """Count the lost tasks of the day; a failure is logged, and does not stop the recovery."""
        results = await self._commands.run_many(count_lost(queue, count, at_unix_ns(self._clock.unix_ns())))
        if error := next((result for result in results if isinstance(result, BrokerError)), None):
            self._log.warning("queue %s: the counter of lost tasks of the day lacks %d: %s", queue, count, error)

    def _log_lost(self, queue: str, lost_tasks: Sequence[_LostTask]) -> None:
        """Log the lost tasks, the reason, and what follows; one line for each outcome."""
        ids: defaultdict[str, list[str]] = defaultdict(list)
        for one in lost_tasks:
            ids[one.why_archived].append(clean_text(one.id))
        for why, lost in ids.items():
            some = first_of(lost)
            what = f"queue {queue}: {len(lost)} tasks were lost because their server died or is cut off from Redis"
            if why:
                self._log.error("%s; archived (%s): %s", what, why, some)
            else:
                self._log.warning("%s; they will be retried, no attempt charged: %s", what, some)

    async def _lost_task(self, queue: str, task: LeasedTask, lost: int, now_s: int) -> _LostTask:
        self.get_on()
        try:
            return await self._decide(task, lost + 1, now_s)
        except InvalidMessageError as error:
            archived = undecodable(task.id, queue, task.message, str(error), now_s)
            return _LostTask(task.id, archived, why_archived=f"it cannot be read: {clean_text(str(error))}")

    async def _decide(self, task: LeasedTask, lost: int, now_s: int) -> _LostTask:
        """Return the fate of a task that was lost for the n-th time; its attempt is not charged."""
        view = view_leased(task)
        why = ""
        if view.retry <= 0:
            why = MAY_RUN_ONCE
        elif lost > self._rules.max_lost:
            why = f"time {lost}, over max_lost={self._rules.max_lost}"
        told = why or f"time {lost} of at most {self._rules.max_lost}, no attempt charged"
        error = f"lost with its server; {told}"
        message = rewrite_task_message(task.message, error_msg=f"{LEASE_EXPIRED}: {error}", last_failed_at=now_s)
        attempt = AttemptRecord(view.retried + 1, 0, now_s * 1000, "", f"LeaseExpiredError: {error}").encode()
        if why:
            return _LostTask(task.id, message, why_archived=why, attempt=attempt, type=view.type)
        delay_s = await self._hooks_delay_s(task)
        if delay_s is None:
            delay_s = self._rules.retry_delay_s(view.retried)
        return _LostTask(task.id, message, retry_at_s=int(now_s + delay_s), attempt=attempt, type=view.type)

    async def _hooks_delay_s(self, task: LeasedTask) -> float | None:
        """Ask the app's hooks for the time of the retry; as in asynq, the error handler is not called."""
        report = await self._rules.judge(task.message) if self._rules.judge is not None else None
        return None if report is None else report.retry_in_s

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
