"""What the batch scripts cost Redis, in microseconds a task: its own count of the time in EVALSHA, the least of many.

Messages have payloads of 100 bytes. Each script finds the state that the ones before it have left: tasks are enqueued,
dequeued, their leases prolonged, and finished in one way or another.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from fastq._ids import new_task_ids
from fastq.broker.operation import Operation
from fastq.broker.operations.dequeue import dequeue
from fastq.broker.operations.enqueue import EnqueueBatch, NewTask, enqueue_operations
from fastq.broker.operations.finish import (
    ANY_OWNER,
    Archived,
    Completed,
    Done,
    Guard,
    Retried,
    archive,
    complete,
    done,
    requeue,
    retry,
)
from fastq.broker.operations.keyed import KeyTerms, put_again
from fastq.broker.operations.lease import Owner, extend_leases
from fastq.broker.operations.maintain import delete_expired_completed, forward
from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.open import open_broker
from fastq.common.states import TaskState
from fastq.wire import keys
from fastq.wire.attempts import AttemptRecord
from fastq.wire.codec import TaskMessage, encode_task_message
from tests.redis_servers import RedisServer

QUEUE = "default"
REPEATS = 60
SIZES = (1, 100, 500)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_S = int(NOW.timestamp())
NOW_NS = NOW_S * 1_000_000_000
OWNER = Owner.draw()
LATER = NOW_S + 3600
ATTEMPT = AttemptRecord(1, 1, 2, "host:1", "ValueError: no such user", "ab" * 8).encode()

Ops = Callable[[list[str]], tuple[Operation[Any], ...]]


def message(task_id: str) -> bytes:
    """Return an encoded message with a payload of 100 bytes."""
    return encode_task_message(TaskMessage(type="bench:noop", payload=bytes(100), id=task_id, queue=QUEUE))


def put(ids: list[str], state: TaskState, **fields: Any) -> tuple[Operation[Any], ...]:
    """Return the operation that enqueues tasks."""
    tasks = [NewTask(task_id, message(task_id), **fields) for task_id in ids]
    return enqueue_operations([EnqueueBatch(QUEUE, state, tasks, NOW_NS)], ())


def pending(ids: list[str]) -> tuple[Operation[Any], ...]:
    return put(ids, TaskState.PENDING)


def take(ids: list[str]) -> tuple[Operation[Any], ...]:
    return (dequeue(QUEUE, len(ids), OWNER.score(NOW_S)),)


def kept(ids: list[str]) -> list[Completed]:
    return [Completed(task_id, message(task_id), NOW_S - 1) for task_id in ids]


def failed(ids: list[str]) -> list[Retried]:
    return [Retried(task_id, message(task_id), NOW_S - 1, attempt=ATTEMPT) for task_id in ids]


def by_key(if_there: str, run_at_s: int = 0) -> Ops:
    """Return what puts tasks by their keys."""

    def put_keyed(ids: list[str]) -> tuple[Operation[Any], ...]:
        terms = KeyTerms(if_there, "A mark of 12", LATER + 60 if run_at_s else 0)
        tasks = [NewTask(one, message(one), run_at_s=run_at_s, terms=terms) for one in ids]
        return enqueue_operations([EnqueueBatch(QUEUE, TaskState.PENDING, tasks, NOW_NS)], ())

    return put_keyed


def again(ids: list[str]) -> tuple[Operation[Any], ...]:
    return tuple(put_again(QUEUE, ids[at : at + 200], NOW_NS) for at in range(0, len(ids), 200))


# What is measured, and what brings the tasks to where it finds them.
SCRIPTS: dict[str, tuple[list[Ops], Ops]] = {
    "enqueue": ([], pending),
    "enqueue, unique": (
        [],
        lambda ids: enqueue_operations([EnqueueBatch(QUEUE, TaskState.PENDING, locked(ids), NOW_NS)], ()),
    ),
    "put_keyed, new": ([], by_key("keep")),
    "put_keyed, kept": ([pending], by_key("keep")),
    "put_keyed, replaced": ([pending], by_key("replace")),
    "put_keyed, put off": ([by_key("postpone", LATER)], by_key("postpone", LATER + 4)),
    "put_keyed, behind a run": ([pending, take], by_key("rerun")),
    "put_again, nothing waits": ([], again),
    "put_again": (
        [pending, take, by_key("rerun"), lambda ids: (done(QUEUE, [Done(one) for one in ids], NOW),)],
        again,
    ),
    "schedule": ([], lambda ids: put(ids, TaskState.SCHEDULED, run_at_s=LATER)),
    "add_to_group": ([], lambda ids: put(ids, TaskState.AGGREGATING, group="g")),
    "dequeue": ([pending], take),
    "extend_leases": ([pending, take], lambda ids: (extend_leases(QUEUE, OWNER, OWNER.score(LATER), ids),)),
    "done": ([pending, take], lambda ids: (done(QUEUE, [Done(task_id) for task_id in ids], NOW),)),
    "done, owner asked": (
        [pending, take],
        lambda ids: (done(QUEUE, [Done(task_id) for task_id in ids], NOW, OWNER),),
    ),
    "complete": ([pending, take], lambda ids: (complete(QUEUE, kept(ids), NOW),)),
    "retry": ([pending, take], lambda ids: (retry(QUEUE, failed(ids), NOW, Guard(OWNER)),)),
    "archive": (
        [pending, take],
        lambda ids: (archive(QUEUE, [Archived(one, message(one), ATTEMPT) for one in ids], NOW, ANY_OWNER),),
    ),
    "requeue": ([pending, take], lambda ids: (requeue(QUEUE, ids, NOW_NS, Guard(OWNER)),)),
    "forward": (
        [pending, take, lambda ids: (retry(QUEUE, failed(ids), NOW, Guard(OWNER)),)],
        lambda ids: (forward(QUEUE, NOW_NS, len(ids)),),
    ),
    "delete_expired_completed": (
        [pending, take, lambda ids: (complete(QUEUE, kept(ids), NOW),)],
        lambda ids: (delete_expired_completed(QUEUE, NOW_S, len(ids)),),
    ),
}


def locked(ids: list[str]) -> list[NewTask]:
    return [NewTask(one, message(one), keys.unique(QUEUE, "bench:noop", one.encode()), 3600) for one in ids]


@pytest.fixture
def broker(tcp_server: RedisServer) -> Iterator[BlockingBroker]:
    made = open_broker(tcp_server.tcp_url)
    yield made
    made.close()


def cost_us(broker: BlockingBroker, db: Any, name: str, size: int, repeats: int) -> float:
    """Return the least microseconds a task that Redis took for a script on so many tasks."""
    before, measured = SCRIPTS[name]
    least = float("inf")
    for number in range(repeats + 1):
        db.flushdb()
        ids = new_task_ids(size)
        for step in before:
            run(broker, step(ids))
        db.config_resetstat()
        run(broker, measured(ids))
        spent: dict[str, Any] = db.info("commandstats")["cmdstat_evalsha"]
        if number:  # the first call is a script that Redis does not know yet: it fails, which is quick
            assert spent["calls"] == len(measured(ids))
            least = min(least, spent["usec"] / size)
    return least


def run(broker: BlockingBroker, operations: tuple[Operation[Any], ...]) -> None:
    for result in broker.run_many(operations):
        if isinstance(result, Exception):
            raise result


def test_scripts(
    broker: BlockingBroker, tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    repeats = 2 if pytestconfig.getoption("benchmark_disable") else REPEATS
    lines = [f"\nRedis' own µs a task, the least of {repeats} calls each, by the number of tasks a call"]
    lines.append(f"| script | {' | '.join(map(str, SIZES))} |")
    lines.append("|---|" + "---|" * len(SIZES))
    with tcp_server.client() as db:
        for name in SCRIPTS:
            run(broker, pending(["warm-up"]))
            found = [cost_us(broker, db, name, size, repeats) for size in SIZES]
            lines.append(f"| {name} | {' | '.join(f'{us:.1f}' for us in found)} |")
        db.flushdb()
    with capsys.disabled():
        print("\n".join(lines))
