"""The part between the server and the pool: it gives the pool tasks, and passes ended tasks on to the acker.

The processor knows which types have async handlers. It turns messages into submissions with their time limits, and
events into ends. The pool itself knows nothing of messages or queues.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from fastq._muxmatch import PatternIndex
from fastq.broker.operations.cancel import CancelAs, Cancellation
from fastq.broker.operations.finish import FATES, Archived, Disposition, Requeued, Retried
from fastq.broker.operations.lease import Leased, LeasedTask
from fastq.errors import InvalidMessageError
from fastq.mux import Terms
from fastq.pool.main.protocol import (
    ANOTHER_TASK,
    ITS_BATCH,
    TOLD_TO_END,
    TOO_LATE,
    BatchRule,
    CancelOutcome,
    Event,
    EventKind,
    Pool,
    PoolListener,
    PoolStartError,
    Sort,
    Submission,
)
from fastq.server.base.commands import Commands
from fastq.server.base.config import ServerConfig
from fastq.server.inflight._processor import SubmissionMaker, split_done, submissions_of
from fastq.server.inflight.cancellations import EarlyCancellations
from fastq.server.inflight.checkpoint_writer import CheckpointWriter
from fastq.server.inflight.dispositions import (
    DelayRule,
    canceled_of,
    disposition_of,
    has_report,
    in_its_lane,
    overrides,
    passed_on,
    report_of,
    undecodable,
)
from fastq.server.inflight.failed_attempts import FailedAttempts
from fastq.server.inflight.failure_log import FailureLog
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.marked import without_locked
from fastq.server.inflight.progress_writer import ProgressWriter
from fastq.server.inflight.questions import Questions
from fastq.server.inflight.result_writer import ResultWriter
from fastq.server.inflight.stats import UNKNOWN
from fastq.server.inflight.tally import Tally
from fastq.server.inflight.tasks import InFlightTask, count_waits, view_leased
from fastq.server.inflight.unknown import UnknownTypes, pass_on_delay_s
from fastq.wire.codec import TaskView, view_task_message
from fastq.wire.messages import UNDECODABLE_TYPE
from fastq.worker.shared.description import AppDescription
from fastq.worker.shared.report import FailureReport

_CANCELED_EARLY: Final = FailureReport("TaskCanceled: the task was canceled before it began").encode()

_KILLED_TWICE: Final = (
    b"its worker process was killed twice for reasons outside of this task (memory of unknown origin, a blocked event "
    b"loop, the end of the preloader) that no task was charged for; the first time it ran again without charge, this "
    b"time the attempt counts as failed"
)

_MOST_RERUNS: Final = 100
"""The most reruns of a task whose child was killed because of other tasks, which are charged instead.

A task that never finishes beside such tasks must end at some point, with an error that says why.
"""

_KILLED_OFTEN: Final = (
    b"its worker process was killed %d times because of other tasks in it, which did not end in time or blocked it; "
    b"give such tasks a queue and a server of their own" % (_MOST_RERUNS + 1)
)

_MAY_RUN_ONCE: Final = (
    b"its worker process was killed %s; this task had begun, and with max_retry=0 it runs at most once"
)

_CAUSES: Final = {
    ANOTHER_TASK: b"because of another task in it",
    ITS_BATCH: b"during a call of several tasks, of which any may be the cause",
}

_NO_TERMS: Final = Terms()
_LATE: Final = (EventKind.TIMEOUT, EventKind.MEMORY_LIMIT)
_DEATHS: Final = (*_LATE, EventKind.CRASHED, EventKind.BROKEN)
_OF_FAILURES: Final = (Retried, Archived)
_LAST_SUCCESS: Final = EventKind.RESULT
_INVALID: Final = EventKind.INVALID
_LAST_OF_HANDLERS: Final = _INVALID
"""Kinds up to this one are ends that the handler or the message decided, so no hook is asked about them."""

Known: TypeAlias = tuple[int, Tally, int | None, BatchRule | None]
Judge: TypeAlias = Callable[[InFlightTask, EventKind, bytes], Awaitable[FailureReport]]

_log = logging.getLogger("fastq.pool")


class Processor(PoolListener):
    """The processor: hands tasks in flight to the pool, and their outcomes to ``finish``.

    ``judge`` asks the app's hooks about a failure that no child reported; None without such hooks. ``make_room`` is
    called when a child has begun to take tasks, ``failed`` when the pool is dead.
    """

    def __init__(
        self,
        pool: Pool,
        config: ServerConfig,
        in_flight: InFlight,
        *,
        delay_rule: DelayRule,
        finish: Callable[[list[InFlightTask]], None],
        results: ResultWriter,
        checkpoints: CheckpointWriter,
        progress: ProgressWriter,
        attempts: FailedAttempts,
        early: EarlyCancellations,
        commands: Commands,
        unknown: UnknownTypes,
        judge: Judge | None,
        make_room: Callable[[], None],
        failed: Callable[[PoolStartError], None],
    ) -> None:
        self.pool = pool
        self._config = config
        self._tasks = in_flight.tasks
        self._clock = in_flight.clock
        self._stats = in_flight.stats
        self._counts = in_flight.stats.counts
        self._delay_rule = delay_rule
        self._finish = finish
        self._results = results
        self._checkpoints, self._progress = checkpoints, progress
        self._attempts = attempts
        self._early, self._commands = early, commands
        self._unknown = unknown
        self._ask_hooks = judge
        self._make_room, self._failed = make_room, failed
        self.app, self._patterns = AppDescription(), PatternIndex()
        self._maker = SubmissionMaker(self._tasks, self._look_up)
        self.taken = 0
        self.max_tasks = 0
        """The most tasks that are taken; 0 means no limit."""
        self._is_closed = False
        self.failure_log = FailureLog(self._clock)
        self.questions = Questions()
        self._rules: dict[str, BatchRule] = {}

    def on_failed(self, error: PoolStartError) -> None:
        """Report that the pool is dead."""
        self._failed(error)

    def on_room(self) -> None:
        """Let more tasks be fetched."""
        self._make_room()

    def on_description(self, description: str) -> None:
        """Note what the app serves, and how its handlers run; a reload may change it."""
        app = AppDescription.decode(description)
        if app == self.app:
            return
        self.app, self._patterns = app, PatternIndex()
        self._rules = {pattern: BatchRule(*limits) for pattern, limits in app.batches.items()}
        for pattern in app.patterns:
            self._patterns.add(pattern)
        self._maker = SubmissionMaker(self._tasks, self._look_up)  # the old one remembers the old app's types

    # In ---------------------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Return how many more tasks would start soon."""
        return min(self.pool.free, self.max_tasks - self.taken) if self.max_tasks else self.pool.free

    def idle(self, *, only_async: bool) -> int:
        """Return how many more tasks would begin at once, of any sort or only coroutines."""
        return min(self.room, _idle_rows(self.pool, self._config, self.app, only_async=only_async))

    def are_coroutines(self, messages: Iterable[bytes]) -> bool:
        """Return whether all messages are of tasks that run as coroutines."""
        return _are_coroutines(messages, self._patterns, self.app)

    @property
    def has_taken_all(self) -> bool:
        """Return whether this server has taken as many tasks as it is to run."""
        return 0 < self.max_tasks <= self.taken

    def accept(self, queue: str, leased: Leased, asked_s: float = 0.0) -> None:
        """Take tasks that a dequeue requested at ``asked_s`` has leased; unreadable ones are archived."""
        if 0 < self.max_tasks < self.taken + leased.size:
            leased = self._without_surplus(queue, leased, asked_s)
        self.taken += leased.size
        leased_s = asked_s or self._clock.monotonic_s()  # the lease may have begun as early as at the request
        if self._is_closed:
            self._finish(self._return(queue, leased, leased_s))
            return
        tasks, odd = self._maker.take(queue, leased.ids, leased.messages, leased_s)
        rejected: list[InFlightTask] = []
        try:
            if odd:
                self._take_odd(queue, [leased.task(place) for place in odd], leased_s, tasks, rejected)
            count_waits(tasks, *leased.pending_since_ns, self._clock.unix_ns())
            if self._early:
                rejected += self._cancel_early(queue, tasks, asked_s)
            if self._tasks.marked_queues:
                tasks = without_locked(self._commands, self.questions, tasks, self._begin_unlocked)
            submissions = submissions_of(tasks)
            if submissions:
                self.pool.submit(submissions)
        finally:
            if rejected:
                self._finish(rejected)

    def _begin_unlocked(self, task: InFlightTask) -> None:
        if task.canceled is not None:
            self._finish([self._end_early(task)])
        elif self._is_closed:
            self._finish([requeued(task)])
        else:
            assert task.submission is not None, "it has been made, but not submitted"
            self.pool.submit([task.submission])

    def _without_surplus(self, queue: str, leased: Leased, asked_s: float) -> Leased:
        """Give back the tasks beyond ``max_tasks``, which a late reply has brought; return the others."""
        most = max(0, self.max_tasks - self.taken)
        surplus = Leased(leased.ids[most:], leased.messages[most:])
        self._finish(self._return(queue, surplus, asked_s or self._clock.monotonic_s()))
        return leased._replace(ids=leased.ids[:most], messages=leased.messages[:most])

    def _return(self, queue: str, leased: Leased, leased_s: float) -> list[InFlightTask]:
        """Requeue tasks that arrived too late; unreadable ones are left to a recoverer."""
        returned = {}
        for one in map(leased.task, range(leased.size)):
            if one.id not in returned:
                with suppress(InvalidMessageError):
                    returned[one.id] = requeued(self._add(queue, view_leased(one), leased_s))
        return list(returned.values())

    def _add(self, queue: str, view: TaskView, leased_s: float) -> InFlightTask:
        """Add a task; give up an earlier task that is in flight under the same id."""
        if (stale := self._tasks.get(queue, view.id)) is not None:
            # The id was leased again, so neither the lease nor the end of the earlier task is ours any more.
            self.lose(stale)
        return self._tasks.add(queue, view, leased_s)

    def _take_odd(
        self,
        queue: str,
        leased: Sequence[LeasedTask],
        leased_s: float,
        tasks: list[InFlightTask],
        rejected: list[InFlightTask],
    ) -> None:
        """Take tasks that are unreadable or already in flight; several of them may have the same id."""
        ids = {task.id for task in tasks}
        repeats = 0
        for one in leased:
            if one.id in ids:
                repeats += 1  # a peer put the id into pending twice, but it is one task and runs once
                continue
            ids.add(one.id)
            try:
                view = view_leased(one)
            except InvalidMessageError as error:
                rejected.append(self._reject(queue, one, str(error), leased_s))
                continue
            task = self._add(queue, view, leased_s)
            self._maker.submission(task)
            tasks.append(task)
        if repeats:
            _log.warning("queue %s: %d ids were leased twice; each task runs once", queue, repeats)

    def _cancel_early(self, queue: str, tasks: Sequence[InFlightTask], asked_s: float) -> list[InFlightTask]:
        """End the tasks that were canceled a moment ago, and return them."""
        canceled = []
        for task in tasks:
            if (canceled_as := self._early.outcome_of(queue, task.id, asked_s)) is not None:
                task.canceled = canceled_as
                canceled.append(self._end_early(task))
        return canceled

    def _end_early(self, task: InFlightTask) -> InFlightTask:
        """End a task that was canceled before it began."""
        assert task.submission is not None, "it has been made, whether or not it was submitted"
        return self._end(task, Event(EventKind.CANCELED, task.submission, _CANCELED_EARLY))

    def tally(self, queue: str, task_type: str) -> Tally:
        """Return the tally of a queue and type."""
        return self._look_up(queue, task_type)[1]

    def _look_up(self, queue: str, task_type: str) -> Known:
        """Return what ``SubmissionMaker`` needs to know about the tasks of a type."""
        pattern = self._patterns.find(task_type)
        if pattern is None:
            return Sort.PLAIN, self._stats.tally(queue, UNKNOWN), None, None
        sort, tally = self.app.patterns.get(pattern, Sort.PLAIN), self._stats.tally(queue, pattern.removesuffix("\0"))
        return sort, tally, self.app.terms.get(pattern, _NO_TERMS).limit_s, self._rules.get(pattern)

    def _terms(self, task: InFlightTask) -> Terms:
        return self.app.terms.get(self._patterns.find(task.view.type) or "", _NO_TERMS)

    def _reject(self, queue: str, leased: LeasedTask, why: str, leased_s: float) -> InFlightTask:
        _log.error("task %s of queue %s cannot be read (%s); archiving it", leased.id, queue, why)
        rewritten = undecodable(leased.id, queue, leased.message, why, self._clock.unix_ns() // 1_000_000_000)
        task = self._add(queue, view_task_message(rewritten), leased_s)
        task.disposition = Archived(leased.id, rewritten)
        task.tally, task.failure = self._stats.tally(queue, UNDECODABLE_TYPE), _INVALID
        task.error = InvalidMessageError.__name__
        return task

    def on_events(self, events: list[Event]) -> None:
        """Turn events into ends."""
        ended, others = split_done(events, self._clock.unix_ns() // 1_000_000_000)
        self._counts[EventKind.DONE] += len(ended)
        again: list[Submission] = []
        try:
            for event in others:
                self._take_event(event, ended, again)
            if again:
                self.pool.submit(again)
        finally:
            if ended:
                self._finish(ended)

    def _take_event(self, event: Event, ended: list[InFlightTask], again: list[Submission]) -> None:
        task: InFlightTask = event.submission.key  # type: ignore[assignment]  # the pool hands back what it was given
        try:
            if event.kind <= _LAST_OF_HANDLERS:
                ended.append(self._end(task, event))
            elif event.kind is EventKind.CHECKPOINT:
                self._checkpoints.save(task, event.data, event.ran_ns)
            else:
                self._take_other(task, event, ended, again)
        except Exception:  # noqa: BLE001 - a defect with one task must not cost another task its end
            _log.exception("unexpected error: the outcome of task %s of queue %s is not saved", task.id, task.queue)
            if event.kind < EventKind.WRITTEN:
                ended.append(requeued(task))

    def _take_other(self, task: InFlightTask, event: Event, ended: list[InFlightTask], again: list[Submission]) -> None:
        """Handle an event that is not simply the end of a handler."""
        if event.kind in (EventKind.RERUN, EventKind.RETURNED) and task.canceled is not None:
            # The cancellation did not reach the handler: another coroutine blocked its loop, or the task was on its way
            # back.
            event = Event(EventKind.CANCELED, event.submission, b"", event.ran_ns)
        if event.kind is EventKind.RERUN and (why := _why_no_rerun(task, event.data, self._is_closed)):
            event = Event(EventKind.CRASHED, event.submission, why, event.ran_ns)
        if event.kind in _LATE and event.data == TOO_LATE and self._terms(task).may_be_late:
            event = Event(EventKind.DONE, event.submission, b"", event.ran_ns)
        kind = event.kind
        if self._goes_again(task, event):
            if kind is EventKind.RERUN:  # result and progress of this run are not the next run's
                task.written = None
                self._progress.write(task, b"")
            again.append(self._maker.submission(task))
        elif kind is EventKind.WRITTEN:
            self._results.write(task, event.data)
        elif kind is EventKind.PROGRESS:
            self._progress.write(task, event.data)
        elif kind is EventKind.NOT_FOUND and self._is_unknown(task):
            self._ask_about_unknown(task, event)
        elif self._ask_hooks is not None and _is_unreported_failure(kind, event.data):
            self._judge(self._ask_hooks, task, event)
        else:
            ended.append(self._end(task, event))

    def _goes_again(self, task: InFlightTask, event: Event) -> bool:
        """Return whether a task runs again because its child was killed, now or earlier, for another reason."""
        if self._is_closed:
            return False
        if event.kind is EventKind.RERUN:
            task.reruns += 1
            task.unexplained_reruns += event.data not in (ANOTHER_TASK, ITS_BATCH)
            task.is_alone |= event.data == ITS_BATCH
            return True
        # If the task went back to its queue, its reruns would be forgotten, and it could run forever.
        return event.kind is EventKind.RETURNED and task.reruns > 0

    def _is_unknown(self, task: InFlightTask) -> bool:
        """Return whether the mux raised the error, because it found no handler; a handler may raise the same error."""
        return task.canceled is None and self._patterns.find(task.view.type) is None

    def _judge(self, judge: Judge, task: InFlightTask, event: Event) -> None:
        """End a task once the hook child has decided on its failure; it stays in flight until then."""

        async def ask() -> None:
            report: FailureReport | None = None
            try:
                report = await judge(task, event.kind, event.data)
            except asyncio.CancelledError:
                _log.warning("the hooks did not answer for task %s before the shutdown; using the defaults", task.id)
            except Exception:  # noqa: BLE001 - whatever goes wrong with the hooks, the task must end
                _log.exception("the hooks could not be called for task %s; using the defaults", task.id)
            if task.in_flight:
                self._finish([self._end(task, event, report)])

        self.questions.ask(task, ask())

    def _ask_about_unknown(self, task: InFlightTask, event: Event) -> None:
        """End a task of an unknown type once it is known whether another server has a handler.

        The task stays in flight until then.
        """

        async def ask() -> None:
            delay_s: int | None = None
            try:
                delay_s = await self._unknown.pass_on_after_s(task.queue, task.view.type)
            except asyncio.CancelledError:
                delay_s = pass_on_delay_s()  # the shutdown ended the question: pass the task on, charge no attempt
            except Exception:  # noqa: BLE001 - whatever goes wrong with the question, the task must end
                _log.exception("could not check whether another server has a handler for task %s; it fails", task.id)
            if not task.in_flight:
                return
            if delay_s is None or task.canceled is not None:
                self._finish([self._end(task, event)])
                return
            self._counts[EventKind.NOT_FOUND] += 1
            task.disposition = passed_on(task, event.data, self._clock.unix_ns() // 1_000_000_000, delay_s)
            task.failure, task.error = EventKind.NOT_FOUND, report_of(event.kind, event.data).error_class
            self._finish([task])

        self.questions.ask(task, ask())

    def _end(self, task: InFlightTask, event: Event, report: FailureReport | None = None) -> InFlightTask:
        """Decide the disposition of a task by its event and report; a failed attempt's record goes with it."""
        kind, data = event.kind, event.data
        now_s = self._clock.unix_ns() // 1_000_000_000
        if kind <= _LAST_SUCCESS:
            self._counts[kind] += 1
            task.disposition = disposition_of(task, kind, data, now_s, self._delay_rule)
            return task
        report = report or report_of(kind, data)
        if kind in _DEATHS and not has_report(kind, data) and self._terms(task).ends_with_process:
            report = report._replace(final="such a task is not run again when its process has died")
        self._counts[EventKind.RETURNED if report.is_snoozed else kind] += 1
        if overrides(task, kind):
            disposition = canceled_of(task, report, now_s)
        else:
            usual = disposition_of(task, kind, data, now_s, self._delay_rule, report)
            disposition = in_its_lane(usual, task, report, self._commands.lanes)
        if isinstance(disposition, _OF_FAILURES) and kind is not _INVALID and not report.is_snoozed:
            # The record is both classes' last field. A call of the class, or _replace, would be Python code.
            record = self._attempts.record(task, report, event.ran_ns)
            disposition = tuple.__new__(type(disposition), (*disposition[:-1], record))
        task.disposition, task.failure = disposition, 0 if report.is_snoozed else kind
        task.error, task.ran_ns = report.error_class, event.ran_ns
        if event.ran_ns and task.tally is not None and _counts(disposition):
            task.tally.run_s.observe(event.ran_ns / 1e9)
        self.failure_log.add(task, kind, disposition, report, event.ran_ns)
        return task

    def cancel(self, cancellation: Cancellation) -> bool:
        """Cancel every matching task in flight; False if there is none.

        The last explicitly requested outcome counts, also for a task that was canceled before and has not ended yet.
        """
        # A task on its way back to its queue is left out: the cancellation is kept for its next dequeue.
        found = [one for one in self._tasks.find(cancellation.task_id, cancellation.queue) if not one.is_requeued]
        for task in found:
            task.canceled = cancellation.outcome or task.canceled or CancelAs.RETRY
            if task.submission is not None and self.pool.cancel(task.submission) is CancelOutcome.WITHDRAWN:
                self._finish([self._end_early(task)])
        return bool(found)

    def lose(self, task: InFlightTask) -> None:
        """Give up a task whose lease belongs to another server: stop it if it runs, and never write its end."""
        submission = task.submission
        self._tasks.drop(task)
        if submission is not None:
            self.pool.cancel(submission)

    def withdraw(self) -> list[InFlightTask]:
        """Withdraw all tasks that have not begun, in order.

        The pool takes no more tasks; tasks that arrive later go back to their queues.
        """
        self._is_closed = True
        tasks: list[Any] = [submission.key for submission in self.pool.withdraw_all()]
        return [requeued(task) for task in tasks if task.in_flight]

    def tasks(self) -> set[object]:
        """Return the tasks in the pool, and those with open questions."""
        return {submission.key for submission in self.pool.submissions()} | self.questions.tasks()


def _idle_rows(pool: Pool, config: ServerConfig, app: AppDescription, *, only_async: bool) -> int:
    """Return how many more tasks would begin at once: coroutines, or tasks of any sort that the app has."""
    if only_async:
        return pool.free_coroutines
    is_async = app.patterns and all(sort == Sort.ASYNC for sort in app.patterns.values())
    return max(0, config.concurrency * (config.async_concurrency if is_async else config.threads) - pool.pending)


def _are_coroutines(messages: Iterable[bytes], index: PatternIndex, app: AppDescription) -> bool:
    try:
        patterns = {index.find(view_task_message(message).type) for message in messages}
    except InvalidMessageError:
        return False
    return all(app.patterns.get(pattern or "") == Sort.ASYNC for pattern in patterns)


def requeued(task: InFlightTask) -> InFlightTask:
    """Requeue a task, whatever its event."""
    task.disposition = Requeued(task.id)
    return task


def _why_no_rerun(task: InFlightTask, data: bytes, is_closed: bool) -> bytes:
    """Return why a task whose child was killed for another reason does not run again, b"" if it does."""
    if task.view.retry == 0:
        return _MAY_RUN_ONCE % _CAUSES.get(data, b"for a reason outside of this task")
    if is_closed or data == ITS_BATCH:
        return b""
    if data == ANOTHER_TASK:
        return _KILLED_OFTEN if task.reruns >= _MOST_RERUNS else b""
    return _KILLED_TWICE if task.unexplained_reruns else b""


def _counts(disposition: Disposition) -> bool:
    """Return whether the history counts an end, as done or failed; only then does it count the run."""
    return disposition.is_failure if isinstance(disposition, Retried) else bool(FATES[type(disposition)].history)


def _is_unreported_failure(kind: EventKind, data: bytes) -> bool:
    return kind in (*TOLD_TO_END, EventKind.CRASHED, EventKind.BROKEN) and not has_report(kind, data)
