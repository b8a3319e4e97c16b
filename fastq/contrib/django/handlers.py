"""The handlers of Django's tasks: they call the function of a task, and send Django's signals."""

import os
import socket
from collections.abc import Callable
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any

from django.utils import timezone

from fastq.common.callables import refuse_unrun
from fastq.contrib.django.framework import (
    AnyResult,
    AnyTask,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    task_finished,
    task_started,
)
from fastq.contrib.django.results import ENQUEUED_AT, kept_value, result_id_of
from fastq.errors import RevokeTask, Snooze
from fastq.running import RunningTask
from fastq.worker.child.hooks import caused_by, why_final
from fastq.worker.shared.report import trace_of


def handler_of(task: AnyTask) -> Callable[[RunningTask], Any]:
    """Return the handler of a task, which is async if its function is."""
    return async_handler_of(task) if iscoroutinefunction(task.func) else plain_handler_of(task)


def plain_handler_of(task: AnyTask) -> Callable[[RunningTask], Any]:
    """Return a plain handler of a task; it runs a coroutine as Django does, with this thread's connections."""

    def run(running: RunningTask) -> dict[str, Any]:
        attempt = _Attempt(task, running)
        task_started.send_robust(attempt.sender, task_result=attempt.result)
        try:
            value = task.call(*attempt.args, **attempt.result.kwargs)
            refuse_unrun(value, f"task {task.module_path!r}")
        except BaseException as error:
            if attempt.fails(error):
                task_finished.send_robust(attempt.sender, task_result=attempt.result)
            raise
        kept = attempt.succeeds(value)
        task_finished.send_robust(attempt.sender, task_result=attempt.result)
        return kept

    return run


def async_handler_of(task: AnyTask) -> Callable[[RunningTask], Any]:
    """Return an async handler of an async task."""

    async def run(running: RunningTask) -> dict[str, Any]:
        attempt = _Attempt(task, running)
        await task_started.asend_robust(attempt.sender, task_result=attempt.result)
        try:
            value = await task.func(*attempt.args, **attempt.result.kwargs)
            refuse_unrun(value, f"task {task.module_path!r}")
        except BaseException as error:
            if attempt.fails(error):
                await task_finished.asend_robust(attempt.sender, task_result=attempt.result)
            raise
        kept = attempt.succeeds(value)
        await task_finished.asend_robust(attempt.sender, task_result=attempt.result)
        return kept

    return run


class _Attempt:
    """One attempt of a task, with the ``TaskResult`` that Django's signals pass on."""

    def __init__(self, task: AnyTask, running: RunningTask) -> None:
        call, started_at = running.json(), timezone.now()
        enqueued_at = running.headers.get(ENQUEUED_AT)
        self.result: AnyResult = TaskResult(
            task=task,
            id=result_id_of(running.queue, running.id),
            status=TaskResultStatus.RUNNING,
            enqueued_at=datetime.fromisoformat(enqueued_at) if enqueued_at else None,
            started_at=started_at,
            finished_at=None,
            last_attempted_at=started_at,
            args=call["args"],
            kwargs=call["kwargs"],
            backend=task.backend,
            errors=[],
            worker_ids=[*[""] * running.retried, f"{socket.gethostname()}:{os.getpid()}"],
        )
        context = [TaskContext(task_result=self.result)] if task.takes_context else []
        self.args = [*context, *self.result.args]
        self.sender = type(task.get_backend())
        self._running = running
        self._started_at = started_at

    def succeeds(self, value: object) -> dict[str, Any]:
        """Set the return value of ``result``; return what is stored in Redis."""
        self._end(TaskResultStatus.SUCCESSFUL)
        object.__setattr__(self.result, "_return_value", value)
        return kept_value(value, self._started_at, self.result.worker_ids[-1])

    def fails(self, error: BaseException) -> bool:
        """Return whether the task has failed for good with this error; if so, add the error to ``result``."""
        if isinstance(error, Snooze):
            return False
        left = self._running.max_retry - self._running.retried
        if left > 0 and not why_final(self._running, error) and not caused_by(error, RevokeTask):
            return False
        kind = type(error)
        path = f"{kind.__module__}.{kind.__qualname__}"
        self.result.errors.append(TaskError(exception_class_path=path, traceback=trace_of(error)))
        self._end(TaskResultStatus.FAILED)
        return True

    def _end(self, status: TaskResultStatus) -> None:
        object.__setattr__(self.result, "status", status)
        object.__setattr__(self.result, "finished_at", timezone.now())
