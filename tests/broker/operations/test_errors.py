"""Records of failed attempts go with the end of a task; of each kind of error of a queue one traceback is kept."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.errors import KEPT_S, MAX_KEPT, keep_traceback, read_attempts, read_tracebacks
from fastq.broker.operations.finish import ANY_OWNER, Archived, Retried, archive, retry
from fastq.wire import keys
from fastq.wire.attempts import AttemptRecord
from tests.broker.harness import NOW, NOW_S, QUEUE, QueueBench, queue_bench


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


def record(attempt: int) -> AttemptRecord:
    return AttemptRecord(attempt, NOW_S * 1000, NOW_S * 1000 + 5, "h:1", f"E: {attempt}", f"{attempt:016x}")


def test_a_task_keeps_its_last_five_failed_attempts(bench: QueueBench) -> None:
    for attempt in range(1, 7):
        bench.activate("a")
        bench.run(retry(QUEUE, [Retried("a", b"m", NOW_S, attempt=record(attempt).encode())], NOW, ANY_OWNER))
    assert bench.run(read_attempts(QUEUE, "a")) == [record(attempt) for attempt in range(2, 7)]
    bench.activate("a", "b")
    ends = [Archived("a", b"m", record(7).encode()), Archived("b", b"m")]
    bench.run(archive(QUEUE, ends, NOW, ANY_OWNER))
    assert bench.run(read_attempts(QUEUE, "a")) == [record(attempt) for attempt in range(3, 8)]
    assert "attempts" not in bench.task("b")
    assert bench.run(read_attempts(QUEUE, "b")) == []
    assert bench.run(read_attempts(QUEUE, "nosuch")) is None


def test_a_record_of_another_length_than_before_begins_anew(bench: QueueBench) -> None:
    bench.activate("a")
    bench.db.hset(keys.task(QUEUE, "a"), "attempts", b"of another version")
    bench.run(archive(QUEUE, [Archived("a", b"m", record(1).encode())], NOW, ANY_OWNER))
    assert bench.run(read_attempts(QUEUE, "a")) == [record(1)]


def test_a_traceback_is_kept_for_a_while_under_its_fingerprint(bench: QueueBench) -> None:
    one, other = "00" * 8, "ff" * 8
    assert bench.run(keep_traceback(QUEUE, one, "Traceback: \udcff", NOW_S)) == 0
    assert bench.run(keep_traceback(QUEUE, one, "Traceback: ✗", NOW_S + 1)) == 0
    assert bench.run(read_tracebacks(QUEUE, [other, one])) == {one: "Traceback: ✗"}
    kept: Any = bench.db.keys("*error*")
    assert sorted(kept) == sorted([keys.errors(QUEUE).encode(), keys.error(QUEUE, one).encode()])
    assert all(0 < bench.db.ttl(key) <= KEPT_S for key in kept)
    assert bench.scores("errors") == {one: NOW_S + 1}


def test_a_queue_keeps_the_latest_tracebacks_only(bench: QueueBench) -> None:
    for number in range(MAX_KEPT + 2):
        bench.run(keep_traceback(QUEUE, f"{number:016x}", "T", NOW_S + number))
    assert len(bench.scores("errors")) == MAX_KEPT
    assert len(bench.db.keys(f"{keys.error_prefix(QUEUE)}*")) == MAX_KEPT
    fingerprints = [f"{number:016x}" for number in range(3)]
    assert list(bench.run(read_tracebacks(QUEUE, fingerprints))) == fingerprints[2:]
    # Those that have expired by themselves are no longer listed.
    bench.run(keep_traceback(QUEUE, "ab" * 8, "T", NOW_S + KEPT_S + 1000))
    assert list(bench.scores("errors")) == ["ab" * 8]
