"""Dequeue: take a batch of a queue's oldest tasks, mark them active and lease them."""

from enum import Enum
from typing import Any, Final, NamedTuple

from fastq.broker.operation import Operation, scripted
from fastq.broker.operations.lease import Leased
from fastq.wire import keys

MAX_BATCH_TASKS: Final = 500
MAX_BATCH_BYTES: Final = 256_000
"""Without this limit, 500 messages of 100 kB would block Redis for 121 ms."""
LOOK_AGAIN_US: Final = 5_000_000
"""After this time a full lane is looked at again: a task of it may have ended without freeing its place."""
LONGEST_TIME: Final = 19
"""The digits of a time in nanoseconds."""


class NoTasks(Enum):
    """The reason why a dequeue returned no tasks."""

    EMPTY = 0
    PAUSED = -1
    WITHOUT_RULES = -2
    """The queue's rules for lanes are gone: the next call is ``dequeue``."""


class Taken(NamedTuple):
    """The tasks taken from a queue with lanes.

    ``due_s`` is the seconds until the next lane is due, None if no lane waits for a time. ``is_full`` says that the
    queue itself has no free place. ``rated`` are the indexes of the tasks from lanes with a rate.
    """

    leased: Leased
    due_s: float | None
    is_full: bool
    rated: list[int]


def dequeue(queue: str, count: int, lease_score: str) -> Operation[Leased | NoTasks]:
    """Take at most ``count`` tasks.

    The operation is never sent again, since a call with a lost reply may have leased tasks.
    """
    return scripted(
        "dequeue",
        (keys.pending(queue), keys.active(queue), keys.lease(queue), keys.paused(queue)),
        (keys.task_prefix(queue), min(count, MAX_BATCH_TASKS), MAX_BATCH_BYTES, lease_score),
        _parse,
    )


def take(queue: str, count: int, lease_score: str) -> Operation[Taken | NoTasks]:
    """Do as ``dequeue`` for a queue with lanes: take from pending, and from the lanes in turn, within their limits."""
    places = keys.pending(queue), keys.active(queue), keys.lease(queue), keys.paused(queue), keys.groups(queue)
    lanes = keys.limits(queue), keys.turns(queue), keys.full(queue), keys.rates(queue), keys.bell(queue)
    return scripted(
        "take",
        (*places, *lanes),
        (keys.task_prefix(queue), min(count, MAX_BATCH_TASKS), MAX_BATCH_BYTES, lease_score, LOOK_AGAIN_US),
        _parse_taken,
    )


def _parse_taken(reply: Any) -> Taken | NoTasks:
    if isinstance(reply, int):
        return NoTasks(reply)
    dangling, first_since, last_since, due_us, is_full, rated, *tasks = reply
    leased = Leased(tasks[::2], tasks[1::2], dangling, (_time_ns(first_since), _time_ns(last_since)))
    return Taken(leased, int(due_us) / 1e6 if due_us else None, bool(is_full), [place - 1 for place in rated])


def _parse(reply: Any) -> Leased | NoTasks:
    if isinstance(reply, int):
        return NoTasks(reply)
    dangling, first_since, last_since = reply[:3]
    return Leased(reply[3::2], reply[4::2], dangling, (_time_ns(first_since), _time_ns(last_since)))


def _time_ns(word: bytes) -> int:
    """Parse a time, 0 if it is not valid: a peer may write any word there."""
    return int(word) if len(word) <= LONGEST_TIME and word.isdigit() else 0
