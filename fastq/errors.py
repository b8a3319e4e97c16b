"""Every error of fastq, and the signals with which a handler decides how its task ends.

``FastqError`` is the base of all errors. Facts (queue, task id, operation) are attributes; the text says what to do.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from fastq.common.durations import nanoseconds_of

__all__ = [
    "BadLinesError",
    "BrokerAuthError",
    "BrokerConnectionError",
    "BrokerError",
    "BrokerNotConfirmedError",
    "BrokerOutOfMemoryError",
    "BrokerReadOnlyError",
    "BrokerTimeoutError",
    "CronSpecError",
    "DuplicateTaskError",
    "FastqError",
    "HandlerNotFoundError",
    "InvalidMessageError",
    "LaneStateError",
    "LeaseExpiredError",
    "PayloadError",
    "QueueFullError",
    "QueueNotEmptyError",
    "QueueNotFoundError",
    "QueuePausedError",
    "QueueStateError",
    "RateLimited",
    "Retry",
    "RevokeTask",
    "SchedulerEntryNotFoundError",
    "SemaphoreFullError",
    "ServerClosedError",
    "ServerNotListeningError",
    "ServerStartError",
    "SkipRetry",
    "Snooze",
    "TaskCanceled",
    "TaskEndedError",
    "TaskFailedError",
    "TaskGoneError",
    "TaskIDConflictError",
    "TaskNotFoundError",
    "TaskStateError",
    "TaskTimeout",
    "WorkerCrashedError",
]


class FastqError(Exception):
    """The base class of all errors that fastq raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[FastqError], args: tuple[Any, ...]) -> FastqError:
    """Rebuild an error from its text, without the arguments of its class; its attributes are set afterwards."""
    error = kind.__new__(kind)
    error.args = args
    return error


class _TaskError(FastqError):
    """The base of errors about a task; carries its queue and id."""

    _text = ""

    def __init__(self, queue: str = "", task_id: str = "") -> None:
        self.queue = queue
        self.task_id = task_id
        super().__init__(self._text.format(queue=queue, task_id=task_id))


class DuplicateTaskError(_TaskError):
    """Raised when another task holds the unique lock; nothing was written."""

    _text = "task already exists: another task holds the unique lock (queue={queue!r}, task_id={task_id!r})"


class TaskIDConflictError(_TaskError):
    """Raised when the queue already has a task with this id, in any state; nothing was written."""

    _text = "task ID conflicts with another task (queue={queue!r}, task_id={task_id!r})"


class TaskNotFoundError(_TaskError, LookupError):
    """Raised when the queue has no task with this id."""

    _text = "task not found (queue={queue!r}, task_id={task_id!r})"


class TaskGoneError(TaskNotFoundError):
    """Raised when a task that somebody waits for is not in its queue any more, so that its result is not known.

    It was deleted, canceled, revoked or moved to another queue, its retention is over, or it completed without a
    retention.
    """

    _text = (
        "task is gone: it was deleted, its retention is over, or it completed without a retention "
        "(queue={queue!r}, task_id={task_id!r})"
    )


def not_a_task(given: object) -> TypeError:
    """Return the error for an item that is not a ``Task``."""
    return TypeError(f"enqueue_many takes Task objects, not {type(given).__name__}: {given!r}{hint_of_call(given)}")


def hint_of_call(given: object) -> str:
    """Return a hint on how to enqueue a typed task function; "" if ``given`` is something else."""
    name = getattr(given, "__name__", "") if hasattr(given, "task_options") else ""
    return f"; write {name}.task(...) or {name}.enqueue(...)" if name else ""


def no_attribute(thing: object, what: str, name: str, elsewhere: Mapping[str, str]) -> AttributeError:
    """Return the error for a missing attribute; ``elsewhere`` maps names in other libraries to what to write here."""
    hint = f"; write {elsewhere[name]}" if name in elsewhere else ""
    return AttributeError(f"{what} has no {name!r}{hint}", name=name, obj=thing)


_ERROR_TEXT: Final = re.compile(r"(?P<name>[^\W\d][\w.]*)(: (?P<message>.*?))?( \([^()\n]*:\d+\))?", re.DOTALL)
"""The form in which handlers' errors are stored: ``Class: message (file:line)``."""


class TaskFailedError(_TaskError):
    """Raised when a task that somebody waits for has failed for good and is archived.

    ``error`` is the text of the last failure, as Redis has it. ``error_class`` and ``message`` are its parts; the class
    is "" if the text names none, as on a Go server. ``traceback`` is the traceback of the last failure at the same
    place in the code, with the message of this error only. It is "" if Redis keeps none: after 14 days, or from a Go
    server.
    """

    def __init__(self, queue: str = "", task_id: str = "", error: str = "", traceback: str = "") -> None:
        self.queue = queue
        self.task_id = task_id
        self.error = error
        self.traceback = traceback
        parts = _ERROR_TEXT.fullmatch(error)
        self.error_class = parts["name"] if parts else ""
        self.message = (parts["message"] or "") if parts else error
        FastqError.__init__(self, f"task failed: {error or 'unknown'} (queue={queue!r}, task_id={task_id!r})")


class LeaseExpiredError(_TaskError):
    """Raised when this server no longer owns the task."""

    _text = "task lease expired (queue={queue!r}, task_id={task_id!r})"


class QueueNotFoundError(_TaskError, LookupError):
    """Raised when no queue has this name."""

    _text = "queue not found (queue={queue!r})"


class TaskStateError(_TaskError):
    """Raised when a task's state does not allow the action; nothing was changed.

    ``state`` is the task's state; "aggregation" means that its group is just being combined into another task.
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


class QueueNotEmptyError(_TaskError):
    """Raised when a queue still has tasks; ``sizes`` maps each state to its number of tasks."""

    def __init__(self, queue: str = "", sizes: Mapping[str, int] | None = None) -> None:
        self.queue = queue
        self.sizes = {str(state): size for state, size in (sizes or {}).items() if size}
        listed = ", ".join(f"{size} {state}" for state, size in self.sizes.items())
        FastqError.__init__(self, f"queue is not empty{': it has ' if listed else ''}{listed} (queue={queue!r})")


class QueueStateError(FastqError):
    """Raised when pausing a queue that is already paused, or resuming one that is not; nothing was changed."""

    def __init__(self, queue: str = "", *, paused: bool = False) -> None:
        self.queue = queue
        self.paused = paused
        super().__init__(f"queue is {'already' if paused else 'not'} paused (queue={queue!r})")


class LaneStateError(QueueStateError):
    """Raised when pausing a lane that is already paused, or resuming one that is not; nothing was changed."""

    def __init__(self, queue: str = "", lane: str = "", *, paused: bool = False) -> None:
        self.queue = queue
        self.lane = lane
        self.paused = paused
        what = "already paused" if paused else "not paused itself; `fastq lane ls` shows what else pauses it"
        FastqError.__init__(self, f"lane is {what} (queue={queue!r}, lane={lane!r})")


class QueuePausedError(QueueStateError):
    """Raised when waiting for tasks of a paused queue, which servers leave alone; ``sizes`` counts them by state."""

    def __init__(self, queue: str = "", sizes: Mapping[str, int] | None = None) -> None:
        self.queue = queue
        self.paused = True
        self.sizes = {str(state): size for state, size in (sizes or {}).items() if size}
        listed = ", ".join(f"{size:,} {state}" for state, size in self.sizes.items())
        FastqError.__init__(self, f"queue is paused{f', with {listed} in it' if listed else ''} (queue={queue!r})")


class BadLinesError(FastqError, ValueError):
    """Raised when lines of an import cannot be read.

    If the lines were a list, no line was imported; if they were an iterator, no line of the current 200 was.
    ``report``, an ``ImportReport``, says what was imported before, and names the first bad lines.
    """

    def __init__(self, report: Any, total: int = 1) -> None:
        self.report = report
        self.total = total
        first = report.bad_lines[0]
        one = f"line {first['line']}: {first['error']}"
        super().__init__(one if report.bad == 1 else f"{report.bad:,} of {total:,} lines are bad")


class ServerClosedError(FastqError):
    """Raised when the server was shut down and cannot be used again."""


class ServerNotListeningError(FastqError):
    """Raised when a server does not receive commands: it is a Go server, is gone, or may not subscribe."""

    def __init__(self, server_id: str) -> None:
        self.server_id = server_id
        super().__init__(f"server takes no orders: it is Go's, is gone, or may not listen (server_id={server_id!r})")


class ServerStartError(FastqError):
    """Raised when a server cannot start or continue, because of its app, its children or Redis; the text says why."""


class HandlerNotFoundError(FastqError, LookupError):
    """Raised when no pattern of the mux matches the task's type."""

    def __init__(self, task_type: str) -> None:
        self.task_type = task_type
        super().__init__(f"handler not found for task {task_type!r}")


class InvalidMessageError(FastqError, ValueError):
    """Raised when bytes are not a message that asynq would accept, or when a message cannot be encoded."""


class CronSpecError(FastqError, ValueError):
    """Raised when a cron spec is malformed.

    ``position`` is where the fault begins in ``spec``, in characters from 0. ``reason`` describes it.
    """

    def __init__(self, spec: str, position: int, reason: str) -> None:
        self.spec = spec
        self.position = position
        self.reason = reason
        super().__init__(f"cron spec {spec!r}, position {position}: {reason}")


class SchedulerEntryNotFoundError(FastqError, LookupError):
    """Raised when the scheduler has no entry with this id."""

    def __init__(self, entry_id: str) -> None:
        self.entry_id = entry_id
        super().__init__(f"scheduler entry not found (entry_id={entry_id!r})")


class TaskEndedError(FastqError, RuntimeError):
    """Raised when a task does not run in this process.

    Its handler has finished, or this process is a fork of its worker process.
    """


class WorkerCrashedError(FastqError):
    """Raised when the worker process died during the task, or was killed because the task blocked its event loop."""


class BrokerError(FastqError):
    """Raised when Redis refused an operation or failed to carry it out.

    ``operation`` is the name of the operation. ``maybe_applied`` is true if the request was sent and the reply was
    lost, so that the request may or may not have been carried out. ``transient`` is true if a later try may succeed. An
    error that ends an ``enqueue_many`` has the results so far in ``results``.
    """

    transient = False
    results: Sequence[Any] | None = None
    # The error to raise in place of this one if the reply was lost, and the request turns out to have been carried out.
    if_applied: "BrokerError | None" = None
    # How often an enqueue is tried in all; more than once for a refusal that passes within seconds.
    tries = 1

    def __init__(self, message: str, *, operation: str = "", maybe_applied: bool = False) -> None:
        self.operation = operation
        self.maybe_applied = maybe_applied
        super().__init__(f"{operation}: {message}" if operation else message)


class BrokerConnectionError(BrokerError, ConnectionError):
    """Raised when Redis cannot be reached, or the connection broke during an operation."""

    transient = True


class BrokerTimeoutError(BrokerError, TimeoutError):
    """Raised when Redis did not answer in time."""

    transient = True


class BrokerAuthError(BrokerError, PermissionError):
    """Raised when Redis requires a user name or password, rejects the given one, or forbids this user the command."""


class BrokerReadOnlyError(BrokerError):
    """Raised when this Redis server takes no writes: it is a replica, cannot save to disk, or lacks replicas."""


class BrokerNotConfirmedError(BrokerError):
    """Raised when Redis carried out a write, but fewer replicas than ``wait_replicas`` confirmed it in time.

    Also raised when the reply was lost and the task was found afterwards: then nobody knows how many replicas have it.
    The task is enqueued, but may be lost in a failover. Enqueueing it again with the same id raises
    ``TaskIDConflictError``.
    """


class BrokerOutOfMemoryError(BrokerError):
    """Raised when Redis has reached its maxmemory and takes no writes."""


class QueueFullError(BrokerError):
    """Raised when a queue has as many pending tasks as it may have; the task was not enqueued.

    ``size`` is the number of pending tasks as last seen. ``limit`` is the ``max_pending`` of the client or the call. If
    ``is_queues`` is true, it is the queue's own ``max_pending``, which applies to all producers. An error that ends an
    ``enqueue_many`` has the results so far in ``results``, as any ``BrokerError``.
    """

    transient = True

    def __init__(self, queue: str = "", size: int = 0, limit: int = 0, *, is_queues: bool = False) -> None:
        self.queue = queue
        self.size = size
        self.limit = limit
        self.is_queues = is_queues
        whose = "its max_pending" if is_queues else "max_pending"
        super().__init__(f"queue is full: it has {size} pending tasks, and {whose} is {limit} (queue={queue!r})")


class SkipRetry(Exception):  # noqa: N818 - asynq's name; raised to decide, not to report a defect
    """Raised by a handler to archive the task without further retries."""


class Retry(Exception):  # noqa: N818 - raised to decide, as SkipRetry
    """Raised by a handler to fail this attempt, and have the next one after ``after`` (seconds or a ``timedelta``).

    Without ``after``, the usual delay applies. A task that is out of retries is archived.
    """

    def __init__(self, message: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(*([message] if message else []))
        self.after = after
        self.after_s = None if after is None else max(0.0, nanoseconds_of(after, name="after") / 1e9)


class Snooze(Exception):  # noqa: N818 - as above
    """Raised by a handler to run its task again after ``after`` (seconds or a ``timedelta``); no attempt is counted."""

    def __init__(self, message: str = "", *, after: float | timedelta) -> None:
        super().__init__(*([message] if message else []))
        self.after = after
        self.after_s = max(0.0, nanoseconds_of(after, name="after") / 1e9)


class RateLimited(Snooze):
    """Raised by a handler that must slow down: its lane starts no task for ``after`` (seconds or a ``timedelta``).

    Afterwards this task is the first of the lane; no attempt is counted. A task without a lane runs again after that
    time, as after ``Snooze``.
    """


class SemaphoreFullError(FastqError, Snooze):
    """Raised when other tasks hold all tokens of a semaphore; a handler's task then runs again, as after ``Snooze``."""

    def __init__(self, scope: str, max_tokens: int, *, after: float | timedelta = 1.0) -> None:
        self.scope = scope
        self.max_tokens = max_tokens
        Snooze.__init__(self, f"all {max_tokens} tokens of semaphore {scope!r} are held by other tasks", after=after)


class PayloadError(FastqError, SkipRetry):
    """Raised when a payload does not fit the parameters of its typed task, which is then archived at once."""


class RevokeTask(Exception):  # noqa: N818 - asynq's name
    """Raised by a handler to delete the task: neither retried nor archived."""


class TaskTimeout(BaseException):
    """Raised inside a handler that exceeded its timeout or deadline; clean up and let it propagate.

    Not an ``Exception``: an ``except Exception`` in a handler must not catch it.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or ("the task's time is up",)))  # the exception comes without a text in a thread


class TaskCanceled(BaseException):
    """Raised inside a handler whose task was canceled, or made its process grow above ``memory_limit``.

    Clean up and let it propagate.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(args or ("the task was canceled",)))  # the exception comes without a text in a thread
