"""Dequeue: take a batch of a queue's oldest tasks, mark them active and lease them."""

from enum import Enum
from typing import Any, Final

from fastq.broker.operation import Operation, scripted
from fastq.broker.operations.lease import Leased, parse_leased
from fastq.wire import keys

__all__ = ["MAX_BATCH_BYTES", "MAX_BATCH_TASKS", "NoTasks", "dequeue"]

MAX_BATCH_TASKS: Final = 500
MAX_BATCH_BYTES: Final = 256_000
"""Without this limit, 500 messages of 100 kB would block Redis for 121 ms."""


class NoTasks(Enum):
    """The reason why a dequeue returned no tasks."""

    EMPTY = 0
    PAUSED = -1


def dequeue(queue: str, count: int, lease_score: str) -> Operation[Leased | NoTasks]:
    """Take at most ``count`` tasks; never sent again, since a call with a lost reply may have leased tasks."""
    return scripted(
        "dequeue",
        (keys.pending(queue), keys.active(queue), keys.lease(queue), keys.paused(queue)),
        (keys.task_prefix(queue), min(count, MAX_BATCH_TASKS), MAX_BATCH_BYTES, lease_score),
        _parse,
    )


def _parse(reply: Any) -> Leased | NoTasks:
    return NoTasks(reply) if isinstance(reply, int) else parse_leased(reply)
