"""The script that enqueues a named entry's task once a tick, and what it leaves behind."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.dequeue import Taken, take
from fastq.broker.operations.enqueue import EnqueueBatch, EnqueueOutcome, NewTask
from fastq.broker.operations.ticks import LastTick, NamedTick, enqueue_tick, enqueue_ticks, read_last_tick
from fastq.common.states import TaskState
from fastq.errors import BrokerConnectionError, BrokerError
from fastq.wire import keys
from tests.broker.harness import NOW_NS, NOW_S, QueueBench, message, queue_bench

ALL_KEYS = "asynq:*"
TICK = keys.tick("default", "nightly", NOW_S)
LAST = keys.last_tick("default", "nightly")
LOCK = keys.unique("default", "t", b"")


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as bench:
        yield bench


def tick(entry_id: str = "one", *, due_s: int = NOW_S, plan: str = "UTC @daily") -> NamedTick:
    return NamedTick("nightly", entry_id, due_s, ttl_s=3600, plan=plan, last_ttl_s=7200)


def batch(
    task_id: str = "a", state: TaskState = TaskState.PENDING, *, in_lane: bool = False, **how: Any
) -> EnqueueBatch:
    return EnqueueBatch("default", state, [NewTask(task_id, message(task_id), **how)], NOW_NS, in_lane)


def test_the_first_to_ask_enqueues_the_task_of_a_tick(bench: QueueBench) -> None:
    assert bench.run(enqueue_tick(tick("one"), batch("a"))) is EnqueueOutcome.ENQUEUED
    assert bench.run(enqueue_tick(tick("two"), batch("b"))) is EnqueueOutcome.TAKEN
    assert bench.places() == {"pending": ["a"]}
    assert bench.task("a") == {"msg": message("a"), "state": b"pending", "pending_since": str(NOW_NS).encode()}
    assert bench.db.get(TICK) == b"one"
    assert 3000 <= bench.db.ttl(TICK) <= 3600
    assert bench.run(enqueue_tick(tick("two", due_s=NOW_S + 60), batch("b"))) is EnqueueOutcome.ENQUEUED
    assert bench.places() == {"pending": ["b", "a"]}


def test_who_asks_again_hears_what_he_did_even_when_the_task_has_run(bench: QueueBench) -> None:
    for _ in range(2):
        assert bench.run(enqueue_tick(tick(), batch("a", lock=LOCK, lock_ttl_s=60))) is EnqueueOutcome.ENQUEUED
    assert bench.places() == {"pending": ["a"]}
    bench.db.delete(keys.task("default", "a"), keys.pending("default"), LOCK)
    assert bench.run(enqueue_tick(tick(), batch("a", lock=LOCK, lock_ttl_s=60))) is EnqueueOutcome.ENQUEUED
    assert bench.places() == {}


def test_a_task_in_a_lane_makes_the_queue_one_with_lanes_and_gets_a_turn(bench: QueueBench) -> None:
    asked = enqueue_tick(tick(), batch("a", TaskState.AGGREGATING, group="x", in_lane=True))
    assert bench.run(asked) is EnqueueOutcome.ENQUEUED
    assert bench.db.hgetall(keys.limits("default")) == {b"*": b"0:0:1:1"}
    assert bench.db.zrange(keys.turns("default"), 0, -1) == [b"x"]
    assert bench.db.llen(keys.bell("default")) == 1
    taken = bench.run(take("default", 10, "1000.5"))
    assert isinstance(taken, Taken)
    assert taken.leased.ids == [b"a"]
    assert bench.run(asked) is EnqueueOutcome.ENQUEUED, "an earlier sending has put it"
    assert bench.scores("g:x") == {}


def test_a_task_has_its_priority_in_its_lane_also_when_it_is_scheduled(bench: QueueBench) -> None:
    for at, (task_id, priority) in enumerate([("a", 0), ("b", 5), ("c", "-1:1772452860")]):
        lane = batch(task_id, TaskState.AGGREGATING, group="x", priority=priority, in_lane=True)
        assert bench.run(enqueue_tick(tick(due_s=NOW_S + at), lane)) is EnqueueOutcome.ENQUEUED
    assert bench.scores("g:x") == {"b": NOW_S - 50_000_000, "a": NOW_S, "c": NOW_S + 10_000_000}
    later = batch("d", TaskState.SCHEDULED, group="y", run_at_s=NOW_S + 9, priority=7, in_lane=True)
    assert bench.run(enqueue_tick(tick(due_s=NOW_S + 3), later)) is EnqueueOutcome.ENQUEUED
    assert bench.task("d")["priority"] == b"7"
    assert bench.db.zrange(keys.turns("default"), 0, -1) == [b"x"]


def test_a_tick_that_another_scheduler_has_enqueued_makes_no_lane(bench: QueueBench) -> None:
    bench.run(enqueue_tick(tick("one"), batch("a")))
    lane = batch("b", TaskState.AGGREGATING, group="x", in_lane=True)
    assert bench.run(enqueue_tick(tick("two"), lane)) is EnqueueOutcome.TAKEN
    assert bench.db.hgetall(keys.limits("default")) == {}


def test_a_task_may_start_scheduled_or_in_a_group(bench: QueueBench) -> None:
    later = batch("a", TaskState.SCHEDULED, run_at_s=NOW_S + 90)
    assert bench.run(enqueue_tick(tick(), later)) is EnqueueOutcome.ENQUEUED
    assert bench.scores("scheduled") == {"a": NOW_S + 90}
    assert bench.task("a") == {"msg": message("a"), "state": b"scheduled"}
    grouped = batch("b", TaskState.AGGREGATING, group="g", lock=LOCK, lock_ttl_s=60)
    assert bench.run(enqueue_tick(tick(due_s=NOW_S + 1), grouped)) is EnqueueOutcome.ENQUEUED
    assert bench.scores("g:g") == {"b": NOW_S}
    assert bench.db.smembers(keys.groups("default")) == {b"g"}
    assert bench.task("b") == {
        "msg": message("b"),
        "state": b"aggregating",
        "group": b"g",
        "unique_key": LOCK.encode(),
    }
    assert bench.db.get(LOCK) == b"b"


@pytest.mark.parametrize(
    ("state", "key"),
    [
        (TaskState.PENDING, keys.pending("default")),
        (TaskState.SCHEDULED, keys.scheduled("default")),
        (TaskState.SCHEDULED, keys.groups("default")),
        (TaskState.AGGREGATING, keys.group("default", "g")),
    ],
)
def test_a_key_of_another_type_leaves_the_tick_undone(state: TaskState, key: str, bench: QueueBench) -> None:
    bench.db.set(key, "odd")
    before = sorted(bench.db.keys())
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        bench.run(enqueue_tick(tick(), batch("a", state, group="g", lock=LOCK, lock_ttl_s=60, run_at_s=NOW_S + 90)))
    assert sorted(bench.db.keys()) == before


def test_a_refused_tick_is_open_for_another_scheduler(bench: QueueBench) -> None:
    bench.pend("a")
    bench.db.set(LOCK, "other")
    assert bench.run(enqueue_tick(tick(), batch("a", lock=LOCK, lock_ttl_s=60))) is EnqueueOutcome.ID_CONFLICT
    assert bench.run(enqueue_tick(tick(), batch("b", lock=LOCK, lock_ttl_s=60))) is EnqueueOutcome.DUPLICATE
    assert not bench.db.exists(TICK)
    assert bench.places() == {"pending": ["a"]}
    bench.db.delete(LOCK)
    assert bench.run(enqueue_tick(tick("two"), batch("b", lock=LOCK, lock_ttl_s=60))) is EnqueueOutcome.ENQUEUED


def test_the_last_tick_is_known_and_never_goes_back(bench: QueueBench) -> None:
    assert bench.run(read_last_tick("default", "nightly")) is None
    bench.run(enqueue_tick(tick(due_s=NOW_S), batch("a")))
    assert bench.run(read_last_tick("default", "nightly")) == LastTick(NOW_S, "UTC @daily")
    assert 6600 <= bench.db.ttl(LAST) <= 7200
    bench.run(enqueue_tick(tick(due_s=NOW_S - 60, plan="UTC @hourly"), batch("b")))
    assert bench.run(read_last_tick("default", "nightly")) == LastTick(NOW_S, "UTC @daily")
    bench.run(enqueue_tick(tick(due_s=NOW_S + 60, plan="UTC TZ=UTC 0 * * * *"), batch("c")))
    assert bench.run(read_last_tick("default", "nightly")) == LastTick(NOW_S + 60, "UTC TZ=UTC 0 * * * *")


def test_no_last_tick_is_kept_where_none_is_asked_for(bench: QueueBench) -> None:
    bench.run(enqueue_tick(tick(plan=""), batch("a")))
    assert not bench.db.exists(LAST)


@pytest.mark.parametrize("value", [b"", b"x", b"12", b"-3:@daily", b"\xff:@daily"])
def test_a_last_tick_that_makes_no_sense_is_none(bench: QueueBench, value: bytes) -> None:
    bench.db.set(LAST, value)
    assert bench.run(read_last_tick("default", "nightly")) is None


def test_a_full_redis_is_left_as_it_was(db: Redis, bench: QueueBench) -> None:
    db.config_set("maxmemory", "1")
    try:
        with pytest.raises(BrokerError, match="maxmemory"):
            bench.run(enqueue_tick(tick(), batch("a", lock=LOCK, lock_ttl_s=60)))
    finally:
        db.config_set("maxmemory", "0")
    left: Any = db.keys(ALL_KEYS)
    assert left == []


def test_ticks_of_both_kinds_go_in_one_round_trip_and_fail_apart() -> None:
    flow = enqueue_ticks([(tick(), batch("a"))], [batch("b"), batch("c")], ["default"])
    step = next(flow)
    assert isinstance(step, tuple)
    assert [operation.name for operation in step] == ["SADD", "enqueue", "enqueue", "enqueue_tick"]
    # A registration without a reply is repeated when the tasks are settled.
    assert [operation.idempotent for operation in step] == [False, False, False, True]
    away = BrokerConnectionError("away")
    with pytest.raises(StopIteration) as end:
        flow.send([1, [EnqueueOutcome.ENQUEUED], away, EnqueueOutcome.TAKEN])
    assert end.value.value == (["default"], [EnqueueOutcome.TAKEN], [EnqueueOutcome.ENQUEUED, away])
