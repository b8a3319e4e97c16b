"""Looks into a queue, against what is really there."""

import pytest
from redis import Redis

from fastq import Client, Task
from fastq.broker.inspect.counts import QueueCounts, StoredTask, count_existing, count_tasks, list_members, read_stored
from fastq.broker.transport.open import open_broker
from fastq.wire import keys

STATES = {
    "scheduled": keys.scheduled,
    "retry": keys.retry,
    "lease": keys.lease,
    "completed": keys.completed,
    "archived": keys.archived,
}


def counts(url: str, queue: str) -> QueueCounts:
    return QueueCounts(*open_broker(url).run_many(count_tasks(queue)))


def test_a_queue_that_is_not_there_has_nothing(url: str) -> None:
    assert counts(url, "none") == QueueCounts(0, 0, 0, 0, 0, 0, 0, 0, 0)


def test_each_state_and_total_is_counted_under_its_own_name(url: str, db: Redis) -> None:
    # A number of its own for each, so that none can stand for another.
    numbers = {name: number for number, name in enumerate(QueueCounts._fields, 1)}
    for name, number in numbers.items():
        members = [f"{name}-{at}" for at in range(number)]
        if name in ("pending", "active"):
            db.rpush(f"asynq:{{q}}:{name}", *members)
        elif name in ("processed", "failed"):
            db.set(f"asynq:{{q}}:{name}", number)
        else:
            db.zadd(STATES["lease" if name == "leased" else name]("q"), dict.fromkeys(members, 1.0))
    assert counts(url, "q")._asdict() == numbers


def test_unfinished_are_those_that_a_worker_is_still_to_work_on() -> None:
    assert QueueCounts(1, 2, 4, 8, 8, 100, 100, 100, 100).unfinished == 15
    assert QueueCounts(0, 0, 0, 0, 3, 0, 0, 0, 0).unfinished == 3


@pytest.mark.parametrize("state", ["pending", "active", *STATES])
def test_members_are_read_in_pieces_and_in_order(url: str, db: Redis, state: str) -> None:
    ids = [b"a", b"b", b"c\xff", b"d"]
    if state in STATES:
        db.zadd(STATES[state]("q"), {member: at for at, member in enumerate(ids)})
    else:
        db.rpush(f"asynq:{{q}}:{state}", *ids)
    broker = open_broker(url)
    found = [broker.run(list_members("q", state, start, 3)) for start in (0, 3, 6)]
    assert found == [["a", "b", "c\udcff"], ["d"], []]


def test_a_task_is_read_as_it_is_stored(url: str, db: Redis) -> None:
    with Client(url) as client:
        task_id = client.enqueue("t", b"x", queue="q", process_in=60).id
    broker = open_broker(url)
    message = db.hget(keys.task("q", task_id), "msg")
    assert isinstance(message, bytes)
    assert broker.run(read_stored("q", task_id)) == StoredTask(message, "scheduled", None)
    db.hset(keys.task("q", task_id), "result", b"\x00")
    assert broker.run(read_stored("q", task_id)).result == b"\x00"
    assert broker.run(read_stored("q", "none")) == StoredTask(None, None, None)


def test_existing_keys_are_counted(url: str) -> None:
    with Client(url) as client:
        ids = list(client.enqueue_many([Task("t"), Task("t")], queue="q").ids())
    names = [keys.task("q", task_id) for task_id in (*ids, "none")]
    assert open_broker(url).run(count_existing(names)) == 2
