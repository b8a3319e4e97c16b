"""Where the server and the pool meet, and where the pool and the code that runs tasks meet.

The server sees ``Submission``, ``Event`` and ``Kind``; the worker layer is a ``Runner`` that a named factory makes in
the child. The pool itself knows neither messages nor handlers: a task is bytes, a time limit and a type to estimate by.
"""

from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Protocol

__all__ = ["Answer", "Kind", "Runner", "RunnerFactory", "RunnerMisuseError", "TaskContext"]


class Kind(IntEnum):
    """Name what became of a submission; every one ends with exactly one event of another kind than WRITTEN."""

    DONE = 1
    """The handler returned nothing."""
    RESULT = 2
    """The handler returned ``data``."""
    FAILED = 3
    """The handler raised; ``data`` is what the runner says about it."""
    SKIP_RETRY = 4
    """As FAILED, and the task is not to be tried again."""
    REVOKED = 5
    """The task is to be forgotten."""
    INVALID = 6
    """The runner cannot make sense of the task's bytes; ``data`` says why."""
    NOT_FOUND = 7
    """The runner has no handler for the task."""
    TIMEOUT = 8
    """The time was up: the handler was told and has ended since, or its child was killed."""
    CANCELED = 9
    """Somebody cancelled it, otherwise as TIMEOUT."""
    CRASHED = 10
    """Its child died by itself; ``data`` is a text that names the signal or exit code and the peak RSS."""
    BROKEN = 11
    """The runner itself raised, or answered what no runner may; ``data`` is the traceback."""
    ABORTED = 12
    """It ran when the pool was stopped and did not end in time: run it again, free of charge."""
    RERUN = 13
    """It ran in a child that was killed for another task's sake or with its preloader: again, free of charge."""
    RETURNED = 14
    """It never started: give it back to its queue. Events of one batch are in the order of submission."""
    WRITTEN = 15
    """The handler wrote ``data`` as its result and still runs."""


Answer = tuple[Kind, bytes] | None
"""What a runner makes of a task; ``None`` is DONE without data. Only kinds up to CANCELED are a runner's to give."""


class TaskContext(Protocol):
    """What a running task may ask of the pool; ends with the task."""

    @property
    def started_ns(self) -> int:
        """Return when it started, on CLOCK_MONOTONIC."""

    @property
    def deadline_ns(self) -> int:
        """Return when its time is up, on CLOCK_MONOTONIC, 0 for never."""

    @property
    def interruption(self) -> Kind | None:
        """Return TIMEOUT, CANCELED or ABORTED once the end was asked for, whether or not the handler noticed.

        Whatever a runner answers then, that kind is the task's outcome; hooks have no say after ABORTED.
        """

    def write_result(self, data: bytes) -> None:
        """Send ``data`` as an intermediate result.

        Raises ``ValueError`` above 64 MB, and waits while the main process is behind.
        """


class Runner(Protocol):
    """Run tasks in a child; made once, before the fork, so it must not hold threads, sockets or event loops."""

    @property
    def has_plain(self) -> bool:
        """Tell whether any handler is a plain function."""

    @property
    def has_async(self) -> bool:
        """Tell whether any handler is a coroutine function."""

    @property
    def description(self) -> str:
        """Return a text for the server (which patterns are coroutines …); the pool passes it on unread."""

    def run(self, data: bytes, context: TaskContext) -> Answer:
        """Run a plain task to its end.

        ``TaskTimeout`` or ``TaskCanceled`` may be raised anywhere inside. What it lets out counts as that outcome;
        any other exception as BROKEN.
        """

    def run_async(self, data: bytes, context: TaskContext) -> Awaitable[Answer]:
        """Return a coroutine that runs the task; it is cancelled when the end is asked for."""


class RunnerMisuseError(Exception):
    """Raise in a factory whose argument names what is not there; the text alone is for the user, no traceback."""


RunnerFactory = Callable[[str], Runner]
"""What ``PoolConfig.runner`` names as ``module:attr``; called with ``PoolConfig.argument``."""
