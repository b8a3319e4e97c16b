"""Looks at what came last into a queue: bounded, however big the queue is."""

from typing import Any, Final, NamedTuple

from fastq.broker.operation import Operation, scripted
from fastq.states import TaskState
from fastq.wire import keys

__all__ = ["Peek", "peek_queue"]

_STATES: Final = (
    TaskState.PENDING,
    TaskState.ACTIVE,
    TaskState.SCHEDULED,
    TaskState.RETRY,
    TaskState.ARCHIVED,
    TaskState.COMPLETED,
)


class Peek(NamedTuple):
    """The number of tasks in each state, the ids that entered it last, and the total of finished runs.

    In pending and active the newest ids come first, in the other states those with the highest scores.
    """

    sizes: dict[TaskState, int]
    ids: dict[TaskState, list[bytes]]
    processed: int


def peek_queue(queue: str, window: int) -> Operation[Peek]:
    """Look at a queue at one moment; ``window`` is how many ids are read of each state at most."""
    script_keys = (
        keys.pending(queue),
        keys.active(queue),
        keys.scheduled(queue),
        keys.retry(queue),
        keys.archived(queue),
        keys.completed(queue),
        keys.processed_total(queue),
    )
    return scripted("peek_queue", script_keys, (window,), _parse, idempotent=True)


def _parse(reply: list[Any]) -> Peek:
    return Peek(
        dict(zip(_STATES, reply[0:12:2], strict=True)),
        dict(zip(_STATES, reply[1:12:2], strict=True)),
        int(reply[12] or 0),
    )
