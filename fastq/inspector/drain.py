"""What is left to be done in a queue, and how much was done in it, as one flow; for whoever waits for its end."""

from typing import NamedTuple

from fastq.broker.inspect.queues import QueueStats, group_sizes, queue_exists, queue_stats
from fastq.broker.operation import Flow, Operation, together
from fastq.errors import QueueNotFoundError
from fastq.states import TaskState
from fastq.wire import keys

__all__ = ["Remaining", "remaining"]

SECOND_NS = 1_000_000_000


class Remaining(NamedTuple):
    """Hold how many tasks are in each state, those of groups counted, and what was processed and failed ever.

    ``aggregating`` counts a set that is being made into one task as one more.
    """

    sizes: dict[TaskState, int]
    processed: int
    failed: int
    paused: bool


def remaining(queue: str, now_ns: int) -> Flow[Remaining]:
    """Count what is in a queue; groups are counted in pieces beside the rest."""
    exists, stats, sets = yield from together(
        queue_exists(queue),
        queue_stats(queue, now_ns / SECOND_NS),
        Operation("ZCARD", None, (keys.aggregation_sets(queue),), (), int, idempotent=True),
    )
    if not exists:
        raise QueueNotFoundError(queue)
    return (yield from _counted(queue, stats, sets))


def _counted(queue: str, stats: QueueStats, sets: int) -> Flow[Remaining]:
    grouped = sum((yield from group_sizes(queue)).values()) if stats.groups else 0
    sizes = {**stats.sizes, TaskState.AGGREGATING: grouped + sets}
    return Remaining(sizes, stats.processed_total, stats.failed_total, stats.paused)
