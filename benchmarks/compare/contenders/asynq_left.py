"""What is left of tasks in asynq's keyspace."""

from typing import Any

__all__ = ["asynq_left"]


def asynq_left(db: Any) -> int:
    """Return how many tasks wait or are leased."""
    return int(db.llen("asynq:{default}:pending")) + int(db.llen("asynq:{default}:active"))
