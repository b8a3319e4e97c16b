"""The events of a submission, and the errors that ask a handler to end."""

import resource
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from fastq.errors import RevokeTask, SkipRetry, TaskCanceled, TaskTimeout
from fastq.pool.shared.processes import peak_rss

TOO_LATE: Final = b"too late"
"""The data of a TIMEOUT, CANCELED or MEMORY_LIMIT whose handler was asked to end, and returned normally after that."""

NOT_BEGUN: Final = b"not begun"
"""The data of a TIMEOUT whose time was up before it began: as in asynq, its handler is not called."""


ANOTHER_TASK: Final = b"another task"
"""The data of a RERUN whose child was killed because of another task, which is charged for it."""

ITS_BATCH: Final = b"its batch"
"""The data of a RERUN whose child died in a call for several tasks: the task must run again alone."""


class EventKind(IntEnum):
    """The kind of an event. A submission ends with exactly one event of a kind up to RETURNED."""

    DONE = 1
    """The handler returned nothing."""
    RESULT = 2
    """The handler returned ``data``."""
    FAILED = 3
    """The handler raised; ``data`` is the report of the runner."""
    SKIP_RETRY = 4
    """The handler raised, and the task must not be retried; ``data`` is as for FAILED."""
    REVOKED = 5
    """The task must be deleted."""
    INVALID = 6
    """The runner cannot decode the task's bytes; ``data`` says why."""
    NOT_FOUND = 7
    """The runner has no handler for the task."""
    TIMEOUT = 8
    """The time was up.

    If the handler ended after it was asked to, ``data`` is the runner's report or ``TOO_LATE``. If its child was
    killed, there is no data.
    """
    CANCELED = 9
    """The task was canceled; ``data`` is as for TIMEOUT."""
    MEMORY_LIMIT = 10
    """The child had grown above the memory limit, and the handler ended after it was asked to; ``data`` is as for
    TIMEOUT. If the child was killed, the kind is CRASHED."""
    CRASHED = 11
    """The child died by itself, or was killed because of the task: it blocked the event loop of others, or did not end
    when the child had grown above the memory limit. ``data`` names the signal or exit code and the peak RSS.
    """
    BROKEN = 12
    """The runner itself raised, or returned an invalid answer; ``data`` is the traceback."""
    ABORTED = 13
    """The task ran when the pool was stopped and did not end in time; it gets a free rerun."""
    RERUN = 14
    """The task ran in a child that was killed, but not because of this task; it gets a free rerun. ``data`` is
    ``ANOTHER_TASK`` if it is known which task was the cause, and ``ITS_BATCH`` if the task ran in a batch."""
    RETURNED = 15
    """The task never started, and goes back to its queue. Such events are in the order of submission."""
    WRITTEN = 16
    """The handler wrote ``data`` as its result and still runs."""
    PROGRESS = 17
    """The handler has come as far as ``data`` says, and still runs."""
    CHECKPOINT = 18
    """The handler still runs, and waits until ``data`` is saved as its checkpoint; ``ran_ns`` is its number."""


DECISIONS: Final[Mapping[type[Exception], EventKind]] = {
    RevokeTask: EventKind.REVOKED,
    SkipRetry: EventKind.SKIP_RETRY,
}
"""The exceptions with which a handler decides that its task is not retried, and the kinds of such ends.

The first entry counts that is an error's class or the class of one of its causes.
"""
NO_FAILURES: Final = {error: kind for error, kind in DECISIONS.items() if kind is not EventKind.SKIP_RETRY}
"""The decisions that are no failures of the task."""

TOLD_TO_END: Final = (EventKind.TIMEOUT, EventKind.CANCELED, EventKind.MEMORY_LIMIT)
"""The kinds of tasks that were asked to end for a reason of their own, not because the pool was stopped."""


def reason_for(kind: EventKind) -> TaskTimeout | TaskCanceled:
    """Return the error that is raised in a handler of this process to make it end."""
    if kind is EventKind.TIMEOUT:
        return TaskTimeout("the task's time is up")
    if kind is EventKind.MEMORY_LIMIT:
        peak = peak_rss(resource.getrusage(resource.RUSAGE_SELF))
        return TaskCanceled(f"its process has grown above memory_limit (peak RSS {peak / 1e6:.0f} MB)")
    return TaskCanceled("the task was canceled" if kind is EventKind.CANCELED else "the worker shuts down")
