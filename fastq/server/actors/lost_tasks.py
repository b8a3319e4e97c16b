"""The fate of tasks that were lost with their server; used by the recoverer and the beacon.

A task that is lost for the first time runs again at once, at the head of its queue. A task that is lost again waits for
the delay of a retry: it may be the task that kills its servers, each time with their other tasks. No attempt is
charged. A task that was lost too often, or may run only once, is archived.
"""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from fastq.broker.operation import Operation
from fastq.broker.operations.finish import (
    Archived,
    FinishOutcome,
    Guard,
    PutBack,
    Retried,
    archive,
    put_back,
    release_lock,
    retry,
)
from fastq.broker.operations.keyed import put_again
from fastq.broker.operations.lease import LeasedTask
from fastq.broker.operations.maintain import count_lost
from fastq.common.clock import Clock, at_unix_ns
from fastq.errors import BrokerError, InvalidMessageError
from fastq.server.actors.actor import first_of
from fastq.server.base.commands import Commands
from fastq.server.inflight.dispositions import undecodable
from fastq.server.inflight.marked import has_lock
from fastq.server.inflight.stats import RepairKind, ServerStats
from fastq.server.inflight.tally import Tally
from fastq.server.inflight.tasks import view_leased
from fastq.wire.attempts import AttemptRecord
from fastq.wire.codec import clean_text, rewrite_task_message
from fastq.wire.marks import EARLY_UNLOCK, Mark, asked_of
from fastq.worker.shared.report import FailureReport

LEASE_EXPIRED: Final = "asynq: task lease expired"
"""Go's text; the error of a lost task begins with it."""
MAY_RUN_ONCE: Final = "max_retry=0, and whether it had started is not known"

Judge: TypeAlias = Callable[[bytes], Awaitable[FailureReport | None]]

_log = logging.getLogger("fastq.recoverer")


class LostTaskRules(NamedTuple):
    """The rules for lost tasks."""

    retry_delay_s: Callable[[int], float]
    """Seconds until the next attempt of a task that was lost before, given the number of retries."""
    max_lost: int
    """How often a task may be lost; then it is archived as poison."""
    judge: Judge | None
    """Asks the app's hooks for the delay of a retry; None without such hooks."""
    tally: Callable[[str, str], Tally]
    """Returns the tally of a queue and type."""


class Put(NamedTuple):
    """How many tasks were moved, and the ids of those that were not active."""

    moved: int
    astray: list[str]


class _LostTask(NamedTuple):
    """A lost task and its fate.

    It is archived if there is a ``why_archived``, else it runs again at ``retry_at_s`` (0: at once).
    """

    id: str
    message: bytes
    retry_at_s: int = 0
    why_archived: str = ""
    attempt: bytes = b""
    type: str = ""
    """Empty if the message cannot be read."""
    marks: int = 0
    lock: str = ""


class LostTasks:
    """Puts lost tasks back, counts and logs them."""

    def __init__(self, commands: Commands, rules: LostTaskRules, clock: Clock, stats: ServerStats) -> None:
        self._commands = commands
        self._rules = rules
        self._clock = clock
        self._repairs = stats.repairs

    async def put(
        self,
        queue: str,
        tasks: Sequence[tuple[LeasedTask, int]],
        guard: Guard,
        cause: str,
        get_on: Callable[[], None],
    ) -> Put:
        """Put back or archive tasks, as far as the guard allows; each task comes with the number of its earlier losses.

        ``cause`` is for the log; ``get_on`` is called at each step, because hooks may take long.
        """
        now_ns = self._clock.unix_ns()
        now = at_unix_ns(now_ns)
        fates: list[_LostTask] = []
        for task, lost in tasks:
            get_on()
            fates.append(await self._fate(queue, task, lost + 1, now_ns // 1_000_000_000))
        dead = [one for one in fates if one.why_archived]
        later = [one for one in fates if one.retry_at_s]
        soon = [one for one in fates if not one.retry_at_s and not one.why_archived]
        retried = [Retried(*one[:3], is_failure=False, attempt=one.attempt) for one in later]
        writes: tuple[tuple[list[_LostTask], Operation[list[FinishOutcome]]], ...] = (
            (soon, put_back(queue, [PutBack(one.id, one.message, one.attempt) for one in soon], now_ns, guard)),
            (later, retry(queue, retried, now, guard)),
            (dead, archive(queue, [Archived(one.id, one.message, one.attempt) for one in dead], now, guard)),
        )
        moved, astray = 0, []
        for some, operation in writes:
            if some:
                put = await self._write(queue, some, operation, cause)
                moved += put.moved
                astray += put.astray
        return Put(moved, astray)

    async def _write(
        self, queue: str, lost_tasks: Sequence[_LostTask], operation: Operation[list[FinishOutcome]], cause: str
    ) -> Put:
        keyed = [one.id for one in lost_tasks if one.marks & Mark.KEYED]
        # Sent in the same round trip: before a second one, a server might take the task with its older payload.
        behind: list[Operation[Any]] = [put_again(queue, keyed, self._clock.unix_ns())] if keyed else []
        behind += [
            release_lock(one.lock, one.id)
            for one in lost_tasks
            if one.why_archived and one.marks & EARLY_UNLOCK and has_lock(queue, one.lock)
        ]
        outcomes, *put = await self._commands.run_many([operation, *behind])
        if isinstance(outcomes, BrokerError):
            raise outcomes
        moved = [one for one, outcome in zip(lost_tasks, outcomes, strict=True) if outcome is FinishOutcome.OK]
        self._repairs[RepairKind.RECOVERED] += len(moved)
        if moved:
            _log_lost(queue, moved, cause)
            for one in moved:
                self._rules.tally(queue, one.type).lost += 1
            await self._count_lost(queue, len(moved))
        if error := next((result for result in put if isinstance(result, BrokerError)), None):
            raise error
        is_astray = FinishOutcome.NOT_ACTIVE
        return Put(len(moved), [one.id for one, got in zip(lost_tasks, outcomes, strict=True) if got is is_astray])

    async def _count_lost(self, queue: str, count: int) -> None:
        """Count the lost tasks of the day; a failure is logged, and does not stop the recovery."""
        results = await self._commands.run_many(count_lost(queue, count, at_unix_ns(self._clock.unix_ns())))
        if error := next((result for result in results if isinstance(result, BrokerError)), None):
            _log.warning("queue %s: the counter of lost tasks of the day lacks %d: %s", queue, count, error)

    async def _fate(self, queue: str, task: LeasedTask, lost: int, now_s: int) -> _LostTask:
        try:
            return await self._decide(task, lost, now_s)
        except InvalidMessageError as error:
            archived = undecodable(task.id, queue, task.message, str(error), now_s)
            return _LostTask(task.id, archived, why_archived=f"it cannot be read: {clean_text(str(error))}")

    async def _decide(self, task: LeasedTask, lost: int, now_s: int) -> _LostTask:
        """Return the fate of a task that was lost for the n-th time."""
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
        retry_at_s = 0
        if not why and lost > 1:
            retry_at_s = int(now_s + await self._delay_s(task.message, view.retried))
        marks = asked_of(task.message).marks if view.has_fastq_headers else 0
        return _LostTask(task.id, message, retry_at_s, why, attempt, view.type, marks, view.unique_key)

    async def _delay_s(self, message: bytes, retried: int) -> float:
        """Ask the app's hooks for the delay of a retry; as in asynq, the error handler is not called."""
        report = await self._rules.judge(message) if self._rules.judge is not None else None
        hooked_s = None if report is None else report.retry_in_s
        return self._rules.retry_delay_s(retried) if hooked_s is None else hooked_s


def _log_lost(queue: str, lost_tasks: Sequence[_LostTask], cause: str) -> None:
    """Log the lost tasks, the cause, and what follows; one line for each outcome."""
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for one in lost_tasks:
        ids[one.why_archived].append(clean_text(one.id))
    for why, lost in ids.items():
        what = f"queue {queue}: {len(lost)} tasks were lost because {cause}"
        if why:
            _log.error("%s; archived (%s): %s", what, why, first_of(lost))
        else:
            follows = "they will be retried" if lost_tasks[0].retry_at_s else "they run again at once"
            _log.warning("%s; %s, no attempt charged: %s", what, follows, first_of(lost))
