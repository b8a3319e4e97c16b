"""Due times: a script that puts the earliest task of a queue's scheduled or retry says so, once, to who listens."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.aggregate import AggregationSet, CommitOutcome, commit_set
from fastq.broker.operations.enqueue import EnqueueBatch, EnqueueOutcome, NewTask, enqueue_operations
from fastq.broker.operations.finish import ANY_OWNER, FinishOutcome, Retried, retry
from fastq.broker.operations.ticks import NamedTick, enqueue_tick
from fastq.broker.transport.open import open_broker
from fastq.common.states import TaskState
from fastq.wire import keys
from tests.broker.harness import NOW, NOW_NS, NOW_S, QUEUE, QueueBench, message, queue_bench
from tests.redis_servers import RedisServer
from tests.waiting import PATIENCE_S

CHANNEL = keys.due_channel(QUEUE)


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


class Ear:
    """Hear what is published, in order."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self._pubsub = db.pubsub()
        self._pubsub.psubscribe("*")
        assert self._pubsub.get_message(timeout=PATIENCE_S)["type"] == "psubscribe"

    def heard(self) -> list[int]:
        """Return the times that were published since the last call."""
        self._db.publish("last", "")
        found = []
        while (one := self._pubsub.get_message(timeout=PATIENCE_S))["channel"] != b"last":
            assert one["channel"] == CHANNEL.encode()
            found.append(int(one["data"]))
        return found


@pytest.fixture
def ear(db: Any) -> Iterator[Ear]:
    made = Ear(db)
    yield made
    made._pubsub.close()


def schedule(bench: QueueBench, **run_at_s: int) -> list[EnqueueOutcome]:
    tasks = [NewTask(task_id, message(task_id), run_at_s=at) for task_id, at in run_at_s.items()]
    return list(bench.run(enqueue_operations([EnqueueBatch(QUEUE, TaskState.SCHEDULED, tasks, NOW_NS)], ())[0]))


def fail(bench: QueueBench, **retry_at_s: int) -> list[FinishOutcome]:
    bench.activate(*retry_at_s)
    return bench.run(retry(QUEUE, [Retried(one, message(one), at) for one, at in retry_at_s.items()], NOW, ANY_OWNER))


def test_a_scheduled_task_that_is_due_before_all_others_is_told(bench: QueueBench, ear: Ear) -> None:
    schedule(bench, a=NOW_S + 9)
    assert ear.heard() == [NOW_S + 9]
    schedule(bench, later=NOW_S + 10, as_early=NOW_S + 9)
    assert ear.heard() == []
    schedule(bench, b=NOW_S + 5, c=NOW_S + 3, d=NOW_S + 20)
    assert ear.heard() == [NOW_S + 3]


def test_a_task_that_is_not_put_is_not_told(bench: QueueBench, ear: Ear) -> None:
    schedule(bench, a=NOW_S + 9)
    ear.heard()
    assert schedule(bench, a=NOW_S + 1, b=NOW_S + 5) == [EnqueueOutcome.ID_CONFLICT, EnqueueOutcome.ENQUEUED]
    assert ear.heard() == [NOW_S + 5]


def test_a_retry_that_is_due_before_all_others_is_told(bench: QueueBench, ear: Ear) -> None:
    schedule(bench, first=1)
    ear.heard()
    fail(bench, a=NOW_S + 9)
    assert ear.heard() == [NOW_S + 9], "scheduled tasks are another set; whoever looks there knows of them"
    fail(bench, b=NOW_S + 9, c=NOW_S + 30)
    assert ear.heard() == []
    fail(bench, d=NOW_S + 8, e=NOW_S + 2)
    assert ear.heard() == [NOW_S + 2]


def test_a_retry_of_a_task_that_is_not_active_is_not_told(bench: QueueBench, ear: Ear) -> None:
    assert bench.run(retry(QUEUE, [Retried("gone", message("gone"), NOW_S)], NOW, ANY_OWNER)) == [
        FinishOutcome.NOT_ACTIVE
    ]
    assert ear.heard() == []


def test_a_scheduler_tells_of_its_delayed_tasks_only(bench: QueueBench, ear: Ear) -> None:
    def tick(due_s: int, state: TaskState) -> None:
        task = NewTask(f"t{due_s}", message(f"t{due_s}"), run_at_s=due_s + 60)
        of = NamedTick("name", "entry", due_s, 600, "", 600)
        assert bench.run(enqueue_tick(of, EnqueueBatch(QUEUE, state, [task], NOW_NS))) is EnqueueOutcome.ENQUEUED

    tick(NOW_S + 10, TaskState.SCHEDULED)
    assert ear.heard() == [NOW_S + 70]
    tick(NOW_S + 20, TaskState.SCHEDULED)
    tick(NOW_S, TaskState.PENDING)
    assert ear.heard() == []


def test_an_aggregated_task_that_is_delayed_is_told(bench: QueueBench, ear: Ear) -> None:
    for number, (at, told) in enumerate([(NOW_S + 5, [NOW_S + 5]), (NOW_S + 6, [])]):
        one = AggregationSet(QUEUE, "g", str(number))
        bench.db.zadd(keys.aggregation_sets(QUEUE), {one.key: NOW_S + 60})
        bench.db.zadd(one.key, {"member": 1})
        task = NewTask(f"t{number}", message("t"), run_at_s=at)
        assert bench.run(commit_set(one, 1, task, TaskState.SCHEDULED, NOW_NS)) is CommitOutcome.DONE
        assert ear.heard() == told


def test_whoever_may_not_publish_schedules_and_retries_all_the_same(
    bench: QueueBench, ear: Ear, db: Any, shared_server: RedisServer
) -> None:
    db.acl_setuser("mute", enabled=True, passwords=["+p"], categories=["+@all"], keys=["*"], reset_channels=True)
    broker = open_broker(f"unix://mute:p@{shared_server.socket_path}")
    try:
        tasks = [NewTask("a", message("a"), run_at_s=NOW_S)]
        (scheduling,) = enqueue_operations([EnqueueBatch(QUEUE, TaskState.SCHEDULED, tasks, NOW_NS)], ())
        assert broker.run(scheduling) == [EnqueueOutcome.ENQUEUED]
        bench.activate("b")
        failed = [Retried("b", message("b"), NOW_S)]
        assert broker.run(retry(QUEUE, failed, NOW, ANY_OWNER)) == [FinishOutcome.OK]
    finally:
        broker.close()
        db.acl_deluser("mute")
    assert bench.places() == {"scheduled": ["a"], "retry": ["b"]}
    assert ear.heard() == []
