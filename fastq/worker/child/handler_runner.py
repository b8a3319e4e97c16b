"""The runner of tasks in a child: it decodes a task, calls the handler that the mux finds, and reports the outcome.

The pool loads the runner by name, with a JSON argument that names the app and its hooks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Coroutine, Sequence
from inspect import isawaitable, iscoroutine
from typing import Any, Final

import orjson

from fastq.common.callables import UNRUN, is_async, refuse_unrun
from fastq.common.clock import Clock, SystemClock
from fastq.errors import (
    HandlerNotFoundError,
    InvalidMessageError,
    PayloadError,
    Retry,
    TaskCanceled,
    TaskTimeout,
)
from fastq.hooks import Hooks
from fastq.log.limit import LogLimit
from fastq.log.setup import log_apps_lines, set_up_logging
from fastq.mux import MAX_ROUTES, ServeMux
from fastq.pool.shared.event_kind import DECISIONS, NO_FAILURES, TOLD_TO_END, EventKind, reason_for
from fastq.pool.shared.runner import Answer, Runner, RunnerMisuseError, TaskContext
from fastq.running import CURRENT, RUNNING_TASKS, RunningTask
from fastq.wire.codec import TaskMessage, decode_task_message
from fastq.worker.child.batch_call import BatchCall, decode_all
from fastq.worker.child.debug_log import DebugLogRunner, about_current_task
from fastq.worker.child.hooks import (
    DECIDED,
    caused_by,
    failure_report,
    hooks_named,
    resolve_aggregator,
    resolve_hook,
    why_final,
)
from fastq.worker.child.returned import encode_returned
from fastq.worker.shared.description import AppDescription
from fastq.worker.shared.fingerprint import Turns, fingerprint_of
from fastq.worker.shared.names import AppNameError, resolve
from fastq.worker.shared.report import frames_of, trace_of

MAX_KEPT: Final = 8000
"""How many characters of a traceback are kept in Redis; the first ones are cut off."""


def load(argument: str) -> Runner:
    """Import the app and its hooks; ``RunnerMisuseError`` if a name does not lead to a suitable object."""
    order: dict[str, Any] = orjson.loads(argument)
    level, form, tracebacks = order["log"]
    if level:
        set_up_logging(level, form, about_current_task)
    try:
        if order["aggregator"]:
            resolve_aggregator(order["aggregator"])
        if order["health_check"]:
            resolve_hook("health_check", order["health_check"])
        mux, hooks = _resolve_mux(order["app"]), hooks_named(**order["hooks"])
        runner = HandlerRunner(mux, hooks, tracebacks=tracebacks, threads=order["threads"])
    except AppNameError as error:
        raise RunnerMisuseError(str(error)) from error
    if level:
        log_apps_lines()
    return DebugLogRunner(runner) if level == "debug" else runner


def _resolve_mux(app: str) -> ServeMux:
    mux = resolve(app)
    if not isinstance(mux, ServeMux):
        raise AppNameError(f"{app!r} must be a fastq.App or ServeMux, not {type(mux).__name__}")
    if not mux.patterns():
        raise AppNameError(f"{app!r} has no handlers; add some with @{app.partition(':')[2]}.handler('type')")
    try:
        mux.check()
    except TypeError as error:
        raise AppNameError(f"{app!r}: {error}") from None
    return mux


# Members of the enum are looked up once, since a look-up takes 0.1 us.
_RESULT: Final = EventKind.RESULT
_FAILED: Final = EventKind.FAILED
_SKIP_RETRY: Final = EventKind.SKIP_RETRY
_NO_FAILURES: Final = tuple(NO_FAILURES.values())
_WITHOUT_HANDLER: Final = (HandlerNotFoundError, PayloadError)
"""Errors of tasks whose handler was not called: their tracebacks have only frames of fastq."""


class _ForBatches(dict[str, bool]):
    """Whether the handler of a type of task is a batch handler, remembered because it is asked for each task."""

    def __init__(self, mux: ServeMux, batchings: Container[str]) -> None:
        super().__init__()
        self._mux = mux
        self._batchings = batchings

    def __missing__(self, task_type: str) -> bool:
        if len(self) >= MAX_ROUTES:  # types that contain ids are unlimited in number
            self.clear()
        found = self[task_type] = self._mux.match(task_type)[1] in self._batchings
        return found


class HandlerRunner:
    """The runner of tasks through a mux.

    A handler's result is encoded only if the task has a retention, or with ``keep_results``.
    """

    def __init__(
        self,
        mux: ServeMux,
        hooks: Hooks,
        *,
        keep_results: bool = False,
        tracebacks: str = "never",
        threads: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._mux = mux
        self._hooks = hooks
        self._keep_results = keep_results
        self._tracebacks = tracebacks
        self._clock = clock or SystemClock()
        self._trace_limit = LogLimit[tuple[EventKind, bool, str, str]]()
        self._turns = Turns[tuple[str, str]]()
        app = AppDescription.of(mux, threads=threads)
        self.has_async = any(app.patterns.values())
        self.has_plain = not all(app.patterns.values())
        self.description = app.encode()
        self.child_start, self.child_stop = mux.child_hooks()
        self._batchings = mux._batchings()
        self._for_batches = _ForBatches(mux, self._batchings)

    def run(self, data: bytes, context: TaskContext) -> Answer:
        """Run a plain task to its end and return its outcome."""
        try:
            message = decode_task_message(data)
        except InvalidMessageError as error:
            return EventKind.INVALID, str(error).encode()
        if self._batchings and self._for_batches[message.type]:
            return _only(self.run_batch([data], [context]))
        task = RUNNING_TASKS.make(message, context)
        CURRENT.set(task)  # each task runs in a ``contextvars`` context of its own, so no other task sees this
        try:
            outcome = self._mux.dispatch(task.type)(task)
            if outcome is not None and isawaitable(outcome):
                outcome = self._awaited(task.type, outcome, context)
            return None if outcome is None else self._returned(message, outcome)
        except BaseException as error:  # noqa: BLE001 - SystemExit, too, is a failure of the task alone
            return self._failed(task, error, context)

    def run_batch(self, data: Sequence[bytes], contexts: Sequence[TaskContext]) -> list[Answer] | None:
        """Run tasks of a batch handler by one call; return None if all are done without a result."""
        call, handler = self._call(data, contexts)
        if call is None:
            return [self.run(*each) for each in zip(data, contexts, strict=True)]
        if not call.batch:
            return call.answers
        try:
            outcome = handler(call.batch)
            if outcome is not None and isawaitable(outcome):
                outcome = self._awaited(call.batch.type, outcome, contexts[0])
        except BaseException as error:  # noqa: BLE001 - as above
            return call.raised(error)
        return call.returned(outcome)

    def run_batch_async(self, data: Sequence[bytes], contexts: Sequence[TaskContext]) -> Awaitable[list[Answer] | None]:
        """Return a coroutine that runs tasks of a batch handler by one call."""
        return self._run_batch_async(data, contexts)

    async def _run_batch_async(self, data: Sequence[bytes], contexts: Sequence[TaskContext]) -> list[Answer] | None:
        call, handler = self._call(data, contexts)
        if call is None:
            return [await self._run_async(*each) for each in zip(data, contexts, strict=True)]
        if not call.batch:
            return call.answers
        try:
            outcome = handler(call.batch)
            if isawaitable(outcome):
                outcome = await outcome
        except BaseException as error:  # noqa: BLE001 - as above
            return call.raised(error)
        return call.returned(outcome)

    def _call(
        self, data: Sequence[bytes], contexts: Sequence[TaskContext]
    ) -> tuple[BatchCall | None, Callable[[Any], object]]:
        """Return the call of a batch handler for the tasks, and the handler.

        The call is None if the tasks have no common batch handler, which a reload of the app can cause.
        """
        messages, places, types = decode_all(data)
        patterns = {self._mux.match(one)[1] for one in types}
        batching = self._batchings.get(patterns.pop()) if len(patterns) == 1 else None
        if batching is None:
            return None, _no_handler
        call = BatchCall(batching, messages, list(contexts), self._failed, self._returned, places=places)
        return call, self._mux.dispatch(next(iter(types)))

    def _returned(self, message: TaskMessage, outcome: object) -> Answer:
        if isinstance(outcome, UNRUN):
            refuse_unrun(outcome, f"the handler of {message.type!r}")
        if message.retention <= 0 and not self._keep_results:
            return None
        return _RESULT, encode_returned(message, outcome)

    def _awaited(self, task_type: str, outcome: Awaitable[object], context: TaskContext) -> object:
        if iscoroutine(outcome):
            if is_async(self._mux.match(task_type)[0]):
                # A batch whose child was killed runs again task by task, as plain tasks. A reload can make a handler
                # async, too.
                return _run_in_loop(outcome, context)
            outcome.close()  # otherwise Python warns that the coroutine was never awaited
        raise TypeError(f"the handler of {task_type!r} returned an awaitable; declare it with async def")

    def run_async(self, data: bytes, context: TaskContext) -> Awaitable[Answer]:
        """Return a coroutine that runs the task."""
        return self._run_async(data, context)

    async def _run_async(self, data: bytes, context: TaskContext) -> Answer:
        try:
            message = decode_task_message(data)
        except InvalidMessageError as error:
            return EventKind.INVALID, str(error).encode()
        if self._batchings and self._for_batches[message.type]:
            return _only(await self._run_batch_async([data], [context]))
        task = RUNNING_TASKS.make(message, context)
        CURRENT.set(task)
        try:
            outcome = self._mux.dispatch(task.type)(task)
            if isawaitable(outcome):
                outcome = await outcome
            return None if outcome is None else self._returned(message, outcome)
        except BaseException as error:  # noqa: BLE001 - as above; a canceled coroutine reports its end
            return self._failed(task, error, context)

    def _failed(self, task: RunningTask, error: BaseException, context: TaskContext) -> Answer:
        if context.is_forked:
            raise error  # the error ends the process, which the handler has forked
        error = _named(error, context)
        told, report = context.interruption, failure_report(self._hooks, task, error)
        kind = _kind(error, told, report.final or (why_final(task, error) if report.is_snoozed else ""))
        trace = "" if self._tracebacks == "never" else self._trace(task, kind, error)
        fingerprint = kept = ""
        if not report.is_snoozed and kind not in _NO_FAILURES and not isinstance(error, _WITHOUT_HANDLER):
            fingerprint = fingerprint_of(error)
            if self._turns.allows((task.queue, fingerprint), self._clock.monotonic_s()):
                kept = frames_of(error)[-MAX_KEPT:]
        return kind, report.encode_with(trace, fingerprint, kept)

    def _trace(self, task: RunningTask, kind: EventKind, error: BaseException) -> str | None:
        """Return the traceback for the task's log line; "" for none, None if the log limit surely drops the line."""
        archives = _archives(kind, task)
        if (not archives and self._tracebacks != "always") or isinstance(error, _WITHOUT_HANDLER):
            return ""
        now_s = self._clock.monotonic_s()
        self._trace_limit.ended(now_s)  # the main process counts suppressed lines, so these counts are dropped
        allowed = self._trace_limit.allows((kind, archives, task.type, type(error).__name__), now_s)
        return trace_of(error) if allowed else None


def _only(answers: list[Answer] | None) -> Answer:
    return answers[0] if answers else None


def _no_handler(batch: object) -> object:
    return batch


def _run_in_loop(coroutine: Coroutine[Any, Any, object], context: TaskContext) -> object:
    """Run a coroutine to its end, in the loop of the child's coroutines unless that loop is missing or running."""
    loop = context.loop
    if loop is None or loop.is_running():
        return asyncio.run(coroutine)
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        if not task.done() and not context.is_forked:  # the loop raised the exception, not the coroutine
            task.cancel()
            loop.run_until_complete(asyncio.wait([task]))
        raise


def _named(error: BaseException, context: TaskContext) -> BaseException:
    """Return the error to report.

    If the task was told to end, this is the reason for that, unless the handler decided by an exception of its own.
    """
    told = context.interruption
    if told is None or told not in TOLD_TO_END or isinstance(error, Retry) or caused_by(error, DECIDED):
        return error
    reason = reason_for(told)
    if not isinstance(error, type(reason)):
        return reason.with_traceback(error.__traceback__)
    if error.args == type(reason)().args:
        error.args = reason.args  # a thread gets the exception without its text
    return error


def _archives(kind: EventKind, task: RunningTask) -> bool:
    return kind is _SKIP_RETRY or (kind not in _NO_FAILURES and task.retried >= task.max_retry)


def _kind(error: BaseException, told: EventKind | None, final: str) -> EventKind:
    if isinstance(error, TaskTimeout):
        return EventKind.TIMEOUT
    if isinstance(error, TaskCanceled):
        return EventKind.MEMORY_LIMIT if told is EventKind.MEMORY_LIMIT else EventKind.CANCELED
    if isinstance(error, HandlerNotFoundError):
        return EventKind.NOT_FOUND
    if told is not None and told in TOLD_TO_END and isinstance(error, Retry):
        return told  # the task was told to end, and its handler answered with ``Retry``
    if not final:
        return _FAILED
    return next((kind for decision, kind in DECISIONS.items() if caused_by(error, decision)), _SKIP_RETRY)
