"""The waiters of inline clients' handles. They never wait: a task has already run, or the wait would not end."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Final, TypeAlias, TypeVar

from fastq.broker.operations.ends import SubmitKey, TaskKey
from fastq.common.states import TaskState
from fastq.errors import TaskGoneError
from fastq.handles.aio import AsyncWaiter
from fastq.handles.blocking import BlockingWaiter
from fastq.handles.collecting import Collection
from fastq.handles.handle import AsyncHandle, Handle, Outcome, Timeout, value_of
from fastq.handles.waits import Deadline, Inbox
from fastq.wire.inbox import EndKind, TaskEnd

R = TypeVar("R")
EndOf: TypeAlias = Callable[[TaskKey], TaskEnd]
"""Returns how a task has ended; ``TimeoutError`` if it is still waiting."""


class InlineWaiter(BlockingWaiter):
    """The waiter with which an ``InlineClient`` and its task handles wait for results."""

    def __init__(self, end_of: EndOf, drop: Callable[[TaskKey], None]) -> None:
        self._end_of = end_of
        self._drop = drop

    def open_inbox(self) -> Inbox:
        """Return an inbox to which nothing is sent."""
        return Inbox("inline")

    def _why(self, task: SubmitKey, deadline: Deadline) -> str:
        return ""  # the error itself says why

    def _collect(self, collection: Collection[Handle[R]], deadline: Deadline) -> Iterator[Handle[R]]:
        yield from collection.ended
        yield from collection.take(_ends(self._end_of, collection.pending))

    def wait_for_any(self, task: TaskKey, timeout: Timeout) -> bytes | None:
        """Return the result of a task."""
        return value_of(task, self._end_of(task))

    def state(self, task: SubmitKey) -> TaskState:
        """Return the state that a task is in."""
        return _state(self._end_of, task[:2])

    def progress(self, task: SubmitKey) -> None:
        """Return None: a task that has begun has also ended."""

    def cancel(self, task: SubmitKey) -> None:
        """Delete a waiting task."""
        self._drop(task[:2])


class AsyncInlineWaiter(AsyncWaiter):
    """The waiter with which an ``AsyncInlineClient`` and its task handles wait for results."""

    def __init__(self, end_of: EndOf, drop: Callable[[TaskKey], None]) -> None:
        self._end_of = end_of
        self._drop = drop

    async def open_inbox(self) -> Inbox:
        """Return an inbox to which nothing is sent."""
        return Inbox("inline")

    async def _wait_for(self, task: SubmitKey, deadline: Deadline) -> TaskEnd:
        return self._end_of(task[:2])

    async def _collect(
        self, collection: Collection[AsyncHandle[R]], deadline: Deadline
    ) -> AsyncIterator[AsyncHandle[R]]:
        for handle in (*collection.ended, *collection.take(_ends(self._end_of, collection.pending))):
            yield handle

    async def wait_for_any(self, task: TaskKey, timeout: Timeout) -> bytes | None:
        """Return the result of a task."""
        return value_of(task, self._end_of(task))

    async def state(self, task: SubmitKey) -> TaskState:
        """Return the state that a task is in."""
        return _state(self._end_of, task[:2])

    async def progress(self, task: SubmitKey) -> None:
        """Return None: a task that has begun has also ended."""

    async def cancel(self, task: SubmitKey) -> None:
        """Delete a waiting task."""
        self._drop(task[:2])


def _ends(end_of: EndOf, pending: Iterable[SubmitKey]) -> dict[SubmitKey, Outcome]:
    return {task: end_of(task[:2]) for task in pending}


def _state(end_of: EndOf, task: TaskKey) -> TaskState:
    try:
        end = end_of(task)
    except TimeoutError:
        return TaskState.SCHEDULED
    if end.kind not in _STATES:
        raise TaskGoneError(*task)
    return _STATES[end.kind]


_STATES: Final = {EndKind.RESULT: TaskState.COMPLETED, EndKind.FAILED: TaskState.ARCHIVED}
