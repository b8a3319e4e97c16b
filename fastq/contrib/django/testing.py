"""``InlineBackend``: the backend for tests of code that enqueues Django's tasks, without Redis and workers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.utils import timezone

from fastq.common.states import TaskState
from fastq.contrib.django.backend import KNOWN_TASKS, FastqBackend
from fastq.contrib.django.framework import AnyResult, AnyTask, TaskResultDoesNotExist
from fastq.contrib.django.handlers import plain_handler_of
from fastq.errors import TaskNotFoundError
from fastq.info import TaskInfo
from fastq.inspector.records import FailedAttempt
from fastq.mux import ServeMux
from fastq.running import RunningTask
from fastq.task import Task as Message
from fastq.testing import RunOutcome
from fastq.testing.inline import InlineClient
from fastq.testing.runs import TaskRun
from fastq.worker.shared.report import trace_of

_STATES = {
    RunOutcome.DONE: TaskState.COMPLETED,
    RunOutcome.RETRY: TaskState.RETRY,
    RunOutcome.ARCHIVE: TaskState.ARCHIVED,
}


class _Client(InlineClient):
    """An ``InlineClient`` that can put off its runs."""

    @contextmanager
    def running_after(self) -> Iterator[None]:
        """Run the tasks that the block enqueues at the end of the block, after the receivers of ``task_enqueued``."""
        if self._is_running:  # this is inside a task; the tasks that it enqueues run after it
            yield
            return
        with self._working():
            yield
        self._work()


class InlineBackend(FastqBackend):
    """A ``FastqBackend`` that runs each task at once, in this thread, so that it sees the transaction of the test.

    Each task runs once. A failed task that has retries left waits for ``client.run_waiting()``, as does a task with a
    ``run_after`` in the future. OPTIONS are those of ``FastqBackend``, but ``enqueue_on_commit`` is False by default.
    If you set it to True, use Django's ``captureOnCommitCallbacks(execute=True)``. With ``raise_errors``, ``enqueue``
    raises the error of the task. ``client`` is the ``fastq.testing.InlineClient``.
    """

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        options = {"enqueue_on_commit": False, **params.get("OPTIONS", {})}
        raise_errors = bool(options.pop("raise_errors", False))
        super().__init__(alias, {**params, "OPTIONS": options})
        self._mux: ServeMux[Any] = ServeMux()
        self._client = _Client(self._mux, raise_errors=raise_errors)
        self._times: dict[int, tuple[datetime, datetime]] = {}  # when each of the client's runs began and ended

    @property
    def client(self) -> InlineClient:
        """Return the client, which records the tasks and their runs."""
        return self._client

    def validate_task(self, task: AnyTask) -> None:
        """Check a task, and register its handler with the client."""
        super().validate_task(task)
        pattern = f"{task.module_path}\0"
        if pattern not in self._mux.patterns():
            self._mux.handle(pattern, self._timed(plain_handler_of(KNOWN_TASKS.get(task.module_path, task))))

    def _timed(self, handle: Callable[[RunningTask], Any]) -> Callable[[RunningTask], Any]:
        """Wrap a handler so that the times of its runs are recorded."""

        def run(running: RunningTask) -> Any:
            started_at = timezone.now()
            try:
                return handle(running)
            finally:
                self._times[len(self._client.runs)] = (started_at, timezone.now())

        return run

    def _send(self, message: Message, result: AnyResult, run_after: datetime | None) -> None:
        with self._client.running_after():
            super()._send(message, result, run_after)
        with suppress(TaskResultDoesNotExist):  # the task was revoked
            result.refresh()

    def _read(self, queue: str, task_id: str) -> tuple[TaskInfo, Sequence[FailedAttempt]]:
        found = [each for each in self._client.enqueued if (each.queue, each.id) == (queue, task_id)]
        runs = {n: each for n, each in enumerate(self._client.runs) if (each.queue, each.id) == (queue, task_id)}
        last = max(runs, default=0)
        if not found or (runs and runs[last].outcome not in _STATES):
            raise TaskNotFoundError(queue, task_id)
        if not runs:
            return found[0], ()
        run, ended_at = runs[last], self._times[last][1]
        attempts = [_attempt(each, *self._times[n]) for n, each in runs.items() if each.error is not None]
        retried = run.retried + (run.outcome is RunOutcome.RETRY and run.is_failure)
        info = replace(found[0], state=_STATES[run.outcome], result=run.result, retried=retried, completed_at=ended_at)
        return replace(info, last_err=run.error_text, last_failed_at=ended_at if attempts else None), attempts


def _attempt(run: TaskRun, started_at: datetime, ended_at: datetime) -> FailedAttempt:
    assert run.error is not None
    return FailedAttempt(run.retried + 1, started_at, ended_at, "inline", run.error_text, "", trace_of(run.error))
