"""Run the app's hooks for what has no child of its own: dead children's tasks, recovered tasks, the health check.

The pool of one that the server keeps for this loads it by name (``fastq.worker.hook_runner:load``). A request is JSON
(and the task's message after a newline), an answer is a ``FailureReport`` or nothing.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from fastq.errors import (
    BrokerError,
    LeaseExpiredError,
    TaskCanceled,
    TaskEndedError,
    TaskTimeout,
    WorkerCrashedError,
)
from fastq.hooks import Hooks
from fastq.pool.event_kind import EventKind
from fastq.pool.runner import Answer, TaskContext
from fastq.running import RunningTask
from fastq.wire.codec import decode_task_message
from fastq.worker.hooks import ChildHooks, child_hooks_of, failure_report, hooks_named, lost_report
from fastq.worker.names import resolve

__all__ = ["HookRunner", "health_request", "judge_request", "load"]

ERRORS: Final[dict[str, Callable[[str], BaseException]]] = {
    "crashed": WorkerCrashedError,
    "timeout": TaskTimeout,
    "canceled": TaskCanceled,
    "lease_expired": lambda text: LeaseExpiredError(),
}


def judge_request(error: str, text: str, message: bytes) -> bytes:
    """Ask what follows from an error (a key of ``ERRORS``) of a task."""
    return orjson.dumps({"judge": error, "text": text}) + b"\n" + message


def health_request(error: str | None) -> bytes:
    """Ask for the health check to be run with None or the error's text."""
    return orjson.dumps({"health": error}) + b"\n"


def load(argument: str) -> "HookRunner":
    """Import the hooks that the JSON argument names, and those for the child itself of its ``app``."""
    names: dict[str, Any] = orjson.loads(argument)
    child_hooks = child_hooks_of(names.pop("app", None))
    health_check = names.pop("health_check", None)
    return HookRunner(hooks_named(**names), resolve(health_check) if health_check else None, child_hooks)


class _EndedContext:
    """What a hook may ask about a task that does not run any more."""

    def __init__(self, call: TaskContext) -> None:
        self.started_ns, self.deadline_ns = call.started_ns, call.deadline_ns

    def write_result(self, data: bytes) -> None:
        """Refuse."""
        raise TaskEndedError("it has ended")


class HookRunner:
    """The runner of hooks, one at a time."""

    has_plain = True
    has_async = False
    description = ""

    def __init__(self, hooks: Hooks, health_check: Any, child_hooks: ChildHooks = ((), ())) -> None:
        self._hooks = hooks
        self._health_check = health_check
        self.child_start, self.child_stop = child_hooks

    def run(self, data: bytes, context: TaskContext) -> Answer:
        """Run what is asked for; what a hook raises passes, and is logged by the server."""
        head, _, message = data.partition(b"\n")
        request: dict[str, Any] = orjson.loads(head)
        if "health" in request:
            text = request["health"]
            self._health_check(None if text is None else BrokerError(text))
            return None
        task = RunningTask(decode_task_message(message), _EndedContext(context))
        error = ERRORS[request["judge"]](request["text"])
        if isinstance(error, LeaseExpiredError):
            return EventKind.RESULT, lost_report(self._hooks, task, error).encode()
        return EventKind.RESULT, failure_report(self._hooks, task, error).encode()

    def run_async(self, data: bytes, context: TaskContext) -> Awaitable[Answer]:
        """Refuse: hooks are plain functions."""
        raise NotImplementedError("hooks are plain functions")
