"""Restores this server's mark on leases from which an asynq server has wiped it.

asynq's heartbeat extends leases by id, whoever has them. It may still name a task that its server has ended a moment
before. If that task is ours by then, its lease looks like one of asynq's.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastq.broker.operation import Operation
from fastq.broker.operations.lease import restore_owner
from fastq.errors import BrokerError
from fastq.server.base.outage import is_shared
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.tasks import InFlightTask
from fastq.wire.marks import Mark


async def restore_marks(
    run_many: Callable[[Sequence[Operation[Any]]], Awaitable[list[Any]]],
    in_flight: InFlight,
    tasks: Sequence[InFlightTask],
) -> set[InFlightTask]:
    """Return which of the tasks, whose leases lack our mark, are ours after all; raises the error of an outage.

    If a lease has ended, perhaps while this machine was suspended, the task may have been run elsewhere and enqueued
    again under the same id, with the same message. A task by key may even be enqueued again while it runs.
    """
    now_s, lease_s = in_flight.clock.monotonic_s(), in_flight.timing.lease_s
    awake_since_s = in_flight.stall.awake_since_s
    held = [
        task
        for task in tasks
        if task.in_flight
        and not task.marks & Mark.KEYED
        and task.leased_until_s > now_s
        and task.leased_until_s - lease_s > awake_since_s
    ]
    if not held:
        return set()
    score = in_flight.owner.score(in_flight.clock.unix_ns() / 1e9, lease_s)
    results = await run_many([restore_owner(task.queue, task.id, task.view.data, score) for task in held])
    for result in results:
        if isinstance(result, BrokerError) and is_shared(result):
            raise result
    return {task for task, is_ours in zip(held, results, strict=True) if is_ours is True}
