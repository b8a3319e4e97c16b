"""The states of a task, and the outcomes of enqueueing by key."""

from enum import StrEnum


class TaskState(StrEnum):
    """The states of a task, as asynq writes them to the ``state`` field of the task's hash."""

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
    """No task with this key waited or ran, so this task is enqueued."""
    KEPT = "kept"
    """A task with this key waits or runs, and stays unchanged."""
    REPLACED = "replaced"
    """A task with this key waits; it now has the payload and the options of this task."""
    POSTPONED = "postponed"
    """As REPLACED, and the waiting task also has a new time."""
    RERUN = "rerun"
    """A task with this key runs; this task runs after that run."""
