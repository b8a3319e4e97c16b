"""The longest commands are short enough for ElastiCache Serverless, which takes 3 999 arguments."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import pytest

from fastq.broker.inspect.put import TaskToPut, put_tasks
from fastq.broker.inspect.queues import read_counters
from fastq.broker.operation import Operation
from fastq.broker.operations import ends
from fastq.broker.operations.dequeue import MAX_BATCH_TASKS
from fastq.broker.operations.enqueue import EnqueueBatch, NewTask, enqueue_operations
from fastq.broker.operations.finish import Archived, Completed, Done, Guard, Retried, archive, complete, done, retry
from fastq.broker.operations.schedulers import publish_scheduler
from fastq.common.states import TaskState
from fastq.enqueueing.bulk import MAX_CHUNK_TASKS
from fastq.inspector.importing import LINES_A_CALL
from fastq.inspector.queues import MAX_DAYS
from fastq.server.inflight.ack_planner import MAX_CALL_TASKS
from tests.broker.harness import NOW, NOW_NS, NOW_S, OURS

MOST_WORDS: Final = 3_999
NEW: Final = [NewTask("id", b"message", "lock", 60, NOW_S, "group")] * MAX_CHUNK_TASKS


def enqueued(state: TaskState) -> Sequence[Operation[Any]]:
    return enqueue_operations([EnqueueBatch("q", state, NEW, NOW_NS)], [])


def put() -> Sequence[Operation[Any]]:
    """Return the calls that put tasks with more fields than any task has."""
    fields = {b"field-%d" % number: b"value" for number in range(30)}
    flow = put_tasks("q", [TaskToPut(b"id", "retry", fields)] * LINES_A_CALL)
    asked: list[Any] = [next(flow)]
    with suppress(StopIteration):
        while True:
            asked.append(flow.send([]))
    return asked


CALLS: Final[dict[str, Sequence[Operation[Any]]]] = {
    "pending": enqueued(TaskState.PENDING),
    "scheduled": enqueued(TaskState.SCHEDULED),
    "aggregating": enqueued(TaskState.AGGREGATING),
    "done": [done("q", [Done("id", "lock")] * MAX_CALL_TASKS, NOW, OURS)],
    "complete": [complete("q", [Completed("id", b"message", NOW_S, "lock", b"r")] * MAX_CALL_TASKS, NOW, OURS)],
    "retry": [retry("q", [Retried("id", b"message", NOW_S, True, b"a")] * MAX_CALL_TASKS, NOW, Guard(OURS))],
    "archive": [archive("q", [Archived("id", b"message", b"a")] * MAX_CALL_TASKS, NOW, Guard(OURS))],
    "ends": [ends.read_ends("q", [("id", "nonce")] * ends.TASKS_A_CALL)],
    "put": put(),
    "history": read_counters("q", [NOW.date() - timedelta(days=ago) for ago in range(MAX_DAYS)]),
    "schedulers": publish_scheduler("h:1:x", [b"entry"] * 10_000, NOW_S, 20),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_command_has_too_many_arguments(call: str) -> None:
    assert CALLS[call]
    assert max(len(operation.words()) for operation in CALLS[call]) <= MOST_WORDS


def test_a_dequeue_stores_no_more_in_one_command() -> None:
    assert 2 * MAX_BATCH_TASKS + 2 <= MOST_WORDS
