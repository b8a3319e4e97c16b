"""Dequeue: take a batch of a queue's oldest tasks, mark them active and lease them."""

from enum import Enum
from typing import Any, Final

from fastq.broker.operation import Operation, scripted
from fastq.broker.operations.lease import Leased
from fastq.wire import keys

MAX_BATCH_TASKS: Final = 500
MAX_BATCH_BYTES: Final = 256_000
"""Without this limit, 500 messages of 100 kB would block Redis for 121 ms."""
LONGEST_TIME: Final = 19
"""The digits of a time in nanoseconds."""


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
    if isinstance(reply, int):
        return NoTasks(reply)
    dangling, first_since, last_since = reply[:3]
    return Leased(reply[3::2], reply[4::2], dangling, (_time_ns(first_since), _time_ns(last_since)))


def _time_ns(word: bytes) -> int:
    """Return a time; 0 if it is none, whatever a peer has written."""
    return int(word) if len(word) <= LONGEST_TIME and word.isdigit() else 0
