"""The states of a task; the strings are the ``state`` field of the task hash on the wire."""

from enum import StrEnum


class TaskState(StrEnum):
    """The states of a task, as asynq writes them."""

    ACTIVE = "active"
    PENDING = "pending"
    SCHEDULED = "scheduled"
    RETRY = "retry"
    ARCHIVED = "archived"
    COMPLETED = "completed"
    AGGREGATING = "aggregating"


class KeyOutcome(StrEnum):
    """What became of a task that was enqueued by key."""

    PUT = "put"
    """There was none with this key that waited or ran: this one is enqueued."""
    KEPT = "kept"
    """The one that is there stays as it is."""
    REPLACED = "replaced"
    """The one that waits has this payload now, and these options."""
    POSTPONED = "postponed"
    """The same, and it waits for a new time."""
    RERUN = "rerun"
    """It runs once the present run has ended."""
