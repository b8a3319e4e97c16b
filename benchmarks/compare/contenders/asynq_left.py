"""What is left of tasks in asynq's keyspace."""

from typing import Any


def asynq_left(db: Any) -> int:
    """Return how many tasks wait or are leased."""
    return int(db.llen("asynq:{default}:pending")) + int(db.llen("asynq:{default}:active"))


def asynq_put_off(db: Any) -> int:
    """Return how many tasks wait for their time."""
    return int(db.zcard("asynq:{default}:retry")) + int(db.zcard("asynq:{default}:scheduled"))
