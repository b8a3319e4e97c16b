"""Turns a tick into the arguments of the script: the message, the initial state, and the name of the tick."""

from dataclasses import dataclass
from datetime import datetime

from fastq.broker.operations.enqueue import EnqueueBatch
from fastq.broker.operations.ticks import NamedTick
from fastq.enqueueing.producer import compose
from fastq.info import TaskInfo
from fastq.scheduler.entry import Attempt, Entry
from fastq.scheduler.ticks import Missed, tick_ttl_s

LAST_TICK_TTL_S = 90 * 86_400


@dataclass(frozen=True, slots=True)
class TickTask:
    """The task of one tick, ready to be enqueued; ``named`` is None if each scheduler enqueues its own task."""

    entry: Entry
    attempt: Attempt
    batch: EnqueueBatch
    named: NamedTick | None
    info: TaskInfo


def compose_tick(entry: Entry, due: datetime, now_ns: int) -> TickTask:
    """Make the task of a tick; ``ValueError`` for bad options."""
    registration = entry.registration
    attempt = entry.attempt(due)
    batch, info = compose(attempt.task, registration.checked, now_ns, attempt.task_id)
    return TickTask(entry, attempt, batch, _named(entry, due), info)


def _named(entry: Entry, due: datetime) -> NamedTick | None:
    registration = entry.registration
    if registration.name is None:
        return None
    return NamedTick(
        name=registration.name,
        entry_id=entry.id,
        due_s=int(due.timestamp()),
        ttl_s=tick_ttl_s(registration.schedule, due, registration.missed),
        plan="" if registration.missed is Missed.SKIP else registration.plan,
        last_ttl_s=LAST_TICK_TTL_S,
    )
