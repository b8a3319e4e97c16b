"""Reads since when a queue is paused, beside what is in it."""

from typing import NamedTuple

from fastq.broker.inspect.queues import QueueStats, queue_stats
from fastq.broker.operation import Flow, Operation, together
from fastq.wire import keys

__all__ = ["Pulse", "read_pulse"]


class Pulse(NamedTuple):
    """The contents of a queue, and since when it is paused.

    ``paused_since_s`` is None if the queue is not paused, 0 if it is paused since an unknown time.
    """

    stats: QueueStats
    paused_since_s: int | None


def read_pulse(queue: str, now_s: float) -> Flow[Pulse]:
    """Read both in one round trip."""
    stats, paused = yield from together(
        queue_stats(queue, now_s), Operation("GET", (keys.paused(queue),), (), _second, idempotent=True)
    )
    return Pulse(stats, paused)


def _second(reply: bytes | None) -> int | None:
    return None if reply is None else int(reply) if reply.isdigit() else 0
