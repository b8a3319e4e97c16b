"""Aggregates the groups of a Redis in this process, as a server with a group aggregator would."""

import time
import uuid
from collections.abc import Sequence
from contextlib import closing

from fastq.broker.inspect.queues import group_sizes, list_queues
from fastq.broker.operations.aggregate import (
    MAX_SET,
    AggregationSet,
    CommitOutcome,
    GroupRule,
    commit_set,
    delete_members,
    read_set,
    reclaim_set,
    take_set,
)
from fastq.broker.operations.lease import LeasedTask
from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.open import BlockingRedis, open_broker
from fastq.errors import DuplicateTaskError, TaskIDConflictError
from fastq.wire.codec import decode_task_message
from fastq.worker.child.aggregation_runner import AggregationRunner, GroupAggregator
from fastq.worker.shared.requests import Combined, aggregation_answer

AT_ONCE = GroupRule(0)
LIFETIME_S = 120


def aggregate_groups(
    aggregator: GroupAggregator, redis: str | BlockingRedis | None = None, *, queues: Sequence[str] | None = None
) -> list[str]:
    """Combine each group into one task now, however new it is; return the ids of the new tasks, which ``drain`` runs.
    Exceptions of the aggregator propagate. A result that is not a task raises ``TypeError``. A new task that cannot be
    enqueued raises ``TaskIDConflictError`` or ``DuplicateTaskError``. In all these cases the tasks return to their
    group.

    >>> from fastq import Client, Task
    >>> from fastq.testing import assert_enqueued, embedded_redis
    >>> def digest(group, tasks):
    ...     return Task("digest", [group, *(task.json() for task in tasks)])
    >>> with embedded_redis() as url, Client(url) as client:
    ...     for number in range(3):
    ...         _ = client.enqueue("news", number, group="ann", task_id=str(number))
    ...     _ = aggregate_groups(digest, url)
    ...     [info] = assert_enqueued(client, "digest")
    ...     info.payload
    b'["ann",0,1,2]'
    """
    runner = AggregationRunner(aggregator)
    with closing(open_broker(redis)) as broker:
        return [
            task_id
            for queue in (broker.run(list_queues()) if queues is None else queues)
            for group in sorted(broker.drive(group_sizes(queue)))
            for task_id in _aggregated(broker, runner, queue, group)
        ]


def _aggregated(broker: BlockingBroker, runner: AggregationRunner, queue: str, group: str) -> list[str]:
    ids: list[str] = []
    taken = MAX_SET
    while taken == MAX_SET:
        one = AggregationSet(queue, group, str(uuid.uuid4()))
        now_s = int(time.time())
        taken = broker.run(take_set(one, AT_ONCE, now_s, now_s + LIFETIME_S))
        if not taken:
            break
        try:
            ids.append(_replace(broker, runner, one))
        except BaseException:
            while broker.run(reclaim_set(one)) > 0:
                pass
            raise
    return ids


def _replace(broker: BlockingBroker, runner: AggregationRunner, one: AggregationSet) -> str:
    members: list[LeasedTask] = []
    while part := broker.run(read_set(one, len(members))).tasks:
        members += part
    messages = [decode_task_message(task.message) for task in members]
    answer = aggregation_answer(runner.combine(one.queue, one.group, messages))
    assert isinstance(answer, Combined), "messages that were decoded are readable"
    new = answer.task
    outcome = broker.run(commit_set(one, len(members), new, answer.state, answer.now_ns))
    if outcome in (CommitOutcome.ID_CONFLICT, CommitOutcome.DUPLICATE):
        raise (TaskIDConflictError if outcome is CommitOutcome.ID_CONFLICT else DuplicateTaskError)(one.queue, new.id)
    left = -1 if outcome is CommitOutcome.GONE else 1
    while left > 0:
        part = broker.run(read_set(one, 0)).tasks
        left = broker.run(delete_members(one, {task.id: decode_task_message(task.message).unique_key for task in part}))
    return new.id
