"""The history in Redis: counts are added by minute, by type, and by hour, within bounds, and for what there is."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from fastq.broker.inspect.history import read_hours, read_minutes, read_minutes_by_type
from fastq.broker.operations.history import add_history
from fastq.common.clock import at_unix_ns
from fastq.errors import BrokerError
from fastq.wire import keys
from fastq.wire.history import COUNTERS, DAY_S, HOUR_S, MAX_TYPES
from tests.broker.harness import QUEUE, QueueBench, queue_bench

HOUR_STARTS_S = 4_000_000_000 // DAY_S * DAY_S + 23 * HOUR_S
NOW_S = HOUR_STARTS_S + 59 * 60 + 7
NOW = at_unix_ns(NOW_S * 10**9)
MINUTES = keys.history_minutes(QUEUE, NOW)
HOURS = keys.history_hours(QUEUE, NOW)


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        made.db.set(keys.processed_total(QUEUE), 1)
        yield made


def counts(**by_place: int) -> list[int]:
    """Return counts that are 0 but at some places, such as ``_0=3``."""
    made = [0] * COUNTERS
    for place, count in by_place.items():
        made[int(place[1:])] = count
    return made


def expires_s(db: Any, key: str) -> int:
    """Return when a key expires; Redis 6.2 has no EXPIRETIME."""
    (seconds, microseconds), left_ms = db.pipeline(transaction=True).time().pttl(key).execute()
    return int(seconds + (microseconds + left_ms * 1000 + 500_000) // 1_000_000)


def test_counts_are_added_to_the_minute_to_the_type_and_to_the_hour(bench: QueueBench) -> None:
    first, second = counts(_0=5, _42=2), counts(_0=95, _1=1, _7=3)
    assert bench.run(add_history(QUEUE, NOW_S, {"a": first, "b": second}))
    assert bench.run(add_history(QUEUE, NOW_S - 60, {"a": first}))
    assert bench.run(add_history(QUEUE, NOW_S, {"a": second}))
    whole = tuple(counts(_0=195, _1=2, _7=6, _42=2))
    assert bench.run(read_minutes_by_type(QUEUE, NOW)) == {
        "": {59: whole, 58: tuple(first)},
        "a": {50: tuple(counts(_0=105, _1=1, _7=3, _42=4))},
        "b": {50: tuple(second)},
    }
    assert bench.run(read_minutes(QUEUE, NOW)) == {59: whole, 58: tuple(first)}
    assert bench.run(read_hours(QUEUE, NOW)) == {23: tuple(counts(_0=200, _1=2, _7=6, _42=4))}
    assert expires_s(bench.db, MINUTES) == HOUR_STARTS_S + 9 * HOUR_S
    assert expires_s(bench.db, HOURS) == HOUR_STARTS_S + HOUR_S + 14 * DAY_S


def test_minutes_whose_numbers_begin_alike_are_kept_apart(bench: QueueBench) -> None:
    for minute in (5, 59, 15, 5):
        bench.run(add_history(QUEUE, HOUR_STARTS_S + 60 * minute, {"a": counts(_0=1)}))
    found = bench.run(read_minutes(QUEUE, NOW))
    assert {minute: record[0] for minute, record in found.items()} == {5: 2, 59: 1, 15: 1}


def test_large_counts_stay_exact(bench: QueueBench) -> None:
    for count in (2**52, 1):
        bench.run(add_history(QUEUE, NOW_S, {"a": counts(_0=count)}))
    assert bench.run(read_hours(QUEUE, NOW)) == {23: tuple(counts(_0=2**52 + 1))}


def test_types_beyond_the_bound_count_as_other(bench: QueueBench) -> None:
    for start in (0, MAX_TYPES - 1):
        types = {f"t{number}": counts(_0=1) for number in range(start, start + MAX_TYPES - 1)}
        bench.run(add_history(QUEUE, NOW_S, types))
    bench.run(add_history(QUEUE, NOW_S, {"t0": counts(_0=1), "new": counts(_0=1)}))
    found = bench.run(read_minutes_by_type(QUEUE, NOW))
    assert len(found) == 1 + MAX_TYPES + 1
    numbers = {name: records[50 if name else 59][0] for name, records in found.items()}
    assert (numbers["t0"], numbers[f"t{MAX_TYPES - 1}"], numbers["other"]) == (2, 1, MAX_TYPES - 1)
    assert numbers[""] == 2 * (MAX_TYPES - 1) + 2


@pytest.mark.parametrize("sign", [keys.processed_total(QUEUE), keys.lost(QUEUE, NOW), keys.active(QUEUE)])
def test_a_queue_that_was_deleted_gets_no_history(sign: str, bench: QueueBench) -> None:
    bench.db.flushdb()
    assert not bench.run(add_history(QUEUE, NOW_S, {"a": counts(_0=1)}))
    assert bench.db.keys() == []
    bench.db.set(sign, 1)
    assert bench.run(add_history(QUEUE, NOW_S, {"a": counts(_0=1)}))


@pytest.mark.parametrize("key", [MINUTES, HOURS])
def test_a_key_of_another_type_fails_before_anything_is_written(key: str, bench: QueueBench) -> None:
    bench.db.set(key, "not a hash")
    before: Any = sorted(bench.db.keys())
    with pytest.raises(BrokerError, match="add_history"):
        bench.run(add_history(QUEUE, NOW_S, {"a": counts(_0=1)}))
    assert sorted(bench.db.keys()) == before


def test_fourteen_days_of_twenty_queues_with_fifty_types_take_five_megabytes(bench: QueueBench) -> None:
    """Measured with one queue whose types all run each minute, in eight buckets."""
    spread = {place: 10 + place for place in (0, 1, 2, *range(9, 14), *range(28, 31))}
    runs = counts(**{f"_{place}": count for place, count in spread.items()})
    by_type = {f"mail:kind-{number}": runs for number in range(50)}
    for hour in range(15 * 24):
        bench.run(add_history(QUEUE, HOUR_STARTS_S - hour * HOUR_S, {"": [50 * 60 * count for count in runs]}))
        bench.db.delete(keys.history_minutes(QUEUE, at_unix_ns((HOUR_STARTS_S - hour * HOUR_S) * 10**9)))
    for minute in range(9 * 60):  # the hours whose minutes are kept, at the end of one
        bench.run(add_history(QUEUE, HOUR_STARTS_S + 59 * 60 - 60 * minute, by_type))
    found = bench.db.keys(f"asynq:{{{QUEUE}}}:history:*")
    assert len(found) == 15 + 9
    assert 20 * sum(bench.db.memory_usage(key, samples=0) for key in found) <= 5_000_000
