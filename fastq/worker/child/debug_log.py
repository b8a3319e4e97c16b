"""The log of running tasks: debug lines at start and end; in JSON, each line of a handler has its task's data, too."""

import logging
import time
from collections.abc import Sequence
from typing import Any

from fastq.errors import InvalidMessageError
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.runner import Answer, Runner, TaskContext
from fastq.running import CURRENT
from fastq.wire.codec import TaskMessage, decode_task_message

_log = logging.getLogger("fastq.worker")


class DebugLogRunner:
    """A runner around another one that logs. Failures are logged by the main process, which knows what follows."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.has_plain = runner.has_plain
        self.has_async = runner.has_async
        self.description = runner.description
        self.child_start, self.child_stop = runner.child_start, runner.child_stop

    def run(self, data: bytes, context: TaskContext) -> Answer:
        """Run a plain task to its end."""
        began_s = time.monotonic()
        about = _about(data)
        _log_line(about, "begins")
        answer = self._runner.run(data, context)
        _log_end(about, answer, context, began_s)
        return answer

    async def run_async(self, data: bytes, context: TaskContext) -> Answer:
        """Run a coroutine's task to its end."""
        began_s = time.monotonic()
        about = _about(data)
        _log_line(about, "begins")
        answer = await self._runner.run_async(data, context)
        _log_end(about, answer, context, began_s)
        return answer

    def run_batch(self, data: Sequence[bytes], contexts: Sequence[TaskContext]) -> list[Answer] | None:
        """Run tasks of a batch handler by one call."""
        began_s = time.monotonic()
        about = [_about(one) for one in data]
        for each in about:
            _log_line(each, "begins")
        answers = self._runner.run_batch(data, contexts)
        _log_ends(about, answers, contexts, began_s)
        return answers

    async def run_batch_async(self, data: Sequence[bytes], contexts: Sequence[TaskContext]) -> list[Answer] | None:
        """Run tasks of a batch handler by one call."""
        began_s = time.monotonic()
        about = [_about(one) for one in data]
        for each in about:
            _log_line(each, "begins")
        answers = await self._runner.run_batch_async(data, contexts)
        _log_ends(about, answers, contexts, began_s)
        return answers


def about_current_task() -> dict[str, Any]:
    """Return the data of the task whose handler logs a line, and how long the task has run; {} outside of handlers."""
    task = CURRENT.get(None)
    if task is None:
        return {}
    ran_ns = time.monotonic_ns() - task._context.started_ns
    return {**_facts(task._message), "ran_s": round(ran_ns / 1e9, 6)}


def _about(data: bytes) -> dict[str, Any]:
    try:
        return _facts(decode_task_message(data))
    except InvalidMessageError:
        return {}


def _facts(message: TaskMessage) -> dict[str, Any]:
    return {
        "task_id": message.id,
        "task_type": message.type,
        "queue": message.queue,
        "attempt": message.retried + 1,
        "max_attempts": message.retry + 1,
    }


def _log_end(about: dict[str, Any], answer: Answer, context: TaskContext, began_s: float) -> None:
    ran_s = time.monotonic() - began_s
    if context.interruption is None and (answer is None or answer[0] is EventKind.RESULT):
        _log_line(about, f"is done after {ran_s:.3f} s,", outcome="done", ran_s=round(ran_s, 6))


def _log_ends(
    about: Sequence[dict[str, Any]],
    answers: Sequence[Answer] | None,
    contexts: Sequence[TaskContext],
    began_s: float,
) -> None:
    for each, answer, context in zip(about, answers or [None] * len(about), contexts, strict=True):
        _log_end(each, answer, context, began_s)


def _log_line(about: dict[str, Any], what: str, **more: Any) -> None:
    if about:
        where = (about["task_id"], about["task_type"], about["queue"], what, about["attempt"], about["max_attempts"])
        _log.debug("task %s (%s, queue %s) %s attempt %d of %d", *where, extra={"about": {**about, **more}})
