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
    """No task with this key waited or ran: this task is enqueued."""
    KEPT = "kept"
    """The task that waits or runs stays unchanged."""
    REPLACED = "replaced"
    """The task that waits now has the payload and the options of this task."""
    POSTPONED = "postponed"
    """The same, and the waiting task also has a new time."""
    RERUN = "rerun"
    """This task runs after the present run of that task."""
