"""Tasks as the app sees them: ``RunningTask`` in a handler, ``GroupedTask`` in the group aggregator."""

import asyncio
import time
from collections.abc import AsyncIterable, Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeVar

import orjson

from fastq.checkpoint import MAX_CHECKPOINT_BYTES, Resumable, Stopping, refuse_in_loop
from fastq.common.clock import at_unix_ns
from fastq.common.devices import assigned
from fastq.common.durations import nanoseconds_of
from fastq.common.encoding import encode_strictly
from fastq.errors import TaskEndedError
from fastq.options import NO_OPTIONS
from fastq.task import Task, encode_payload
from fastq.wire.codec import TaskMaker
from fastq.wire.messages import CHECKPOINT_HEADER, TaskMessage
from fastq.wire.progress import encode_progress

MAX_RESULT_BYTES = 64 * 1024 * 1024
PROGRESS_EVERY_S = 0.05
FIRST_PAUSE_S = 0.0005
LONGEST_PAUSE_S = 0.02

T = TypeVar("T")


class Context(Protocol):
    """The part of the pool that a running task uses."""

    @property
    def started_ns(self) -> int:
        """Return when the task started, on CLOCK_MONOTONIC."""

    @property
    def deadline_ns(self) -> int:
        """Return when the task's time is up, on CLOCK_MONOTONIC, 0 for never."""

    def write_result(self, data: bytes) -> None:
        """Send an intermediate result."""

    def write_progress(self, data: bytes, is_soon: bool) -> None:
        """Send the handler's progress; if ``is_soon``, send it only at the end, unless another report follows."""

    @property
    def is_stopping(self) -> bool:
        """Return whether running tasks should end."""

    def save(self, data: bytes) -> int:
        """Send a checkpoint, and return its number."""

    def is_saved(self, number: int) -> bool:
        """Return whether the checkpoint with this number, or a later checkpoint, is saved."""


class RunningTask(Task):
    """A task inside its handler: the producer's task, and the data of this attempt."""

    __slots__ = ("_context", "_limit", "_loop", "_message", "_rule", "_told_s")

    _message: TaskMessage
    _context: Context
    _rule: Any  # a FailureRule, None without one
    _limit: int | None  # the handler's max_retry, which takes precedence over the message's
    _loop: Resumable[Any]  # set only for tasks with such a loop, so that other tasks need not set None

    def __init__(self, message: TaskMessage, context: Context) -> None:
        # Task.__init__ is not called: data from the codec needs no checks.
        RUNNING_TASKS.fill(self, message, context)

    @property
    def id(self) -> str:
        """Return the task's id."""
        return self._message.id

    @property
    def queue(self) -> str:
        """Return the queue from which the task came."""
        return self._message.queue

    @property
    def retried(self) -> int:
        """Return how often the task was retried before this attempt."""
        return self._message.retried

    @property
    def max_retry(self) -> int:
        """Return how often the task may be retried."""
        limit = self._limit
        return self._message.retry if limit is None else limit

    @property
    def device(self) -> str | None:
        """Return the device that this process was given, as in ``CUDA_VISIBLE_DEVICES``; None without ``devices``."""
        return assigned()

    @property
    def started_at(self) -> datetime:
        """Return when this attempt started, in UTC."""
        return _wall(self._context.started_ns)

    @property
    def deadline(self) -> datetime | None:
        """Return when the time of this attempt is up, in UTC; None if it is unlimited."""
        deadline_ns = self._context.deadline_ns
        return _wall(deadline_ns) if deadline_ns else None

    def write_result(self, data: Any) -> None:
        """Store a result now, before the handler returns; the last one written wins. It is JSON unless it is bytes.

        It can be read while the task runs, and afterwards for as long as the task is kept (retention). May be called
        from any thread. Raises ``ValueError`` above 64 MB and for NaN and infinity. Raises ``TypeError``, with the
        path, for a value that JSON cannot hold. Raises ``TaskEndedError`` after the handler has ended, and in a fork of
        this process.
        """
        encoded = encode_result(data)
        try:
            self._context.write_result(encoded)
        except TaskEndedError as error:
            raise TaskEndedError(f"no result can be written for task {self.id} of {self.queue!r}: {error}") from None

    def progress(self, current: float, total: float | None = None, note: str = "") -> None:
        """Report how far the task has come, for ``Handle.progress``: ``progress(42, 100, "pages")``.

        Only the last report of each second is written, and the last one before the end. May be called from any thread.
        Raises ``ValueError`` or ``TypeError`` for anything but numbers from 0 to 2**53, and for a note of over 200
        characters. Raises ``TaskEndedError`` as ``write_result`` does.
        """
        data = encode_progress(current, total, note, time.time_ns())
        now_s = time.monotonic()
        is_soon = current != total and now_s - getattr(self, "_told_s", 0.0) < PROGRESS_EVERY_S
        if not is_soon:
            self._told_s = now_s
        try:
            self._context.write_progress(data, is_soon)
        except TaskEndedError as error:
            raise TaskEndedError(f"task {self.id} of {self.queue!r} makes no progress: {error}") from None

    # Long tasks -------------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> Stopping:
        """Return a flag that is true once the server shuts down, is quiet or reloads: the handler should end.

        ``await task.stopping`` waits for the flag; ``task.stopping.wait(5)`` sleeps for 5 s, or until the flag is set.
        """
        return Stopping(self._context)

    def checkpoint(self, state: Any) -> None:
        """Save a state with the task, for ``resume`` in its next run; return once Redis has it.

        While Redis cannot be reached, the call waits, until the task's time is up. ``state`` becomes JSON of at most 64
        kB. Raises ``ValueError`` if it is larger, and ``TypeError``, with the path, if JSON cannot hold it. Raises
        ``TaskEndedError`` as ``write_result`` does, and ``RuntimeError`` in a coroutine: use ``acheckpoint`` there.
        """
        self._refuse_in_loop_of_items()
        self._save(state)

    async def acheckpoint(self, state: Any) -> None:
        """Save a state with the task as ``checkpoint`` does, from a coroutine."""
        self._refuse_in_loop_of_items()
        await self._asave(state)

    def resume(self) -> Any:
        """Return the state that an earlier run of the task saved last; None if there is no such state."""
        state = self._message.headers.get(CHECKPOINT_HEADER)
        return None if state is None else orjson.loads(state)

    def iterate(self, items: Iterable[T] | AsyncIterable[T], *, every: float | timedelta = 1.0) -> Resumable[T]:
        """Return the items for a ``for`` or ``async for`` loop that resumes: the next run begins where this run ended.

        Once the server is about to stop, the loop ends by ``Snooze``: the task goes back without an attempt counted,
        and the next run begins with the next item. After a kill, the item under way and those of the last ``every``
        seconds come again; 0 saves after each item. The items must be the same in each run, in the same order. A second
        loop in a run, or another checkpoint beside the loop, raises ``RuntimeError``.
        """
        self._refuse_in_loop_of_items()
        every_s = nanoseconds_of(every, name="every") / 1e9
        if every_s < 0:
            raise ValueError(f"every must not be negative: {every!r}")
        self._loop = Resumable(self, items, every_s)
        return self._loop

    def _refuse_in_loop_of_items(self) -> None:
        if hasattr(self, "_loop"):
            raise RuntimeError(f"the checkpoint of task {self.id} is the position of its iterate()")

    def _save(self, state: Any) -> None:
        refuse_in_loop("checkpoint()", "await acheckpoint() or async for")
        for pause_s in self._pauses(state):
            time.sleep(pause_s)

    async def _asave(self, state: Any) -> None:
        for pause_s in self._pauses(state):
            await asyncio.sleep(pause_s)

    def _pauses(self, state: Any) -> Iterator[float]:
        """Send a checkpoint, and yield the seconds to wait before each check of whether it is saved."""
        encoded = _encode_checkpoint(state)
        pause_s = FIRST_PAUSE_S
        try:
            number = self._context.save(encoded)
            while not self._context.is_saved(number):
                yield pause_s
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        except TaskEndedError as error:
            raise TaskEndedError(f"no checkpoint can be saved for task {self.id} of {self.queue!r}: {error}") from None


RUNNING_TASKS: Final = TaskMaker(RunningTask, NO_OPTIONS)
"""Makes running tasks, as ``RunningTask`` does, but for a fifth of the cost."""


class GroupedTask(Task):
    """A task of a group, as the group aggregator gets it."""

    __slots__ = ("id",)

    def __init__(self, message: TaskMessage) -> None:
        # Task.__init__ is not called: data from the codec needs no checks, and a peer's type may be blank.
        self.id = message.id
        self.type = message.type
        self.payload = message.payload
        self.headers = message.headers
        self.options = NO_OPTIONS
        self._has_payload = True


def encode_result(data: Any) -> bytes:
    """Return a handler's result as bytes: JSON unless it is bytes already. Raises as ``write_result`` does."""
    encoded = encode_payload(data, "result")
    if len(encoded) > MAX_RESULT_BYTES:
        raise ValueError(
            f"a result of {len(encoded)} bytes is over the limit of {MAX_RESULT_BYTES}; store it elsewhere"
        )
    return encoded


def _encode_checkpoint(state: Any) -> bytes:
    encoded = encode_strictly(state, "checkpoint")
    if len(encoded) > MAX_CHECKPOINT_BYTES:
        raise ValueError(
            f"a checkpoint of {len(encoded)} bytes is over the limit of {MAX_CHECKPOINT_BYTES}; "
            "store the data elsewhere, and keep its place"
        )
    return encoded


def _wall(monotonic_ns: int) -> datetime:
    return at_unix_ns(time.time_ns() - time.monotonic_ns() + monotonic_ns)


CURRENT: ContextVar[RunningTask] = ContextVar("fastq_current_task")


def current_task() -> RunningTask:
    """Return the task whose handler is running here; ``LookupError`` outside of handlers."""
    try:
        return CURRENT.get()
    except LookupError:
        raise LookupError("no task is running here: current_task() is for code below a handler") from None
