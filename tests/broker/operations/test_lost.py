"""What a server has leased is found in the order in which it took it, and goes back to the head of its queue."""

from collections.abc import Iterator

import pytest
from redis import Redis

from fastq.broker.operations.finish import FinishOutcome, Guard, PutBack, put_back
from fastq.broker.operations.lease import Owner, list_owned, read_leased
from fastq.wire import keys
from tests.broker.harness import NOW_NS, NOW_S, OURS, QUEUE, THEIRS, QueueBench, message, queue_bench

ATTEMPT = b"a" * 160
SOON = range(NOW_S, NOW_S + 40)


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


def test_the_leases_of_one_owner_are_listed_in_the_order_in_which_they_were_taken(bench: QueueBench) -> None:
    bench.activate("c", owner=THEIRS, until_s=NOW_S + 39)
    bench.activate("b", "ours", "a", owner=THEIRS)
    bench.activate("ours")
    bench.activate("too late", owner=THEIRS, until_s=NOW_S + 40)
    bench.activate("too early", owner=THEIRS, until_s=NOW_S - 1)
    assert bench.run(list_owned(QUEUE, THEIRS, SOON, 100)) == ["c", "b", "a"]
    assert bench.run(list_owned(QUEUE, Owner(0.75), SOON, 100)) == []


@pytest.mark.parametrize("nonce", [1, 3, 2**19 - 1, 2**20 - 1])
def test_each_mark_finds_its_leases(nonce: int, bench: QueueBench) -> None:
    bench.activate("a", owner=Owner(nonce / 2**20))
    bench.activate("b", owner=Owner((nonce + 1) % 2**20 / 2**20))
    assert bench.run(list_owned(QUEUE, Owner(nonce / 2**20), SOON, 100)) == ["a"]


def test_no_more_are_listed_than_asked_for(bench: QueueBench) -> None:
    bench.activate(*(f"t{number:02}" for number in range(30)), owner=THEIRS)
    assert bench.run(list_owned(QUEUE, THEIRS, SOON, 7)) == [f"t{number:02}" for number in range(7)]


def test_lost_tasks_go_to_the_head_of_their_queue_in_the_given_order(bench: QueueBench) -> None:
    bench.pend("waits")
    bench.activate("first", "second", owner=THEIRS)
    bench.db.hset(keys.task(QUEUE, "second"), mapping={"lost": 1, "result": b"r", "progress": b"p"})
    tasks = [PutBack("first", message("first", retried=1), ATTEMPT), PutBack("second", message("second"))]
    assert bench.run(put_back(QUEUE, tasks, NOW_NS, Guard(THEIRS, NOW_S + 40))) == [FinishOutcome.OK] * 2
    assert bench.places() == {"pending": ["waits", "second", "first"]}, "the next to be taken is the last"
    told = {"state": b"pending", "pending_since": b"%d" % NOW_NS}
    assert bench.task("first") == {"msg": message("first", retried=1), **told, "attempts": ATTEMPT, "lost": b"1"}
    assert bench.task("second") == {"msg": message("second"), **told, "lost": b"2"}
    assert bench.counters() == {}


@pytest.mark.parametrize(("until_s", "owner"), [(NOW_S + 40, THEIRS), (NOW_S + 30, OURS)])
def test_a_later_lease_and_that_of_another_are_left_alone(until_s: int, owner: Owner, bench: QueueBench) -> None:
    bench.activate("a", owner=owner, until_s=until_s)
    guard = Guard(THEIRS, NOW_S + 40)
    assert bench.run(put_back(QUEUE, [PutBack("a", b"new")], NOW_NS, guard)) == [FinishOutcome.NOT_OURS]
    assert bench.places() == {"active": ["a"], "lease": ["a"]}
    assert bench.task("a") == {"msg": message("a"), "state": b"active"}


def test_what_is_not_active_and_what_is_no_task_stops_no_other(bench: QueueBench) -> None:
    bench.activate("a", "b", "c", owner=THEIRS)
    bench.db.lrem(keys.active(QUEUE), 0, "a")
    bench.db.delete(keys.task(QUEUE, "b"))
    bench.db.set(keys.task(QUEUE, "b"), "no hash")
    tasks = [PutBack(task_id, message(task_id)) for task_id in "abc"]
    outcomes = bench.run(put_back(QUEUE, tasks, NOW_NS, Guard(THEIRS, NOW_S + 40)))
    assert outcomes == [FinishOutcome.NOT_ACTIVE, FinishOutcome.NOT_ACTIVE, FinishOutcome.OK]
    assert bench.places()["pending"] == ["c"]


def test_a_leased_task_is_read_with_its_losses(bench: QueueBench) -> None:
    bench.activate("a")
    assert bench.run(read_leased(QUEUE, "a")) == (message("a"), 0)
    bench.db.hset(keys.task(QUEUE, "a"), "lost", 2)
    assert bench.run(read_leased(QUEUE, "a")) == (message("a"), 2)
    assert bench.run(read_leased(QUEUE, "b")) == (None, 0)
