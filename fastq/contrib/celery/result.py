"""``AsyncResult``: the state and result of a task, by its id."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from fastq.broker.operations.ends import TaskKey
from fastq.common.states import TaskState
from fastq.contrib.celery.current import Sender, current_app
from fastq.contrib.celery.uses import OF_RESULT, no_such_attribute
from fastq.contrib.celery.values import decode
from fastq.errors import TaskFailedError, TaskGoneError
from fastq.handles.handle import Handle

DEFAULT_QUEUE: Final = "default"
REVOKED: Final = {"fastq:celery": "REVOKED"}
"""The result that fastq stores for a task that has expired."""
_STATES: Final = {
    TaskState.ACTIVE: "STARTED",
    TaskState.RETRY: "RETRY",
    TaskState.COMPLETED: "SUCCESS",
    TaskState.ARCHIVED: "FAILURE",
}
_READY: Final = frozenset({"SUCCESS", "FAILURE", "REVOKED"})


class TaskRevokedError(Exception):
    """Raised by ``AsyncResult.get`` for a task that has expired."""


def result_id(queue: str, task_id: str) -> str:
    """Return the id that ``AsyncResult`` takes: ``queue:id``, or the task's id alone in the queue ``default``."""
    return task_id if queue == DEFAULT_QUEUE and ":" not in task_id else f"{queue}:{task_id}"


def key_of(id: str) -> TaskKey:
    """Return the queue and the task's id that a result's id contains."""
    queue, colon, task_id = id.partition(":")
    return (queue, task_id) if colon else (DEFAULT_QUEUE, id)


class AsyncResult:
    """The state and result of a task.

    ``id`` is the attribute ``id`` of the result that ``delay`` returned. ``app`` is the ``Celery`` whose Redis has the
    task, by default the ``Celery`` that was made last.
    """

    def __init__(self, id: str, app: Sender | None = None) -> None:
        self.id = self.task_id = id
        self._key = key_of(id)
        self._app = current_app() if app is None else app
        self._is_revoked = False

    @property
    def state(self) -> str:
        """Return PENDING, STARTED, RETRY, FAILURE, SUCCESS or REVOKED; an unknown task is PENDING.

        A task is REVOKED if it has expired, or was revoked by this object.
        """
        try:
            state = _STATES.get(self._handle.state(), "PENDING")
            return "REVOKED" if state == "SUCCESS" and self._value(0) == REVOKED else state
        except TaskGoneError:
            return "REVOKED" if self._is_revoked else "PENDING"

    @property
    def status(self) -> str:
        """Return the state."""
        return self.state

    def ready(self) -> bool:
        """Return whether the task has ended."""
        return self.state in _READY

    def successful(self) -> bool:
        """Return whether the task has succeeded."""
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        """Return whether the task has failed for good."""
        return self.state == "FAILURE"

    def get(self, timeout: float | timedelta | None = None, propagate: bool = True) -> Any:
        """Wait until the task has ended, and return what it returned.

        Raises ``TaskFailedError`` if it failed, and ``TaskRevokedError`` if it has expired; without ``propagate``,
        these two are returned. Raises ``TaskGoneError`` if no such task is kept, ``TimeoutError`` after ``timeout``,
        and ``RuntimeError`` within a task.
        """
        try:
            value = self._value(timeout)
            if value == REVOKED:
                raise TaskRevokedError("the task has expired")
        except (TaskFailedError, TaskRevokedError) as error:
            if propagate:
                raise
            return error
        return value

    def _value(self, timeout: float | timedelta | None) -> Any:
        return decode(self._app.client.wait(*self._key, timeout=timeout))

    @property
    def result(self) -> Any:
        """Return what the task returned, or its error; None as long as it has not ended."""
        if not self.ready():
            return None
        try:
            return self.get(0, propagate=False)
        except TaskGoneError:
            return TaskRevokedError("the task was revoked") if self._is_revoked else None

    @property
    def traceback(self) -> str | None:
        """Return the traceback of a task that has failed."""
        error = self.result if self.failed() else None
        return error.traceback or error.error if isinstance(error, TaskFailedError) else None

    def revoke(self, terminate: bool = False) -> None:
        """Delete the task if it is waiting; with ``terminate``, also stop it if it is running."""
        if terminate or self.state in ("PENDING", "RETRY"):
            self._handle.cancel()
            self._is_revoked = True

    @property
    def _handle(self) -> Handle[Any]:
        return Handle(self._app.client._waiter, (*self._key, ""), decode)

    if not TYPE_CHECKING:  # a type checker that sees __getattr__ would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise no_such_attribute(self, "an AsyncResult", OF_RESULT, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"
