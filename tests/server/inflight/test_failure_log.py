"""What the log says of failed tasks: one line each, its level, and how many were held back."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from fastq.broker.operations.cancel import CancelAs
from fastq.broker.operations.finish import Archived, Disposition, Done, Requeued, Retried
from fastq.log.limit import LINES, PER_S
from fastq.pool.shared.event_kind import EventKind
from fastq.server.inflight.failure_log import MAX_ERROR, FailureLog
from fastq.server.inflight.tasks import InFlightTask
from fastq.wire.codec import view_task_message
from fastq.worker.shared.report import FailureReport
from tests.broker.harness import NOW_S, message, run
from tests.manual_clock import ManualClock

REPORT = FailureReport("KeyError: 'nokey' (app.py:12)")


def in_flight(task_id: str = "a", **fields: Any) -> InFlightTask:
    return InFlightTask("q", view_task_message(message(task_id, queue="q", **{"type": "boom", **fields})), 0.0, 1)


def telling(test: Callable[[FailureLog, ManualClock], None], caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Run a test in a loop, and return level and text of each line."""
    caplog.set_level(logging.DEBUG, "fastq")

    async def running() -> None:
        clock = ManualClock(NOW_S)
        log = FailureLog(clock)
        test(log, clock)
        log.finish()

    run(running)
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize(
    ("kind", "write", "level", "text"),
    [
        (
            EventKind.FAILED,
            Retried("a", b"", NOW_S + 15, True),
            "WARNING",
            "failed at attempt 3 of 26: {}; next try in 15s",
        ),
        (
            EventKind.FAILED,
            Retried("a", b"", NOW_S + 3700, False),
            "WARNING",
            "failed at attempt 3 of 26: {}; next try in 1h1m40s, not counted as a failure",
        ),
        (
            EventKind.FAILED,
            Archived("a", b""),
            "ERROR",
            "failed at attempt 3 of 26: {}; archived: out of retries (max_retry 25)",
        ),
        (
            EventKind.INVALID,
            Archived("a", b""),
            "ERROR",
            "failed at attempt 3 of 26: {}; archived: its message cannot be read",
        ),
        (EventKind.REVOKED, Done("a", ""), "INFO", "ended at attempt 3 of 26: {}; deleted"),
        (EventKind.ABORTED, Requeued("a"), "DEBUG", "ended at attempt 3 of 26: {}; given back"),
    ],
)
def test_a_line_says_which_task_why_and_what_follows(
    kind: EventKind, write: Disposition, level: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    said = telling(lambda log, _: log.add(in_flight(retried=2, retry=25), kind, write, REPORT), caplog)
    assert said == [(level, f"task a (boom, queue q) {text.format(REPORT.error)}")]


def test_a_line_says_how_long_the_task_ran_and_that_a_snoozed_one_has_not_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    write, snoozed = Retried("a", b"", NOW_S + 15, False), FailureReport("snoozed (not failed)", False, is_snoozed=True)
    ((_, text),) = telling(lambda log, _: log.add(in_flight(), EventKind.FAILED, write, snoozed, 1_234_567_890), caplog)
    assert " ended at attempt 1 of 26 after 1.235 s: snoozed (not failed); next try in 15s, not counted" in text


@pytest.mark.parametrize(
    ("canceled", "why"), [(None, "its payload does not fit"), (CancelAs.ARCHIVE, "it was canceled so")]
)
def test_a_line_says_why_a_task_with_retries_left_is_archived(
    canceled: CancelAs | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    task = in_flight(retry=25)
    task.canceled = canceled
    report = REPORT._replace(final="its payload does not fit")
    ((_, text),) = telling(lambda log, _: log.add(task, EventKind.SKIP_RETRY, Archived("a", b""), report), caplog)
    assert text.endswith(f"; archived: {why}")


def test_a_line_has_its_facts_as_fields_and_its_traceback_below(caplog: pytest.LogCaptureFixture) -> None:
    write, report = Retried("a", b"", NOW_S + 15, True), FailureReport("E: x", trace="Traceback\n  File")
    telling(lambda log, _: log.add(in_flight(retry=25), EventKind.FAILED, write, report, 1_234_567_890), caplog)
    (record,) = caplog.records
    assert record.__dict__["below"] == "Traceback\n  File"
    assert record.__dict__["about"] == {
        "task_id": "a",
        "task_type": "boom",
        "queue": "q",
        "attempt": 1,
        "max_attempts": 26,
        "outcome": "retried",
        "error": "E: x",
        "retry_in_s": 15,
        "ran_s": 1.234568,
    }


def test_a_long_error_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    report = FailureReport("E: " + "x" * 60_000)
    ((_, text),) = telling(lambda log, _: log.add(in_flight(), EventKind.FAILED, Archived("a", b""), report), caplog)
    assert len(text) < MAX_ERROR + 200
    assert "xxx…; archived" in text


def test_failures_of_a_kind_are_limited_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    def test(log: FailureLog, clock: ManualClock) -> None:
        for _ in range(LINES + 5):
            log.add(in_flight(), EventKind.FAILED, Retried("a", b"", NOW_S, True), REPORT)
        log.add(in_flight(), EventKind.FAILED, Retried("a", b"", NOW_S, True), FailureReport("ValueError"))
        log.add(in_flight(type="other"), EventKind.FAILED, Retried("a", b"", NOW_S, True), REPORT)
        log.add(in_flight(), EventKind.FAILED, Archived("a", b""), REPORT)

    said = telling(test, caplog)
    assert [level for level, _ in said] == ["WARNING"] * (LINES + 2) + ["ERROR", "WARNING"]
    assert said[-1] == ("WARNING", "5 more tasks of boom ended with KeyError in 10 s and were retried")


def test_a_failure_without_the_traceback_it_was_to_have_is_only_counted(caplog: pytest.LogCaptureFixture) -> None:
    def test(log: FailureLog, clock: ManualClock) -> None:
        for trace in [None, "Traceback", None, None]:
            log.add(in_flight(), EventKind.FAILED, Archived("a", b""), REPORT._replace(trace=trace))

    said = telling(test, caplog)
    assert [level for level, _ in said] == ["ERROR", "ERROR"]
    assert said[-1] == ("ERROR", "3 more tasks of boom ended with KeyError in 10 s and were archived")


def test_what_was_held_back_is_told_when_its_time_is_over(caplog: pytest.LogCaptureFixture) -> None:
    async def running() -> None:
        clock = ManualClock(NOW_S)
        log = FailureLog(clock)
        for _ in range(LINES + 3):
            log.add(in_flight(), EventKind.FAILED, Archived("a", b""), REPORT)
        timer = log._timer
        assert timer is not None
        assert timer.when() - asyncio.get_running_loop().time() <= PER_S
        clock.advance(PER_S)
        timer._run()  # what the loop does then
        timer.cancel()
        assert log._timer is None
        log.add(in_flight(), EventKind.FAILED, Archived("a", b""), REPORT)

    run(running)
    texts = [record.getMessage() for record in caplog.records]
    assert texts[LINES] == "3 more tasks of boom ended with KeyError in 10 s and were archived"
    assert texts[LINES + 1].startswith("task a ")


def test_what_is_not_logged_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "fastq.pool")

    async def running() -> None:
        log = FailureLog(ManualClock(NOW_S))
        for _ in range(LINES + 3):
            log.add(in_flight(), EventKind.FAILED, Retried("a", b"", NOW_S, True), REPORT)
        assert log._timer is None
        log.finish()

    run(running)
    assert caplog.records == []
