"""The records of failed attempts, and which tracebacks are written."""

import logging

import pytest
from redis import Redis

from fastq.broker.operations.errors import read_tracebacks
from fastq.server.inflight.failed_attempts import FailedAttempts
from fastq.wire import keys
from fastq.wire.attempts import AttemptRecord, decode_attempts
from fastq.worker.shared.report import FailureReport
from tests.broker.harness import NOW_S, QUEUE
from tests.server.harness import Bench, on_bench

ONE, OTHER = "ab" * 8, "cd" * 8


def failed(fingerprint: str, kept: str) -> FailureReport:
    return FailureReport("E: x", fingerprint=fingerprint, kept=kept)


def test_a_record_says_which_attempt_it_was_where_and_from_when_to_when(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        attempts = FailedAttempts(bench.commands, bench.clock, "h:1")
        (task,) = bench.hold("a", retried=2)
        ran, never_began = attempts.record(task, failed(ONE, ""), 250_000_000), attempts.record(task, failed("", ""), 0)
        now_ms = NOW_S * 1000
        assert decode_attempts(ran) == [AttemptRecord(3, now_ms - 250, now_ms, "h:1", "E: x", ONE)]
        assert decode_attempts(never_began) == [AttemptRecord(3, 0, now_ms, "h:1", "E: x")]
        await attempts.settle()
        assert bench.db.keys("*error*") == []

    on_bench(db, url, test)


def test_the_traceback_of_a_kind_of_error_is_written_once_in_ten_minutes(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        attempts = FailedAttempts(bench.commands, bench.clock, "h:1")
        (task,) = bench.hold("a")

        async def kept(*reports: FailureReport) -> dict[str, str]:
            for report in reports:
                attempts.record(task, report, 1)
            await attempts.settle()
            return await bench.commands.run(read_tracebacks(QUEUE, [ONE, OTHER]))

        assert await kept(failed(ONE, "T1"), failed(OTHER, "T2"), failed(ONE, "T3")) == {ONE: "T1", OTHER: "T2"}
        bench.clock.advance(600.0)
        assert await kept(failed(ONE, "T4")) == {ONE: "T4", OTHER: "T2"}

    on_bench(db, url, test)


def test_a_traceback_that_cannot_be_written_costs_a_line_in_the_log_alone(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        attempts = FailedAttempts(bench.commands, bench.clock, "h:1")
        (task,) = bench.hold("a")
        bench.db.set(keys.errors(QUEUE), "not a sorted set")
        with caplog.at_level(logging.WARNING):
            assert attempts.record(task, failed(ONE, "T"), 1)
            await attempts.settle()
        (line,) = [record.getMessage() for record in caplog.records]
        assert line.startswith(f"queue {QUEUE}: could not keep the traceback of an error (E: x): ")

    on_bench(db, url, test)
