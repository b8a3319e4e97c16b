"""Long tasks that survive their server: a flag for a coming stop of the server, checkpoints, and loops that resume.

The checkpoint is a header of the task's message. So any server that runs the task next gets it with the message, and
each script that writes the message keeps it. A task without checkpoints costs no reads and no writes.
"""

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Generic, Protocol, TypeVar

from fastq.errors import Snooze
from fastq.wire.codec import decode_task_message, rewrite_task_message
from fastq.wire.messages import CHECKPOINT_HEADER

MAX_CHECKPOINT_BYTES: Final = 64 * 1024
LOOK_EVERY_S: Final = 0.1

T = TypeVar("T")


def with_checkpoint(message: bytes, state: bytes) -> bytes:
    """Return a task's message with another checkpoint."""
    headers = decode_task_message(message).headers
    return rewrite_task_message(message, headers={**headers, CHECKPOINT_HEADER: state.decode()})


def refuse_in_loop(what: str, instead: str) -> None:
    """Raise ``RuntimeError`` inside a running event loop, which ``what`` would block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{what} would block the event loop; use {instead}")


class _Context(Protocol):
    @property
    def is_stopping(self) -> bool: ...


class Stopping:
    """A flag, set once handlers should end: the server shuts down, is quiet or reloads; ``await`` waits for it."""

    __slots__ = ("_context",)

    def __init__(self, context: _Context) -> None:
        self._context = context

    def __bool__(self) -> bool:
        """Return whether running tasks should end."""
        return self._context.is_stopping

    def wait(self, timeout: float) -> bool:
        """Sleep for ``timeout`` seconds, or until the flag is set; return whether it is set."""
        refuse_in_loop("task.stopping.wait()", "await task.stopping")
        until_s = time.monotonic() + timeout
        while not self and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, LOOK_EVERY_S))
        return bool(self)

    def __await__(self) -> Generator[Any, None, None]:
        """Wait until running tasks should end."""
        return self._until_set().__await__()

    async def _until_set(self) -> None:
        while not self:
            await asyncio.sleep(LOOK_EVERY_S)


class Unserved:
    """The context of a task that runs without a server: nothing stops the task, and its checkpoints are not kept."""

    is_stopping = False
    loop = None

    def save(self, data: bytes) -> int:
        """Do nothing."""
        return 0

    def is_saved(self, number: int) -> bool:
        """Return True, so that no handler waits."""
        return True


class _Task(Protocol):
    """The methods of a running task that its loop uses."""

    @property
    def id(self) -> str: ...
    @property
    def stopping(self) -> Stopping: ...
    def resume(self) -> Any: ...
    def _save(self, state: Any) -> None: ...
    async def _asave(self, state: Any) -> None: ...


class Resumable(Generic[T]):
    """A loop over items whose position is the task's checkpoint, for ``for`` and ``async for``.

    The loop begins after the items that are done. Once the server is about to stop, the loop saves its position and
    raises ``Snooze``, so that another server can continue the task.
    """

    def __init__(self, task: _Task, items: Iterable[T] | AsyncIterable[T], every_s: float) -> None:
        done = task.resume()
        if done is not None and (not isinstance(done, int) or isinstance(done, bool) or done < 0):
            raise TypeError(f"the checkpoint of task {task.id} is {done!r:.100}, not a position of iterate()")
        self._task = task
        self._stopping = task.stopping
        self._items = items
        self._every_s = every_s
        self._done: int = done or 0
        self._saved = self._done
        self._saved_s = time.monotonic()

    def __iter__(self) -> Iterator[T]:
        """Yield the items that earlier runs have not done."""
        if not isinstance(self._items, Iterable):
            raise TypeError(f"these items need async for: {self._items!r:.100}")
        for item in islice(self._items, self._done, None):
            if self._must_save():
                self._task._save(self._done)
                self._note_saved()
            self._stop_if_told()
            yield item
            self._done += 1

    async def __aiter__(self) -> AsyncIterator[T]:
        """Yield the items that earlier runs have not done."""
        async for item in _behind(self._done, self._items):
            if self._must_save():
                await self._task._asave(self._done)
                self._note_saved()
            self._stop_if_told()
            yield item
            self._done += 1

    def _must_save(self) -> bool:
        if self._done == self._saved:
            return False
        return bool(self._stopping) or time.monotonic() - self._saved_s >= self._every_s

    def _note_saved(self) -> None:
        self._saved, self._saved_s = self._done, time.monotonic()

    def _stop_if_told(self) -> None:
        # Stop only once the position is saved: the flag may have been set after ``_must_save`` read it.
        if self._done == self._saved and self._stopping:
            raise Snooze(f"its worker process stops; {self._done} items are done", after=0)


async def _behind(done: int, items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """Yield the items without the first ``done``."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            if done > 0:
                done -= 1
            else:
                yield item
        return
    for item in islice(items, done, None):
        yield item
