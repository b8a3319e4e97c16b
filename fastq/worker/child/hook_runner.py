"""The runner of hooks that no live child can call: for tasks of dead children, lost tasks, health and credentials.

The server keeps a pool of one child for it, which loads it by name. A request is a line of JSON and the
task's message, if there is one (``worker/shared/requests.py``). An answer is a ``FailureReport``, JSON (credentials)
or nothing.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from fastq.checkpoint import Unserved
from fastq.errors import (
    BrokerError,
    LeaseExpiredError,
    TaskCanceled,
    TaskEndedError,
    TaskTimeout,
    WorkerCrashedError,
)
from fastq.hooks import Hooks
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.runner import Answer, TaskContext
from fastq.running import RunningTask
from fastq.wire.codec import decode_task_message
from fastq.worker.child.hooks import ChildHooks, child_hooks_of, failure_report, hooks_named, lost_report, resolve_hook
from fastq.worker.shared.names import resolve

ERRORS: Final[dict[str, Callable[[str], BaseException]]] = {
    "crashed": WorkerCrashedError,
    "timeout": TaskTimeout,
    "canceled": TaskCanceled,
    "lease_expired": lambda text: LeaseExpiredError(),
}


def load(argument: str) -> "HookRunner":
    """Import the hooks that the JSON argument names, and the child hooks of its ``app``."""
    names: dict[str, Any] = orjson.loads(argument)
    child_hooks = child_hooks_of(names.pop("app", None))
    health_check = names.pop("health_check", None)
    return HookRunner(hooks_named(**names), resolve(health_check) if health_check else None, child_hooks)


class _EndedContext(Unserved):
    """The context of a task that has ended, for hooks."""

    def __init__(self, call: TaskContext) -> None:
        self.started_ns, self.deadline_ns = call.started_ns, call.deadline_ns

    def write_result(self, data: bytes, is_soon: bool = False) -> None:
        """Raise ``TaskEndedError``."""
        raise TaskEndedError("it has ended")

    write_progress = write_result

    def save(self, data: bytes) -> int:
        """Raise ``TaskEndedError``."""
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
        """Call the requested hooks; their exceptions propagate, and the server logs them."""
        head, _, message = data.partition(b"\n")
        request: dict[str, Any] = orjson.loads(head)
        if "health" in request:
            text = request["health"]
            self._health_check(None if text is None else BrokerError(text))
            return None
        if "credentials" in request:
            return EventKind.RESULT, orjson.dumps(resolve_hook("redis_credentials", request["credentials"])())
        task = RunningTask(decode_task_message(message), _EndedContext(context))
        error = ERRORS[request["judge"]](request["text"])
        if isinstance(error, LeaseExpiredError):
            return EventKind.RESULT, lost_report(self._hooks, task, error).encode()
        return EventKind.RESULT, failure_report(self._hooks, task, error).encode()

    def run_async(self, data: bytes, context: TaskContext) -> Awaitable[Answer]:
        """Raise an error: hooks are plain functions."""
        raise NotImplementedError("hooks are plain functions")
