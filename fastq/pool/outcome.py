"""What can become of a task that the pool was given."""

from enum import IntEnum
from typing import Final

__all__ = ["NOT_BEGUN", "TOO_LATE", "Kind"]

TOO_LATE: Final = b"too late"
"""The data of a TIMEOUT or CANCELED whose handler was told, went on, and returned as if nothing had been."""

NOT_BEGUN: Final = b"not begun"
"""The data of a TIMEOUT whose time was up before it could begin: as in asynq, its handler is not called."""


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
    """The time was up: the handler was told and has ended since (what the runner says of it, else ``TOO_LATE``), or its
    child was killed (no data)."""
    CANCELED = 9
    """Somebody cancelled it, otherwise as TIMEOUT."""
    CRASHED = 10
    """Its child died by itself, or was killed because the task blocked the event loop of others; ``data`` is a text
    that names the signal or exit code and the peak RSS."""
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
