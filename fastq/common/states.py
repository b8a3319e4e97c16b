"""The states of a task; the strings are the ``state`` field of the task hash on the wire."""

from enum import StrEnum

__all__ = ["TaskState"]


class TaskState(StrEnum):
    """The states of a task, as asynq writes them."""

    ACTIVE = "active"
    PENDING = "pending"
    SCHEDULED = "scheduled"
    RETRY = "retry"
    ARCHIVED = "archived"
    COMPLETED = "completed"
    AGGREGATING = "aggregating"
