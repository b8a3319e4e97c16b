"""Runs a task's handler in this process, through the mux, its middleware and the hooks, and returns the outcome.

The code of a server's child and main process encodes and decodes the message, calls the handler, and determines the
outcome. Only the effects of a separate process are missing: the handler sees its time limits, but they do not end it.
"""

import asyncio
import contextvars
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, Unpack

import orjson

from fastq.broker.operations.finish import FATES, Archived, Disposition, Retried, RunOutcome
from fastq.checkpoint import Unserved, with_checkpoint
from fastq.common.callables import is_async
from fastq.enqueueing.producer import as_task, compose
from fastq.errors import TaskCanceled, TaskTimeout
from fastq.hooks import Hooks
from fastq.mux import ServeMux
from fastq.options import EnqueueOptions, check_options
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.runner import Answer
from fastq.running import RunningTask
from fastq.server.base.retry_delay import default_retry_delay
from fastq.server.inflight.dispositions import disposition_of
from fastq.server.inflight.tasks import InFlightTask
from fastq.task import Task
from fastq.wire.codec import TaskView, decode_task_message, rewrite_task_message, view_task_message
from fastq.worker.child.handler_runner import HandlerRunner
from fastq.worker.shared.report import FailureReport

T = TypeVar("T")

NO_HOOKS: Final = Hooks()
A_FAILURE: Final = frozenset({TaskTimeout, TaskCanceled, SystemExit})
"""Further exceptions, besides ``Exception``, that count as failures. Others, such as Ctrl-C, propagate to the test."""


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One run of a task: the result of the handler, and the decisions of a server.

    ``result`` is kept with the task: the return value, or else the last written result, or None. ``written`` are all
    written results. ``error`` is the exception, ``error_text`` its stored form. ``is_failure`` and ``retry_in``
    (seconds, None without a retry) are decided by the hooks or the defaults. ``hooks`` are the names of the hooks that
    were called, in order. ``checkpoint`` is the last state that the handler saved, as JSON.
    """

    id: str
    queue: str
    type: str
    payload: bytes
    retried: int
    outcome: RunOutcome
    result: bytes | None = None
    written: tuple[bytes, ...] = ()
    error: BaseException | None = None
    error_text: str = ""
    is_failure: bool = False
    retry_in: float | None = None
    hooks: tuple[str, ...] = ()
    checkpoint: bytes | None = None

    def json(self) -> Any:
        """Decode the result as JSON; ``ValueError`` if it is not JSON, or if there is no result."""
        return orjson.loads(self.result or b"")


def run_task(
    mux: ServeMux,
    task: Task | str,
    payload: Any = None,
    *,
    retried: int = 0,
    hooks: Hooks = NO_HOOKS,
    **options: Unpack[EnqueueOptions],
) -> TaskRun:
    """Run a task's handler, plain or async, in this process and return the run; no Redis is needed.

    ``task``, ``payload`` and ``options`` are as for ``Client.enqueue``; ``retried`` is the number of earlier attempts.
    An exception of the handler does not propagate: see ``error``. A batch handler gets a batch with one task. Inside a
    running event loop, an async handler runs on a separate loop in a thread.

    >>> mux = ServeMux()
    >>> @mux.handler("double")
    ... def double(task):
    ...     return 2 * task.json()
    >>> run = run_task(mux, "double", 21)
    >>> run.outcome.value, run.json()
    ('done', 42)
    >>> run = run_task(mux, "double", None, hooks=Hooks(retry_delay=lambda retried, error, task: 7))
    >>> run.outcome.value, type(run.error).__name__, run.retry_in, run.hooks
    ('retry', 'JSONDecodeError', 7.0, ('retry_delay',))
    >>> run_task(mux, "halve", 42, max_retry=0).outcome.value
    'archive'
    """
    batch, _ = compose(as_task(task, payload), check_options(options), time.time_ns())
    data = rewrite_task_message(batch.tasks[0].message, retried=retried)
    run, _ = MessageRunner(mux, hooks).run(InFlightTask(batch.queue, view_task_message(data), 0.0, 1))
    return run


class MessageRunner:
    """A runner of encoded tasks, as in a server's child; outcomes are determined as in its main process."""

    def __init__(self, mux: ServeMux, hooks: Hooks = NO_HOOKS) -> None:
        if not isinstance(mux, ServeMux):
            raise TypeError(f"mux must be a ServeMux, not {type(mux).__name__}: {mux!r}")
        self._mux = mux
        self._hooks = hooks
        self._batchings = mux._batchings()
        self.most = max([1, *(one.size for one in self._batchings.values())])
        """The most tasks that one call can have."""

    def batch_of(self, task_type: str) -> tuple[str, int]:
        """Return the pattern of a type, and how many of its tasks one call may have."""
        pattern = self._mux.match(task_type)[1]
        return pattern, self._batchings[pattern].size if pattern in self._batchings else 1

    def run_batch(self, tasks: Sequence[InFlightTask]) -> list[tuple[TaskRun, Disposition]]:
        """Run tasks of a batch handler in one call."""
        call = _Call(self._mux, tasks, self._hooks)
        if self._is_async(call.data[0]):
            return call.judged(_run_coroutine(_all_awaited(call)))
        return call.judged(contextvars.copy_context().run(call.runner.run_batch, call.data, call.contexts))

    async def run_batch_async(self, tasks: Sequence[InFlightTask]) -> list[tuple[TaskRun, Disposition]]:
        """Run tasks of one batch handler as ``run_async`` does."""
        call = _Call(self._mux, tasks, self._hooks)
        if self._is_async(call.data[0]):
            return call.judged(await asyncio.create_task(_all_awaited(call)))
        return call.judged(await asyncio.to_thread(call.runner.run_batch, call.data, call.contexts))

    def run(self, in_flight: InFlightTask) -> tuple[TaskRun, Disposition]:
        """Run a task; return the run and its disposition."""
        attempt, data = _Attempt(self._mux, in_flight, self._hooks), in_flight.view.data
        if self._is_async(data):
            return attempt.judged(_run_coroutine(_awaited(attempt.runner, data, attempt.context)))
        return attempt.judged(contextvars.copy_context().run(attempt.runner.run, data, attempt.context))

    async def run_async(self, in_flight: InFlightTask) -> tuple[TaskRun, Disposition]:
        """Run a task as ``run`` does: an async handler on the running loop, a plain one in a thread."""
        attempt, data = _Attempt(self._mux, in_flight, self._hooks), in_flight.view.data
        if self._is_async(data):
            return attempt.judged(await asyncio.create_task(_awaited(attempt.runner, data, attempt.context)))
        return attempt.judged(await asyncio.to_thread(attempt.runner.run, data, attempt.context))

    def _is_async(self, data: bytes) -> bool:
        return is_async(self._mux.match(view_type(data))[0])


class _Attempt:
    """One run of a task: what its handler needs, and the decision that a server would make about the outcome."""

    def __init__(self, mux: ServeMux, in_flight: InFlightTask, hooks: Hooks) -> None:
        self.context = _Context(_time_is_up_ns(in_flight.view))
        self._in_flight = in_flight
        self.recorder = _Recorder(hooks)
        self.runner = HandlerRunner(mux, self.recorder.hooks(), keep_results=True)

    def judged(self, answer: Answer) -> tuple[TaskRun, Disposition]:
        """Return the run and its disposition."""
        in_flight, context, recorder = self._in_flight, self.context, self.recorder
        kind, data = answer or (EventKind.DONE, b"")
        error = recorder.error
        if error is not None and not isinstance(error, Exception) and type(error) not in A_FAILURE:
            raise error
        if context.checkpoint is not None:
            in_flight.view = view_task_message(with_checkpoint(in_flight.view.data, context.checkpoint))
        in_flight.written = context.written[-1] if context.written else None
        now_s = time.time_ns() // 1_000_000_000
        disposition = disposition_of(in_flight, kind, data, now_s, default_retry_delay)
        message = decode_task_message(in_flight.view.data)
        run = TaskRun(
            id=message.id,
            queue=in_flight.queue,
            type=message.type,
            payload=message.payload,
            retried=message.retried,
            outcome=RunOutcome.REVOKE if kind is EventKind.REVOKED else FATES[type(disposition)].run,
            result=data if kind is EventKind.RESULT else in_flight.written,
            written=tuple(context.written),
            error=error,
            error_text=FailureReport.decode(data).error if error is not None else "",
            is_failure=isinstance(disposition, Archived)
            or (isinstance(disposition, Retried) and disposition.is_failure),
            retry_in=float(disposition.retry_at_s - now_s) if isinstance(disposition, Retried) else None,
            hooks=tuple(recorder.asked),
            checkpoint=context.checkpoint,
        )
        return run, disposition


class _Call:
    """One call for several tasks: an attempt for each, and hooks whose calls are recorded in the attempt concerned."""

    def __init__(self, mux: ServeMux, tasks: Sequence[InFlightTask], hooks: Hooks) -> None:
        self._attempts = [_Attempt(mux, task, hooks) for task in tasks]
        self._recorders = {task.id: one.recorder for task, one in zip(tasks, self._attempts, strict=True)}
        self._recorder = self._attempts[0].recorder
        self.data = [task.view.data for task in tasks]
        self.contexts = [one.context for one in self._attempts]
        own = self._recorder.hooks()
        self.runner = HandlerRunner(
            mux,
            Hooks(
                self._error_handler,
                own.is_failure and self._is_failure,
                own.retry_delay and self._retry_delay,
            ),
            keep_results=True,
        )

    def _error_handler(self, task: RunningTask, error: BaseException) -> None:
        self._recorder = self._recorders[task.id]  # the next hooks are called for this task
        self._recorder._error_handler(task, error)

    def _is_failure(self, error: BaseException) -> bool:
        return self._recorder._is_failure(error)

    def _retry_delay(self, retried: int, error: BaseException, task: RunningTask) -> Any:
        return self._recorder._retry_delay(retried, error, task)

    def judged(self, answers: list[Answer] | None) -> list[tuple[TaskRun, Disposition]]:
        """Return the runs and their dispositions."""
        of_each = answers or [None] * len(self._attempts)
        return [one.judged(answer) for one, answer in zip(self._attempts, of_each, strict=True)]


async def _all_awaited(call: _Call) -> list[Answer] | None:
    return await call.runner.run_batch_async(call.data, call.contexts)


async def _awaited(runner: HandlerRunner, data: bytes, context: "_Context") -> Answer:
    return await runner.run_async(data, context)


def _run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, even if a loop is already running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(contextvars.copy_context().run, asyncio.run, coroutine).result()


def view_type(data: bytes) -> str:
    """Return the type in an encoded message."""
    return decode_task_message(data).type


def _time_is_up_ns(view: TaskView) -> int:
    """Return at which time of CLOCK_MONOTONIC the time limit of a handler that begins now ends."""
    limits = [float(view.timeout)] if view.timeout else []
    if view.deadline:
        limits.append(view.deadline - time.time())
    return time.monotonic_ns() + int((min(limits) if limits else 1800.0) * 1e9)


class _Context(Unserved):
    """A substitute for the pool's context: it has the time limit, and records what the handler writes."""

    interruption = None
    is_forked = False

    def __init__(self, deadline_ns: int) -> None:
        self.started_ns = time.monotonic_ns()
        self.deadline_ns = deadline_ns
        self.written: list[bytes] = []
        self.checkpoint: bytes | None = None

    def write_result(self, data: bytes) -> None:
        self.written.append(data)

    def write_progress(self, data: bytes, is_soon: bool) -> None:
        """Drop the progress, since nothing can read it."""

    def save(self, data: bytes) -> int:
        self.checkpoint = data
        return 0


@dataclass
class _Recorder:
    """A wrapper of the hooks that records which hooks are called, and the error."""

    given: Hooks
    asked: list[str] = field(default_factory=list)
    error: BaseException | None = None

    def hooks(self) -> Hooks:
        given = self.given
        return Hooks(
            self._error_handler,
            self._is_failure if given.is_failure else None,
            self._retry_delay if given.retry_delay else None,
        )

    def _error_handler(self, task: RunningTask, error: BaseException) -> None:
        self.error = error
        if self.given.error_handler is not None:
            self.asked.append("error_handler")
            self.given.error_handler(task, error)

    def _is_failure(self, error: BaseException) -> bool:
        assert self.given.is_failure is not None
        self.asked.append("is_failure")
        return self.given.is_failure(error)

    def _retry_delay(self, retried: int, error: BaseException, task: RunningTask) -> Any:
        assert self.given.retry_delay is not None
        self.asked.append("retry_delay")
        return self.given.retry_delay(retried, error, task)
