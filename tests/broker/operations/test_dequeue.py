"""Dequeue: pending to active in batches, in order, within bounds, and without leaving dangling ids."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from redis import Redis
from redis.exceptions import OutOfMemoryError

from fastq.broker.operations.dequeue import MAX_BATCH_BYTES, MAX_BATCH_TASKS, NoTasks, dequeue
from fastq.broker.operations.lease import Leased
from fastq.broker.scripts import SCRIPTS
from fastq.broker.transport.open import open_broker
from fastq.errors import BrokerError
from fastq.wire import keys
from tests.broker.harness import NOW_S, OURS, QUEUE, THEIRS, QueueBench, message, queue_bench
from tests.redis_servers import redis_server

SCORE = OURS.score(NOW_S)


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


def take(bench: QueueBench, count: int) -> Leased:
    """Dequeue what must be there."""
    result = bench.run(dequeue(QUEUE, count, SCORE))
    assert isinstance(result, Leased)
    return result


def ids_of(leased: Leased) -> list[str]:
    return [task.id for task in leased.tasks]


def test_a_batch_takes_the_oldest_tasks_in_order(bench: QueueBench) -> None:
    bench.pend("a", "b", "c", "d")
    leased = take(bench, 3)
    assert leased.tasks == [(task_id, message(task_id)) for task_id in "abc"]
    assert leased.dangling == 0
    # As three dequeues of asynq's leave it: the one that was taken last is at active's head.
    assert bench.places() == {"pending": ["d"], "active": ["c", "b", "a"], "lease": ["a", "b", "c"]}
    assert bench.states() == {"a": "active", "b": "active", "c": "active", "d": "pending"}


def test_a_task_taken_is_leased_to_its_owner_and_no_longer_pending_since(bench: QueueBench) -> None:
    bench.pend("a")
    take(bench, 1)
    assert bench.task("a") == {"msg": message("a"), "state": b"active"}
    assert bench.scores("lease") == {"a": NOW_S + 30 + OURS.fraction}


def test_it_tells_since_when_the_first_and_the_last_task_were_pending(bench: QueueBench) -> None:
    bench.pend("a", "b", "c", "d", "e")
    for task_id, since in (("a", "7"), ("b", "8"), ("c", "9"), ("d", "soon")):
        bench.db.hset(keys.task(QUEUE, task_id), "pending_since", since)
    bench.db.hdel(keys.task(QUEUE, "e"), "pending_since")
    found = [take(bench, count).pending_since_ns for count in (2, 1, 1, 1)]
    assert found == [(7, 8), (9, 9), (0, 0), (0, 0)]


def test_a_batch_leaves_what_was_active_before_behind_it(bench: QueueBench) -> None:
    bench.pend("a", "b", "c")
    take(bench, 1)
    take(bench, 2)
    assert bench.places()["active"] == ["c", "b", "a"]


def test_an_empty_queue_and_a_paused_one_are_told_apart(bench: QueueBench) -> None:
    assert bench.run(dequeue(QUEUE, 1, SCORE)) is NoTasks.EMPTY
    bench.pend("a")
    bench.db.set(keys.paused(QUEUE), NOW_S)
    before = bench.places()
    assert bench.run(dequeue(QUEUE, 1, SCORE)) is NoTasks.PAUSED
    assert bench.places() == before
    assert bench.task("a")["state"] == b"pending"


def test_no_call_takes_more_than_500_tasks(bench: QueueBench) -> None:
    ids = [f"{number:04d}" for number in range(MAX_BATCH_TASKS + 1)]
    bench.pend(*ids)
    assert ids_of(take(bench, 10_000)) == ids[:-1]
    assert ids_of(take(bench, 10_000)) == ids[-1:]
    assert bench.places()["active"] == ids[::-1]


def test_a_call_takes_at_most_256_kb_and_the_message_that_goes_beyond(bench: QueueBench) -> None:
    ids = [f"{number:03d}" for number in range(300)]
    bench.pend(*ids, payload=bytes(10_000))
    size = len(message("000", payload=bytes(10_000)))
    taken = ids_of(take(bench, 300))
    assert (len(taken) - 1) * size < MAX_BATCH_BYTES <= len(taken) * size
    assert taken == ids[: len(taken)]
    # The rest stays where it was, to be taken in the same order.
    assert bench.places()["pending"] == ids[len(taken) :][::-1]
    assert set(bench.task(ids[-1])) == {"msg", "state", "pending_since"}
    assert bench.places()["active"] == taken[::-1]
    again: list[str] = []
    while len(again) + len(taken) < len(ids):
        again += ids_of(take(bench, 300))
    assert taken + again == ids


def test_a_message_larger_than_the_bound_is_taken_alone(bench: QueueBench) -> None:
    bench.pend("big", payload=bytes(2 * MAX_BATCH_BYTES))
    bench.pend("small")
    assert ids_of(take(bench, 2)) == ["big"]
    assert ids_of(take(bench, 2)) == ["small"]


def test_ids_without_a_task_are_dropped_and_counted(bench: QueueBench) -> None:
    bench.pend("a", "dangling-1", "b", "dangling-2", "c")
    bench.db.delete(keys.task(QUEUE, "dangling-1"), keys.task(QUEUE, "dangling-2"))
    leased = take(bench, 4)
    assert (ids_of(leased), leased.dangling) == (["a", "b"], 2)
    assert bench.places() == {"pending": ["c"], "active": ["b", "a"], "lease": ["a", "b"]}
    assert bench.states() == {"a": "active", "b": "active", "c": "pending"}


def test_a_batch_of_dangling_ids_alone_is_not_an_empty_queue(bench: QueueBench) -> None:
    bench.pend("dangling", "a")
    bench.db.delete(keys.task(QUEUE, "dangling"))
    assert take(bench, 1) == Leased([], [], 1)
    assert bench.places() == {"pending": ["a"]}


def test_a_hash_without_a_message_is_dangling(bench: QueueBench) -> None:
    # What asynq's own dequeue makes of an id whose task is gone.
    bench.pend("dangling")
    bench.db.delete(keys.task(QUEUE, "dangling"))
    bench.db.hset(keys.task(QUEUE, "dangling"), "state", "active")
    assert take(bench, 1) == Leased([], [], 1)
    assert bench.places() == {}


def test_a_key_of_another_type_does_not_take_the_rest_of_the_batch_along(bench: QueueBench) -> None:
    bench.pend("a", "odd", "b")
    bench.db.delete(keys.task(QUEUE, "odd"))
    bench.db.set(keys.task(QUEUE, "odd"), "not a hash")
    leased = take(bench, 3)
    assert (ids_of(leased), leased.dangling) == (["a", "b"], 1)
    assert bench.places() == {"active": ["b", "a"], "lease": ["a", "b"]}


def test_the_fields_of_other_writers_are_left_alone(bench: QueueBench) -> None:
    bench.pend("a")
    bench.db.hset(keys.task(QUEUE, "a"), mapping={"unique_key": "lock", "group": "g", "result": "r", "theirs": "x"})
    take(bench, 1)
    kept = {"unique_key": b"lock", "group": b"g", "result": b"r", "theirs": b"x"}
    assert bench.task("a") == {"msg": message("a"), "state": b"active", **kept}


def test_an_id_that_is_not_utf_8_comes_back_as_the_same_bytes(bench: QueueBench) -> None:
    raw = b"bad-\xff\xfe"
    bench.db.hset(keys.task_prefix(QUEUE).encode() + raw, mapping={"msg": b"?", "state": "pending"})
    bench.db.lpush(keys.pending(QUEUE), raw)
    (task,) = take(bench, 1).tasks
    assert task.id.encode("utf-8", "surrogateescape") == raw


def test_a_redis_that_is_out_of_memory_is_drained() -> None:
    with redis_server() as server, server.client() as db, queue_bench(db, server.url) as bench:
        bench.pend("a", "b", "c", payload=bytes(20_000))
        bench.db.script_load(SCRIPTS["dequeue"].text)
        db.config_set("maxmemory-policy", "noeviction")
        db.config_set("maxmemory", 1)
        with pytest.raises(OutOfMemoryError):
            bench.pend("d")
        assert ids_of(take(bench, 2)) == ["a", "b"]
        assert ids_of(take(bench, 2)) == ["c"]
        assert bench.places() == {"active": ["c", "b", "a"], "lease": ["a", "b", "c"]}


def test_a_queue_whose_key_is_no_list_is_an_error_that_changes_nothing(bench: QueueBench) -> None:
    bench.db.set(keys.pending(QUEUE), "not a list")
    with pytest.raises(BrokerError, match=r"dequeue: .*wrong kind of value"):
        bench.run(dequeue(QUEUE, 1, SCORE))
    assert bench.db.get(keys.pending(QUEUE)) == b"not a list"


def test_two_servers_share_the_tasks_between_them(bench: QueueBench, url: str) -> None:
    ids = [f"{number:03d}" for number in range(200)]
    bench.pend(*ids)
    taken: list[str] = []
    with closing(open_broker(url)) as other:
        for _ in range(10):
            taken += ids_of(take(bench, 10))
            result = other.run(dequeue(QUEUE, 10, THEIRS.score(NOW_S)))
            assert isinstance(result, Leased)
            taken += ids_of(result)
    assert taken == ids
    owned = [score % 1 for score in bench.scores("lease").values()]
    assert (owned.count(OURS.fraction), owned.count(THEIRS.fraction)) == (100, 100)


@pytest.mark.parametrize("place", ["active", "lease"])
def test_a_place_that_is_none_costs_no_task(place: str, bench: QueueBench) -> None:
    """The error of a key of another type, half-way, would leave the whole batch in no list at all."""
    bench.pend("a", "b")
    bench.db.set(bench.key(place), "not what it should be")
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        bench.run(dequeue(QUEUE, 10, OURS.score(NOW_S)))
    bench.db.delete(bench.key(place))
    assert bench.places() == {"pending": ["b", "a"]}


# How Redis keeps the leases

SMALL = (b"listpack", b"ziplist")
"""What Redis calls it, since 7.0 and before."""


def encoding(bench: QueueBench) -> object:
    return bench.db.object("ENCODING", bench.key("lease"))


def test_leases_of_a_batch_are_a_skip_list_from_the_start_and_hold_nothing_else(bench: QueueBench) -> None:
    """In the small form each would cost Redis a look at the score of every other one."""
    ids = [f"{number:02d}" for number in range(20)]
    bench.pend(*ids)
    take(bench, 20)
    assert encoding(bench) == b"skiplist"
    assert bench.scores("lease") == dict.fromkeys(ids, NOW_S + 30 + OURS.fraction)


def test_a_few_leases_are_left_to_redis(bench: QueueBench) -> None:
    bench.pend("a", "b", "c")
    take(bench, 3)
    assert encoding(bench) in SMALL


def test_leases_that_have_become_many_one_by_one_become_a_skip_list(bench: QueueBench) -> None:
    ids = [f"{number:02d}" for number in range(20)]
    bench.pend(*ids)
    for _ in ids:
        take(bench, 1)
    assert encoding(bench) == b"skiplist"
    assert list(bench.scores("lease")) == ids


def test_more_leases_than_a_small_form_has_are_left_to_redis(bench: QueueBench) -> None:
    ids = [f"{number:03d}" for number in range(149)]
    bench.pend(*ids)
    take(bench, 129)
    bench.db.config_resetstat()
    take(bench, 20)
    assert "cmdstat_zrem" not in bench.db.info("commandstats")


def test_a_redis_that_keeps_long_members_in_the_small_form_is_left_to_it(bench: QueueBench) -> None:
    name = "zset-max-ziplist-value"
    before = bench.db.config_get(name)
    bench.db.config_set(name, 1000)
    try:
        bench.pend(*"abcdefghijklmnopqrstuvwxyz")
        take(bench, 26)
        assert encoding(bench) in SMALL
        assert list(bench.scores("lease")) == list("abcdefghijklmnopqrstuvwxyz")
    finally:
        bench.db.config_set(name, before[name])
