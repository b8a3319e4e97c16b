"""What can become of a task that the pool was given."""

import resource
from enum import IntEnum
from typing import Final

from fastq.errors import TaskCanceled, TaskTimeout
from fastq.pool.processes import peak_rss

__all__ = ["NOT_BEGUN", "TOLD_TO_END", "TOO_LATE", "EventKind", "reason_for"]

TOO_LATE: Final = b"too late"
"""The data of a TIMEOUT, CANCELED or MEMORY_LIMIT whose handler was told, went on, and returned after all."""

NOT_BEGUN: Final = b"not begun"
"""The data of a TIMEOUT whose time was up before it could begin: as in asynq, its handler is not called."""


class EventKind(IntEnum):
    """What happened to a submission; every one ends with exactly one event of another kind than WRITTEN."""

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
    """The time was up: the handler was told and has ended since (what the runner says of it, else ``TOO_LATE``), or its
    child was killed (no data)."""
    CANCELED = 9
    """Somebody canceled it, otherwise as TIMEOUT."""
    MEMORY_LIMIT = 10
    """Its child had grown above the memory limit, and its handler has ended since it was told; otherwise as TIMEOUT.
    One that was killed is CRASHED."""
    CRASHED = 11
    """Its child died by itself, or was killed because the task blocked the event loop of others or did not end when the
    child had grown above the memory limit; ``data`` is a text that names the signal or exit code and the peak RSS."""
    BROKEN = 12
    """The runner itself raised, or answered what no runner may; ``data`` is the traceback."""
    ABORTED = 13
    """It ran when the pool was stopped and did not end in time: run it again, free of charge."""
    RERUN = 14
    """It ran in a child that was killed, and not because of it: again, free of charge."""
    RETURNED = 15
    """It never started: give it back to its queue. Events of one batch are in the order of submission."""
    WRITTEN = 16
    """The handler wrote ``data`` as its result and still runs."""


TOLD_TO_END: Final = (EventKind.TIMEOUT, EventKind.CANCELED, EventKind.MEMORY_LIMIT)
"""What becomes of a task that was told to end for a reason of its own, not as the pool was stopped."""


def reason_for(kind: EventKind) -> TaskTimeout | TaskCanceled:
    """Return the error that a handler of this process sees when it is told to end."""
    if kind is EventKind.TIMEOUT:
        return TaskTimeout("the task's time is up")
    if kind is EventKind.MEMORY_LIMIT:
        peak = peak_rss(resource.getrusage(resource.RUSAGE_SELF))
        return TaskCanceled(f"its process has grown above memory_limit (peak RSS {peak / 1e6:.0f} MB)")
    return TaskCanceled("the task was canceled" if kind is EventKind.CANCELED else "the worker shuts down")
