"""Maintain: due tasks go to pending or their group, expired completed ones are deleted, in bounded batches."""

from collections.abc import Iterator

import pytest
from redis import Redis

from fastq.broker.operations.archive_rule import ArchiveRule, set_archive_rule
from fastq.broker.operations.maintain import Forwarded, delete_expired_completed, forward
from fastq.errors import BrokerError
from fastq.wire import keys
from tests.broker.harness import NOW_NS, NOW_S, QUEUE, QueueBench, message, queue_bench

WAITING = {"scheduled": keys.scheduled(QUEUE), "retry": keys.retry(QUEUE)}


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


def wait_in(bench: QueueBench, name: str, scores: dict[str, float]) -> None:
    for task_id, score in scores.items():
        bench.put(task_id, name)
        bench.db.zadd(WAITING[name], {task_id: score})


@pytest.mark.parametrize("name", WAITING)
def test_due_tasks_go_to_pending_in_the_order_of_their_time(name: str, bench: QueueBench) -> None:
    wait_in(bench, name, {"c": NOW_S, "a": NOW_S - 9, "b": NOW_S - 5, "later": NOW_S + 1})
    bench.pend("before")
    assert bench.run(forward(QUEUE, NOW_NS + 999_999_999, 100)) == Forwarded(3, 0, NOW_S + 1)
    assert bench.places() == {"pending": ["c", "b", "a", "before"], name: ["later"]}
    moved = {"msg": message("a"), "state": b"pending", "pending_since": str(NOW_NS + 999_999_999).encode()}
    assert bench.task("a") == moved
    assert bench.task("later") == {"msg": message("later"), "state": name.encode()}


@pytest.mark.parametrize("name", WAITING)
def test_a_batch_takes_the_first_and_says_when_the_next_is_due(name: str, bench: QueueBench) -> None:
    wait_in(bench, name, {"a": 1, "b": 2, "c": 3})
    assert bench.run(forward(QUEUE, NOW_NS, 2)) == Forwarded(2, 0, 3.0)
    assert bench.run(forward(QUEUE, NOW_NS, 2)) == Forwarded(1, 0, None)
    assert bench.run(forward(QUEUE, NOW_NS, 2)) == Forwarded(0, 0, None)
    assert bench.places() == {"pending": ["c", "b", "a"]}


@pytest.mark.parametrize("name", WAITING)
def test_a_grouped_task_joins_its_group_and_the_group_is_listed(name: str, bench: QueueBench) -> None:
    wait_in(bench, name, {"a": 1, "b": 2, "c": 3})
    bench.db.hset(keys.task(QUEUE, "a"), "group", "g1")
    bench.db.hset(keys.task(QUEUE, "b"), "group", "")
    assert bench.run(forward(QUEUE, NOW_NS, 100)) == Forwarded(3, 0, None)
    assert bench.places() == {"pending": ["c", "b"]}
    assert bench.db.zrange(keys.group(QUEUE, "g1"), 0, -1, withscores=True) == [(b"a", NOW_S)]
    assert bench.db.smembers(keys.groups(QUEUE)) == {b"g1"}
    assert bench.task("a") == {"msg": message("a"), "state": b"aggregating", "group": b"g1"}


@pytest.mark.parametrize("name", WAITING)
def test_due_ids_without_a_task_are_dropped_and_counted(name: str, bench: QueueBench) -> None:
    wait_in(bench, name, {"gone": 1, "a": 2, "no-message": 3, "odd": 4, "gone-later": NOW_S + 9})
    bench.db.delete(*(keys.task(QUEUE, task_id) for task_id in ("gone", "odd", "gone-later")))
    bench.db.hdel(keys.task(QUEUE, "no-message"), "msg")
    bench.db.set(keys.task(QUEUE, "odd"), "not a hash")
    assert bench.run(forward(QUEUE, NOW_NS, 100)) == Forwarded(4, 3, NOW_S + 9)
    assert bench.places() == {"pending": ["a"], name: ["gone-later"]}
    assert bench.task("gone") == {}, "no hash comes to be"


def test_a_paused_queue_is_forwarded_too(bench: QueueBench) -> None:
    bench.db.set(keys.paused(QUEUE), NOW_S)
    wait_in(bench, "scheduled", {"a": 1})
    assert bench.run(forward(QUEUE, NOW_NS, 100)).taken == 1
    assert bench.places() == {"pending": ["a"]}


def complete(bench: QueueBench, scores: dict[str, float]) -> None:
    for task_id, score in scores.items():
        bench.put(task_id, "completed")
        bench.db.zadd(keys.completed(QUEUE), {task_id: score})


def test_completed_tasks_are_deleted_when_their_retention_ends(bench: QueueBench) -> None:
    complete(bench, {"a": NOW_S - 100, "b": NOW_S, "kept": NOW_S + 1})
    assert bench.run(delete_expired_completed(QUEUE, NOW_S, 10)).deleted == 2
    assert bench.places() == {"completed": ["kept"]}
    assert bench.states() == {"kept": "completed"}
    assert bench.run(delete_expired_completed(QUEUE, NOW_S, 10)).deleted == 0


def test_no_more_completed_tasks_are_deleted_than_asked_for(bench: QueueBench) -> None:
    complete(bench, {f"{number:04d}": number for number in range(1001)})
    assert bench.run(delete_expired_completed(QUEUE, NOW_S, 1000)).deleted == 1000
    assert bench.places() == {"completed": ["1000"]}
    assert bench.states() == {"1000": "completed"}


@pytest.mark.parametrize("key", [keys.archived(QUEUE), keys.archive_rule(QUEUE)])
def test_a_key_of_another_type_keeps_completed_tasks(key: str, bench: QueueBench) -> None:
    complete(bench, {"a": NOW_S - 100})
    bench.db.set(key, "odd")
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        bench.run(delete_expired_completed(QUEUE, NOW_S, 10))
    assert bench.states() == {"a": "completed"}
    assert bench.db.zscore(keys.completed(QUEUE), "a") == NOW_S - 100


def test_a_completed_id_without_a_task_goes_too(bench: QueueBench) -> None:
    bench.db.zadd(keys.completed(QUEUE), {"dangling": 1})
    assert bench.run(delete_expired_completed(QUEUE, NOW_S, 10)).deleted == 1
    assert bench.places() == {}


def test_the_rule_of_an_archive_that_no_janitor_looks_at_expires(bench: QueueBench) -> None:
    """Go's tools delete a queue without it; one made again under that name is not to follow it for ever."""
    bench.run(delete_expired_completed(QUEUE, NOW_S, 10))
    assert not bench.db.exists(keys.archive_rule(QUEUE))
    bench.run(set_archive_rule(QUEUE, ArchiveRule(5)))
    assert bench.db.persist(keys.archive_rule(QUEUE))
    for _ in range(2):
        bench.run(delete_expired_completed(QUEUE, NOW_S, 10))
        assert bench.db.persist(keys.archive_rule(QUEUE))
