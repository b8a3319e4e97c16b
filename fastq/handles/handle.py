"""Handles of tasks that were submitted: their results, states and progress."""

from collections.abc import Callable, Generator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from fastq.broker.operations.ends import SubmitKey, TaskKey
from fastq.common.states import TaskState
from fastq.errors import no_attribute
from fastq.wire.inbox import ERRORS, TaskEnd
from fastq.wire.progress import TaskProgress

R_co = TypeVar("R_co", covariant=True)
Decode = Callable[[bytes | None], Any]
"""The function that turns a task's stored result into the value that the handler returned."""
Timeout = float | timedelta | None
Outcome = TaskEnd | Exception
"""The end of a task, or the error because of which the client has stopped waiting."""

_ELSEWHERE: Final = {
    **dict.fromkeys(("get", "wait", "wait_result", "return_value", "get_result"), ".result(timeout=...)"),
    **dict.fromkeys(("ready", "status", "get_status", "is_finished", "successful", "done"), ".state()"),
    **dict.fromkeys(("revoke", "abort"), ".cancel()"),
}
"""Names in other libraries, and what a handle has instead."""


class _BlockingWaiter(Protocol):
    """The functions of its client that a ``Handle`` calls."""

    def wait_for(self, handle: "Handle[Any]", timeout: Timeout) -> Outcome:
        """Return how a task has ended, once it has."""

    def state(self, task: SubmitKey) -> TaskState:
        """Return the state that a task is in."""

    def progress(self, task: SubmitKey) -> TaskProgress | None:
        """Return how far a task has come."""

    def cancel(self, task: SubmitKey) -> None:
        """Delete a task, and stop it if it runs."""


class _AsyncWaiter(Protocol):
    """The functions of its client that an ``AsyncHandle`` calls."""

    async def wait_for(self, handle: "AsyncHandle[Any]", timeout: Timeout) -> Outcome:
        """Return how a task has ended, once it has."""

    async def state(self, task: SubmitKey) -> TaskState:
        """Return the state that a task is in."""

    async def progress(self, task: SubmitKey) -> TaskProgress | None:
        """Return how far a task has come."""

    async def cancel(self, task: SubmitKey) -> None:
        """Delete a task, and stop it if it runs."""


class _Handle(Generic[R_co]):
    __slots__ = ("_decode", "end", "task")

    def __init__(self, task: SubmitKey, decode: Decode, end: Outcome | None = None) -> None:
        self.task = task
        self._decode = decode
        self.end = end

    @property
    def queue(self) -> str:
        """Return the task's queue."""
        return self.task[0]

    @property
    def id(self) -> str:
        """Return the task's id."""
        return self.task[1]

    def _value(self, end: Outcome) -> R_co:
        data = value_of(self.task[:2], end)
        try:
            value: R_co = self._decode(data)
        except ValueError as error:
            text = f"the result of task {self.id} of queue {self.queue!r} is not as annotated: {error}"
            raise ValueError(text) from error
        return value

    if not TYPE_CHECKING:  # a type checker that saw this would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, "a handle", name, _ELSEWHERE)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of task {self.id!r} in {self.queue!r}>"


class Handle(_Handle[R_co]):
    """A task that was submitted by a ``Client``."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: _BlockingWaiter, task: SubmitKey, decode: Decode, end: Outcome | None = None) -> None:
        super().__init__(task, decode, end)
        self.waiter = waiter

    def result(self, timeout: float | timedelta | None = None) -> R_co:
        """Wait until the task has ended, through all retries, and return its result.

        Raises ``TaskFailedError`` if the task was archived, ``TaskGoneError`` if it is not in its queue any more, and
        ``TimeoutError`` after ``timeout`` (seconds or a timedelta; None: never). Raises ``RuntimeError`` in a handler.
        """
        return self._value(self.waiter.wait_for(self, timeout))

    def state(self) -> TaskState:
        """Return the state that the task is in now; ``TaskGoneError`` if it is not in its queue any more."""
        return self.waiter.state(self.task)

    def progress(self) -> TaskProgress | None:
        """Return the handler's last report by ``task.progress``, None without one; the report may be a second late."""
        return self.waiter.progress(self.task)

    def cancel(self) -> None:
        """Delete the task if it waits; if it runs, ask its server to stop and delete it.

        A task that has ended is left as it is. A Go server stops the task, but retries it.
        """
        self.waiter.cancel(self.task)


class AsyncHandle(_Handle[R_co]):
    """A task that was submitted by an ``AsyncClient``; ``await`` it for its result."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: _AsyncWaiter, task: SubmitKey, decode: Decode, end: Outcome | None = None) -> None:
        super().__init__(task, decode, end)
        self.waiter = waiter

    async def result(self, timeout: float | timedelta | None = None) -> R_co:
        """Wait until the task has ended, through all retries, and return its result; see ``Handle.result``."""
        return self._value(await self.waiter.wait_for(self, timeout))

    def __await__(self) -> Generator[Any, None, R_co]:
        return self.result().__await__()

    async def state(self) -> TaskState:
        """Return the state that the task is in now; ``TaskGoneError`` if it is not in its queue any more."""
        return await self.waiter.state(self.task)

    async def progress(self) -> TaskProgress | None:
        """Return the handler's last report by ``task.progress``, None without one; the report may be a second late."""
        return await self.waiter.progress(self.task)

    async def cancel(self) -> None:
        """Delete the task if it waits, stop and delete it if it runs; see ``Handle.cancel``."""
        await self.waiter.cancel(self.task)


AnyHandle = Handle[Any] | AsyncHandle[Any]


def value_of(task: TaskKey, end: Outcome) -> bytes | None:
    """Return the result of a task that has ended, or raise the error with which it has ended."""
    if isinstance(end, Exception):
        raise end
    if end.kind in ERRORS:
        raise ERRORS[end.kind](*task, end)
    return end.result
