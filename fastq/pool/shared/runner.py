"""The interface between the pool and the code that runs tasks: in a child, a named factory makes a ``Runner``.

The pool itself knows neither messages nor handlers. To it, a task is bytes, a time limit and a type by which it
estimates run times.
"""

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import Protocol

from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.layout import TASK_ASYNC, TASK_THREADED

Answer = tuple[EventKind, bytes] | None
"""The answer of a runner to a task; ``None`` is DONE without data. A runner uses only kinds up to MEMORY_LIMIT."""


class Sort(IntEnum):
    """How a task is run, as the bits of its record say."""

    PLAIN = 0
    """Alone in its child."""
    ASYNC = TASK_ASYNC
    """A coroutine, beside others."""
    THREADED = TASK_ASYNC | TASK_THREADED
    """In a thread, beside others."""


class TaskContext(Protocol):
    """The pool as a running task sees it, until the task ends."""

    @property
    def started_ns(self) -> int:
        """Return the time of the start, on CLOCK_MONOTONIC."""

    @property
    def deadline_ns(self) -> int:
        """Return the time by which the task must end, on CLOCK_MONOTONIC, 0 for none."""

    @property
    def interruption(self) -> EventKind | None:
        """Return TIMEOUT, CANCELED, MEMORY_LIMIT or ABORTED once the task was asked to end, else None.

        The handler may not know yet. From then on this kind is the task's outcome, whatever the runner answers. The
        exceptions are the kinds of ``DECISIONS`` after the first three kinds. After ABORTED no hook is called.
        """

    @property
    def is_forked(self) -> bool:
        """Return whether this process is a fork of the one that runs the task.

        A fork sends no outcome. The pool ends it: with status 0 if the runner returns, else with the status of its
        exception.
        """

    @property
    def loop(self) -> AbstractEventLoop | None:
        """Return the loop of this child's coroutines, for use by a plain task, which runs while no coroutine does."""

    def write_result(self, data: bytes) -> None:
        """Send ``data`` as an intermediate result, from any thread.

        Raises ``ValueError`` above 64 MB, and ``TaskEndedError`` in a fork or once the task has ended. Waits while the
        main process is behind.
        """

    def write_progress(self, data: bytes, is_soon: bool) -> None:
        """Send the handler's progress as ``write_result`` does.

        If ``is_soon``, send it only with the end of the task.
        """

    @property
    def is_stopping(self) -> bool:
        """Return whether running tasks should come to an end, since the server is about to stop."""

    def save(self, data: bytes) -> int:
        """Send a checkpoint, from any thread, and return its number; errors are those of ``write_result``."""

    def is_saved(self, number: int) -> bool:
        """Return whether the checkpoint of a number, or a later one, is saved; raises as ``write_result`` does."""


class Runner(Protocol):
    """A runner of tasks in a child, made once before the fork: it must not hold threads, sockets or event loops."""

    @property
    def has_plain(self) -> bool:
        """Return whether any handler is a plain function that runs alone in its child."""

    @property
    def has_async(self) -> bool:
        """Return whether any handler runs beside others: a coroutine function, or a plain one in a thread."""

    @property
    def description(self) -> str:
        """Return a text for the server, such as which patterns are coroutines; the pool passes it on unread."""

    @property
    def child_start(self) -> Sequence[Callable[[], object]]:
        """Return the functions to call in each child before its first task; awaitables run in the handlers' loop.

        A child in which one of them raises gets no tasks.
        """

    @property
    def child_stop(self) -> Sequence[Callable[[], object]]:
        """Return the functions to call in the same way in a child that was told to exit, before it does."""

    def run(self, data: bytes, context: TaskContext) -> Answer:
        """Run a plain task to its end, in a copy of the child's first context; several threads may call this at once.

        ``TaskTimeout`` or ``TaskCanceled`` may be raised anywhere inside. If one of them escapes, the outcome is
        TIMEOUT or CANCELED; with any other exception it is BROKEN.
        """

    def run_async(self, data: bytes, context: TaskContext) -> Awaitable[Answer]:
        """Return a coroutine that runs the task; it is canceled when the task must end."""

    def run_batch(self, data: Sequence[bytes], contexts: Sequence[TaskContext]) -> list[Answer] | None:
        """Run several tasks by one call, as ``run`` does; return their answers, None if all are DONE without data."""

    def run_batch_async(self, data: Sequence[bytes], contexts: Sequence[TaskContext]) -> Awaitable[list[Answer] | None]:
        """Return a coroutine that runs several tasks by one call; it is canceled once all of them must end."""


class RunnerMisuseError(Exception):
    """Raised by a factory whose argument names something missing; the user sees its text without a traceback."""


RunnerFactory = Callable[[str], Runner]
"""The type of the object that ``PoolConfig.runner`` names; it is called with ``PoolConfig.argument``."""
