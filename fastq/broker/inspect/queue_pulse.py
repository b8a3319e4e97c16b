"""Reads since when a queue is paused, beside what is in it."""

from typing import NamedTuple

from fastq.broker.inspect.queues import QueueStats, queue_stats
from fastq.broker.operation import Flow, Operation, together
from fastq.wire import keys

__all__ = ["Pulse", "read_pulse"]


class Pulse(NamedTuple):
    """Hold what is in a queue; ``paused_since_s`` is 0 if it is paused and does not say since when, None if not."""

    stats: QueueStats
    paused_since_s: int | None


def read_pulse(queue: str, now_s: float) -> Flow[Pulse]:
    """Read both in one round trip."""
    stats, paused = yield from together(
        queue_stats(queue, now_s), Operation("GET", None, (keys.paused(queue),), (), _second, idempotent=True)
    )
    return Pulse(stats, paused)


def _second(reply: bytes | None) -> int | None:
    return None if reply is None else int(reply) if reply.isdigit() else 0
