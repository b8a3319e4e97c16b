"""Where the pool and the code that runs tasks meet: in the child, a named factory makes a ``Runner``.

The pool itself knows neither messages nor handlers: a task is bytes, a time limit and a type to estimate by.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from fastq.pool.event_kind import EventKind

__all__ = ["Answer", "Runner", "RunnerFactory", "RunnerMisuseError", "TaskContext"]

Answer = tuple[EventKind, bytes] | None
"""What a runner makes of a task; ``None`` is DONE without data. Only kinds up to MEMORY_LIMIT are for a runner."""


class TaskContext(Protocol):
    """What a running task may ask of the pool; ends with the task."""

    @property
    def started_ns(self) -> int:
        """Return when it started, on CLOCK_MONOTONIC."""

    @property
    def deadline_ns(self) -> int:
        """Return when its time is up, on CLOCK_MONOTONIC, 0 for never."""

    @property
    def interruption(self) -> EventKind | None:
        """Return TIMEOUT, CANCELED, MEMORY_LIMIT or ABORTED once the end was asked for; the handler may not know yet.

        Whatever a runner answers then, that kind is the task's outcome, save for SKIP_RETRY and REVOKED after the
        first three: the handler was told, and has decided. Hooks have no say after ABORTED.
        """

    @property
    def is_forked(self) -> bool:
        """Return whether this process is a fork of the one that runs the task: what comes of it there is no outcome.

        The pool ends it: with the status of what the runner lets out, 0 when that returns.
        """

    def write_result(self, data: bytes) -> None:
        """Send ``data`` as an intermediate result, from any thread.

        Raises ``ValueError`` above 64 MB, ``TaskEndedError`` once the task has ended and in a fork; waits while the
        main process is behind.
        """


class Runner(Protocol):
    """A runner of tasks in a child; made once, before the fork, so it must not hold threads, sockets or event loops."""

    @property
    def has_plain(self) -> bool:
        """Return whether any handler is a plain function."""

    @property
    def has_async(self) -> bool:
        """Return whether any handler is a coroutine function."""

    @property
    def description(self) -> str:
        """Return a text for the server (which patterns are coroutines …); the pool passes it on unread."""

    @property
    def child_start(self) -> Sequence[Callable[[], object]]:
        """Return what is called in each child before its first task; an awaitable is awaited in the handlers' loop.

        A child in which one of them raises does not serve.
        """

    @property
    def child_stop(self) -> Sequence[Callable[[], object]]:
        """Return what is called in the same way in a child that was told to exit, before it does."""

    def run(self, data: bytes, context: TaskContext) -> Answer:
        """Run a plain task to its end, in a copy of the context in which the child began.

        ``TaskTimeout`` or ``TaskCanceled`` may be raised anywhere inside. What it lets out counts as that outcome;
        any other exception as BROKEN.
        """

    def run_async(self, data: bytes, context: TaskContext) -> Awaitable[Answer]:
        """Return a coroutine that runs the task; it is canceled when the end is asked for."""


class RunnerMisuseError(Exception):
    """Raised in a factory whose argument names something missing; the user sees its text, without a traceback."""


RunnerFactory = Callable[[str], Runner]
"""What ``PoolConfig.runner`` names as ``module:attr``; called with ``PoolConfig.argument``."""
