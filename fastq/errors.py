"""Every error of fastq, and apart from them the signals with which a handler says what is to happen to its task.

``FastqError`` is the base of all errors. Facts (queue, task id, operation) are attributes, the text says what to do.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

__all__ = [
    "BadLinesError",
    "BrokerAuthError",
    "BrokerConnectionError",
    "BrokerError",
    "BrokerOutOfMemoryError",
    "BrokerReadOnlyError",
    "BrokerTimeoutError",
    "CronSpecError",
    "DuplicateTaskError",
    "FastqError",
    "HandlerNotFoundError",
    "InvalidMessageError",
    "LeaseExpiredError",
    "QueueNotEmptyError",
    "QueueNotFoundError",
    "QueuePausedError",
    "QueueStateError",
    "RevokeTask",
    "SchedulerEntryNotFoundError",
    "SemaphoreFullError",
    "ServerClosedError",
    "ServerNotListeningError",
    "ServerStartError",
    "SkipRetry",
    "TaskCanceled",
    "TaskEndedError",
    "TaskIDConflictError",
    "TaskNotFoundError",
    "TaskStateError",
    "TaskTimeout",
    "WorkerCrashedError",
]


class FastqError(Exception):
    """Be the base of every error that fastq raises on purpose."""


class _TaskError(FastqError):
    """Carry the queue and id of the task that an error is about."""

    _text = ""

    def __init__(self, queue: str = "", task_id: str = "") -> None:
        self.queue = queue
        self.task_id = task_id
        super().__init__(self._text.format(queue=queue, task_id=task_id))

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.queue, self.task_id)


class DuplicateTaskError(_TaskError):
    """Tell that another task holds the unique lock; nothing was written."""

    _text = "task already exists: another task holds the unique lock (queue={queue!r}, task_id={task_id!r})"


class TaskIDConflictError(_TaskError):
    """Tell that a task with this id is in the queue, in whatever state; nothing was written."""

    _text = "task ID conflicts with another task (queue={queue!r}, task_id={task_id!r})"


class TaskNotFoundError(_TaskError, LookupError):
    """Tell that the queue has no task with this id."""

    _text = "task not found (queue={queue!r}, task_id={task_id!r})"


class LeaseExpiredError(_TaskError):
    """Tell that this server no longer owns the task."""

    _text = "task lease expired (queue={queue!r}, task_id={task_id!r})"


class QueueNotFoundError(_TaskError, LookupError):
    """Tell that no queue has this name."""

    _text = "queue not found (queue={queue!r})"


class TaskStateError(_TaskError):
    """Tell that a task is in a state in which this cannot be done to it; nothing was changed.

    ``state`` is that state; "aggregation" is that of a task that is being made into another right now.
    """

    def __init__(self, queue: str = "", task_id: str = "", action: str = "", state: str = "") -> None:
        self.queue = queue
        self.task_id = task_id
        self.action = action
        self.state = state
        hint = "; cancel it instead" if state == "active" else ""
        FastqError.__init__(
            self, f"cannot {action} a task in state {state!r}{hint} (queue={queue!r}, task_id={task_id!r})"
        )

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.queue, self.task_id, self.action, self.state)


class QueueNotEmptyError(_TaskError):
    """Tell that a queue still has tasks; ``sizes`` says how many in which states."""

    def __init__(self, queue: str = "", sizes: Mapping[str, int] | None = None) -> None:
        self.queue = queue
        self.sizes = {str(state): size for state, size in (sizes or {}).items() if size}
        listed = ", ".join(f"{size} {state}" for state, size in self.sizes.items())
        FastqError.__init__(self, f"queue is not empty{': it has ' if listed else ''}{listed} (queue={queue!r})")

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.queue, self.sizes)


class QueueStateError(FastqError):
    """Tell that a queue that is to be paused is paused already, or one to be resumed is not; nothing was changed."""

    def __init__(self, queue: str = "", *, paused: bool = False) -> None:
        self.queue = queue
        self.paused = paused
        super().__init__(f"queue is {'already' if paused else 'not'} paused (queue={queue!r})")

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), paused=self.paused), (self.queue,)


class QueuePausedError(QueueStateError):
    """Raised where tasks are waited for that nobody takes: the queue is paused; ``sizes`` says what is in it."""

    def __init__(self, queue: str = "", sizes: Mapping[str, int] | None = None) -> None:
        self.queue = queue
        self.paused = True
        self.sizes = {str(state): size for state, size in (sizes or {}).items() if size}
        listed = ", ".join(f"{size:,} {state}" for state, size in self.sizes.items())
        FastqError.__init__(self, f"queue is paused{f', with {listed} in it' if listed else ''} (queue={queue!r})")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.queue, self.sizes)


class BadLinesError(FastqError, ValueError):
    """Raised where lines of an import cannot be read: nothing was put of a list, nor of the 200 lines of an iterator.

    ``report``, an ``ImportReport``, says what was done before, and names the first bad lines.
    """

    def __init__(self, report: Any, total: int = 1) -> None:
        self.report = report
        self.total = total
        first = report.bad_lines[0]
        one = f"line {first['line']}: {first['error']}"
        super().__init__(one if report.bad == 1 else f"{report.bad:,} of {total:,} lines are bad")

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.report, self.total)


class ServerClosedError(FastqError):
    """Tell that the server was shut down and cannot be used again."""


class ServerNotListeningError(FastqError):
    """Raised where a server cannot be told anything: it is one of Go's, is gone, or may not subscribe."""

    def __init__(self, server_id: str) -> None:
        self.server_id = server_id
        super().__init__(f"server does not listen: it is a server of Go, or gone, or may not (server_id={server_id!r})")

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.server_id,)


class ServerStartError(FastqError):
    """Tell that a server cannot begin, or go on: its app, its children or Redis; the text says why."""


class HandlerNotFoundError(FastqError, LookupError):
    """Tell that no pattern of the mux matches the task's type."""

    def __init__(self, task_type: str) -> None:
        self.task_type = task_type
        super().__init__(f"handler not found for task {task_type!r}")

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.task_type,)


class SemaphoreFullError(FastqError):
    """Tell that all tokens of a semaphore are held by other tasks; in a handler it has the task tried again."""

    def __init__(self, scope: str, max_tokens: int) -> None:
        self.scope = scope
        self.max_tokens = max_tokens
        super().__init__(f"all {max_tokens} tokens of semaphore {scope!r} are held by other tasks")

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (self.scope, self.max_tokens)


class InvalidMessageError(FastqError, ValueError):
    """Tell that bytes are not a message that asynq would accept, or that a message cannot be encoded."""


class CronSpecError(FastqError, ValueError):
    """Tell that a cron spec is malformed.

    ``position`` is where in ``spec`` what is wrong begins, in characters from 0; ``reason`` says what is wrong with it.
    """

    def __init__(self, spec: str, position: int, reason: str) -> None:
        self.spec = spec
        self.position = position
        self.reason = reason
        super().__init__(f"cron spec {spec!r}, position {position}: {reason}")

    def __reduce__(self) -> tuple[type, tuple[str, int, str]]:
        return type(self), (self.spec, self.position, self.reason)


class SchedulerEntryNotFoundError(FastqError, LookupError):
    """Tell that the scheduler has no entry with this id."""

    def __init__(self, entry_id: str) -> None:
        self.entry_id = entry_id
        super().__init__(f"scheduler entry not found (entry_id={entry_id!r})")

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.entry_id,)


class TaskEndedError(FastqError, RuntimeError):
    """Tell that a task does not run in this process: its handler has ended, or this is a fork of its worker process."""


class WorkerCrashedError(FastqError):
    """Tell that the child process died while it ran the task, or was killed because the task blocked its event loop."""


class BrokerError(FastqError):
    """Tell that Redis refused or failed an operation.

    ``operation`` names it; ``maybe_applied`` is true when the request was sent and its reply lost, so that it may or
    may not have been carried out; ``transient`` when asking again later may work. An error that ends an
    ``enqueue_many`` has in ``results`` what became of the tasks until then.
    """

    transient = False
    results: Sequence[Any] | None = None

    def __init__(self, message: str, *, operation: str = "", maybe_applied: bool = False) -> None:
        self.operation = operation
        self.maybe_applied = maybe_applied
        super().__init__(f"{operation}: {message}" if operation else message)


class BrokerConnectionError(BrokerError, ConnectionError):
    """Tell that Redis cannot be reached, or went away while it was asked."""

    transient = True


class BrokerTimeoutError(BrokerError, TimeoutError):
    """Tell that Redis did not answer in time."""

    transient = True


class BrokerAuthError(BrokerError, PermissionError):
    """Tell that Redis wants a user name or password, refuses the one given, or forbids the command to this user."""


class BrokerReadOnlyError(BrokerError):
    """Tell that the server reached takes no writes: it is a replica, cannot save to disk, or lacks replicas."""


class BrokerOutOfMemoryError(BrokerError):
    """Tell that Redis is at its maxmemory and takes no writes."""


class SkipRetry(Exception):  # noqa: N818 - asynq's name; raised to decide, not to report a defect
    """Raise in a handler to archive the task without further retries."""


class RevokeTask(Exception):  # noqa: N818 - asynq's name
    """Raise in a handler to delete the task: neither retried nor archived."""


class TaskTimeout(BaseException):
    """Be raised inside a handler whose time is up; clean up and let it pass.

    Not an ``Exception``: an ``except Exception`` in a handler must not stop it.
    """


class TaskCanceled(BaseException):
    """Be raised inside a handler whose task was canceled, or has made its process grow above ``memory_limit``.

    Clean up and let it pass.
    """
