from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.schedulers import (
    TickOutcome,
    clear_scheduler,
    count_ticks,
    publish_scheduler,
    record_event,
)
from fastq.wire import keys
from tests.broker.harness import NOW_S, QueueBench, queue_bench

KEY = keys.scheduler_entries("h:1:x")


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as bench:
        yield bench


def test_entries_replace_those_of_the_beat_before(bench: QueueBench) -> None:
    for entries in ([b"1", b"2", b"3"], [b"4", b"5"]):
        for operation in publish_scheduler("h:1:x", entries, NOW_S, 2000):
            bench.run(operation)
    assert bench.db.lrange(KEY, 0, -1) == [b"5", b"4"]
    assert 1400 <= bench.db.ttl(KEY) <= 2000
    assert bench.db.zrange(keys.all_schedulers(), 0, -1, withscores=True) == [(KEY.encode(), NOW_S + 2000.0)]


def test_a_scheduler_without_entries_is_listed_all_the_same(bench: QueueBench) -> None:
    for entries in ([b"1"], []):
        for operation in publish_scheduler("h:1:x", entries, NOW_S, 2000):
            bench.run(operation)
    assert not bench.db.exists(KEY)
    assert bench.db.zcard(keys.all_schedulers()) == 1


def test_ticks_of_types_beyond_a_number_are_counted_together(bench: QueueBench) -> None:
    for first in (0, 500):
        bench.run(count_ticks({(TickOutcome.ENQUEUED, f"tenant:{n}"): 1 for n in range(first, first + 500)}))
    bench.run(count_ticks({(TickOutcome.MISSED, "tenant:7"): 2, (TickOutcome.ENQUEUED, "tenant:7"): 2}))
    found = bench.db.hgetall(keys.scheduler_ticks())
    assert len(found) == 802
    assert (found[b"enqueued:tenant:7"], found[b"enqueued:other"], found[b"missed:other"]) == (b"3", b"200", b"2")
    assert bench.db.ttl(keys.scheduler_ticks()) > 0


def test_clearing_leaves_other_schedulers_and_entries_alone(bench: QueueBench) -> None:
    for scheduler_id in ("h:1:x", "h:2:y"):
        for operation in publish_scheduler(scheduler_id, [b"1"], NOW_S, 20):
            bench.run(operation)
    for entry_id in "abc":
        for operation in record_event(entry_id, b"e", NOW_S):
            bench.run(operation)
    for operation in clear_scheduler("h:1:x", "ab"):
        bench.run(operation)
    left: Any = bench.db.keys("*")
    assert sorted(left) == [b"asynq:scheduler_history:c", b"asynq:schedulers", b"asynq:schedulers:{h:2:y}"]
    assert bench.db.zrange(keys.all_schedulers(), 0, -1) == [keys.scheduler_entries("h:2:y").encode()]


def test_a_history_keeps_the_newest_thousand_events(bench: QueueBench) -> None:
    for number in range(1002):
        for operation in record_event("a", b"%d" % number, NOW_S + number):
            bench.run(operation)
    found = bench.db.zrange(keys.scheduler_history("a"), 0, -1)
    assert (len(found), found[0], found[-1]) == (1000, b"2", b"1001")


def test_many_entries_keep_their_order(bench: QueueBench) -> None:
    entries = [b"%d" % number for number in range(4501)]
    for _ in range(2):
        for operation in publish_scheduler("h:1:x", entries, NOW_S, 2000):
            bench.run(operation)
    assert bench.db.lrange(KEY, 0, -1) == entries[::-1]
