"""The ticks of schedulers: the operation that enqueues a named entry's task once per tick, and the flow for many.

The script that enqueues the task also notes the tick, under the queue's hash tag. So the task is enqueued once, however
many schedulers try, and however often.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastq.broker.operation import Flow, Operation, scripted
from fastq.broker.operations.enqueue import (
    EnqueueBatch,
    EnqueueOutcome,
    EnqueueReport,
    NewTask,
    Outcome,
    enqueue_operations,
    settle_enqueue,
)
from fastq.broker.operations.keyed import found_of, keyed_keys
from fastq.broker.operations.lanes import in_lanes
from fastq.common.states import TaskState
from fastq.wire import keys

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class NamedTick:
    """A tick of a named entry, the scheduler entry that enqueues it, and how long the notes are kept.

    ``due_s`` is in Unix seconds, the TTLs are in seconds. ``plan`` is the entry's zone and spec; it is "" if later
    schedulers need not know the last tick.
    """

    name: str
    entry_id: str
    due_s: int
    ttl_s: int
    plan: str
    last_ttl_s: int


class LastTick(NamedTuple):
    """The last tick of an entry, and the plan that it followed."""

    due_s: int
    plan: str


class TickReport(NamedTuple):
    """The report of ``enqueue_ticks``: the registered queues, and the outcome or error of each tick, named or not."""

    registered: list[str]
    named: list[Outcome]
    plain: list[Outcome]


def enqueue_tick(tick: NamedTick, batch: EnqueueBatch) -> Operation[Outcome]:
    """Enqueue the one task of a batch unless this was done for the tick; a repeated call returns the same outcome.

    If the task was refused because of its id or its lock, the tick stays open: another scheduler may still enqueue it.
    """
    (task,) = batch.tasks
    queue = batch.queue
    notes = keys.tick(queue, tick.name, tick.due_s), keys.last_tick(queue, tick.name)
    if task.terms is not None:
        if_there, _, latest_s = task.terms
        return scripted(
            "put_keyed_tick",
            (*notes, *keyed_keys(queue)),
            (
                *(tick.entry_id, tick.due_s, tick.ttl_s, tick.plan, tick.last_ttl_s),
                *(keys.task_prefix(queue), batch.now_ns, keys.due_channel(queue)),
                *(task.id, task.message, if_there, task.run_at_s or "", latest_s or ""),
            ),
            _keyed_outcome,
            idempotent=True,
        )
    operation = scripted(
        "enqueue_tick",
        (
            *notes,
            keys.task(queue, task.id),
            keys.pending(queue),
            keys.scheduled(queue),
            keys.groups(queue),
            keys.group(queue, task.group),
            keys.scheduled_groups(queue),
        ),
        (
            *(tick.entry_id, tick.due_s, tick.ttl_s, tick.plan, tick.last_ttl_s),
            *(batch.state, _moment(batch, task)),
            *(task.id, task.message, task.group, task.lock, task.lock_ttl_s),
            *(keys.due_channel(queue), task.priority),
        ),
        EnqueueOutcome,
        idempotent=True,
    )
    return in_lanes(operation, queue) if batch.in_lane else operation


def _keyed_outcome(reply: Any) -> Outcome:
    code, more = reply
    if code == EnqueueOutcome.TAKEN:
        return EnqueueOutcome.TAKEN
    return found_of(code, more) or EnqueueOutcome.ID_CONFLICT


def _moment(batch: EnqueueBatch, task: NewTask) -> int:
    if batch.state is TaskState.SCHEDULED:
        return task.run_at_s
    return batch.now_ns if batch.state is TaskState.PENDING else batch.now_ns // _SECOND_NS


def enqueue_ticks(
    named: Sequence[tuple[NamedTick, EnqueueBatch]], plain: Sequence[EnqueueBatch], register: Sequence[str]
) -> Flow[TickReport]:
    """Enqueue ticks and register queues in one round trip; each batch holds one task."""
    operations = (*enqueue_operations(plain, register), *(enqueue_tick(tick, batch) for tick, batch in named))
    results = yield operations
    ours = len(operations) - len(named)
    report: EnqueueReport = yield from settle_enqueue(plain, register, results[:ours], results[ours:])
    return TickReport(report.registered, results[ours:], [outcomes[0] for outcomes in report.outcomes])


def read_last_tick(queue: str, name: str) -> Operation[LastTick | None]:
    """Read the last tick of a named entry that a scheduler tried to enqueue."""
    return Operation("GET", (keys.last_tick(queue, name),), (), _last_tick, idempotent=True)


def _last_tick(reply: bytes | None) -> LastTick | None:
    due, separator, plan = (reply or b"").decode(errors="replace").partition(":")
    return LastTick(int(due), plan) if separator and due.isdecimal() else None
