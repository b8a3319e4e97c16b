"""What a task says of its failures: which errors are worth another attempt, when, and what a handler decides."""

from datetime import timedelta
from typing import Any

import pytest

from fastq import App, Context, Hooks, Retry, SkipRetry, Snooze, TaskTimeout
from fastq.testing import RunOutcome, TaskRun, run_task
from fastq.worker.child.hooks import failure_report
from tests.worker.harness import running


class FlakyError(ConnectionError):
    """A kind of a ConnectionError."""


@pytest.fixture
def app() -> App:
    return App()


def run(app: App, error: BaseException, retried: int = 0, **settings: Any) -> TaskRun:
    def job(ctx: Context) -> None:
        raise error

    task: Any = app.task("t", **settings)(job)
    return run_task(app, task.task(), retried=retried)


RULES: list[tuple[dict[str, Any], BaseException, RunOutcome]] = [
    ({"retry_on": ConnectionError}, FlakyError("x"), RunOutcome.RETRY),
    ({"retry_on": (ConnectionError, KeyError)}, KeyError("x"), RunOutcome.RETRY),
    ({"retry_on": ConnectionError}, ValueError("x"), RunOutcome.ARCHIVE),
    ({"retry_on": ConnectionError}, SystemExit(1), RunOutcome.RETRY),
    ({"dont_retry_on": ValueError}, ValueError("x"), RunOutcome.ARCHIVE),
    ({"dont_retry_on": ValueError}, KeyError("x"), RunOutcome.RETRY),
    ({"retry_on": ConnectionError, "dont_retry_on": FlakyError}, FlakyError("x"), RunOutcome.ARCHIVE),
    ({"retry_on": ConnectionError, "dont_retry_on": FlakyError}, ConnectionError("x"), RunOutcome.RETRY),
    ({"retry_on": ConnectionError}, Retry(after=1), RunOutcome.RETRY),
    ({"retry_on": ConnectionError}, Snooze(after=1), RunOutcome.RETRY),
    ({"retry_on": ConnectionError}, SkipRetry("x"), RunOutcome.ARCHIVE),
    ({"backoff": 5}, ValueError("x"), RunOutcome.RETRY),
]


@pytest.mark.parametrize(("settings", "error", "outcome"), RULES)
def test_errors_are_tried_again_by_the_rule_of_their_task(
    app: App, settings: dict[str, Any], error: BaseException, outcome: RunOutcome
) -> None:
    ran = run(app, error, **settings)
    assert (ran.outcome, ran.error) == (outcome, None if isinstance(error, Snooze) else error)


def test_the_error_that_decides_is_the_one_that_is_told(app: App) -> None:
    ran = run(app, ValueError("no"), dont_retry_on=ValueError)
    assert ran.error_text.startswith("ValueError: no (tests/app/test_failure_rule.py:")


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (5, [5, 5, 5, 5]),
        (timedelta(minutes=1), [60, 60, 60, 60]),
        ([1, timedelta(seconds=10), 30], [1, 10, 30, 30]),
        (lambda retried: 2**retried, [1, 2, 4, 8]),
    ],
)
def test_the_delay_is_that_of_the_task(app: App, backoff: Any, delays: list[int]) -> None:
    @app.task("t", backoff=backoff)
    async def job() -> None:
        raise ValueError

    hooks = Hooks(retry_delay=lambda retried, error, task: 99)
    runs = [run_task(app, job.task(), retried=retried, hooks=hooks) for retried in range(4)]
    assert [ran.retry_in for ran in runs] == delays
    assert {ran.is_failure for ran in runs} == {True}


def test_a_task_whose_time_is_up_is_tried_again_as_ever(app: App) -> None:
    ran = run(app, TaskTimeout(), backoff=5, retry_on=ConnectionError)
    assert (ran.outcome, ran.retry_in != 5) == (RunOutcome.RETRY, True)


def test_a_rule_without_a_delay_leaves_it_to_the_hook(app: App) -> None:
    @app.task("t", retry_on=ValueError)
    def job() -> None:
        raise ValueError

    hooks = Hooks(retry_delay=lambda retried, error, task: 99)
    assert run_task(app, job.task(), hooks=hooks).retry_in == 99


def test_retry_counts_an_attempt_and_names_its_delay(app: App) -> None:
    ran = run(app, Retry("busy", after=30), backoff=5)
    assert (ran.outcome, ran.retry_in, ran.is_failure) == (RunOutcome.RETRY, 30, True)
    assert ran.error_text.startswith("Retry: busy (")
    assert run(App(), Retry(), backoff=5).retry_in == 5
    assert run(App(), Retry(after=timedelta(minutes=1)), max_retry=3, retried=3).outcome is RunOutcome.ARCHIVE


@pytest.mark.parametrize("retried", [0, 3])
def test_snooze_counts_no_attempt_even_of_a_task_out_of_retries(app: App, retried: int) -> None:
    told: list[BaseException] = []

    @app.task("t", max_retry=3)
    def job() -> None:
        raise Snooze(after=timedelta(seconds=30))

    hooks = Hooks(error_handler=lambda task, error: told.append(error))
    ran = run_task(app, job.task(), retried=retried, hooks=hooks)
    assert (ran.outcome, ran.retry_in, ran.is_failure, told) == (RunOutcome.RETRY, 30, False, [])


@pytest.mark.parametrize(("decision", "before"), [(Retry(after=7), ""), (Snooze(after=7), "snoozed (not failed): ")])
def test_a_decision_tells_what_it_was_raised_from(decision: Exception, before: str) -> None:
    decision.__cause__ = ConnectionError("refused")
    report = failure_report(Hooks(), running(), decision)
    assert (report.error, report.retry_in_s) == (f"{before}ConnectionError: refused", 7)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"retry_on": "ValueError"}, "retry_on takes classes of exceptions, not 'ValueError'"),
        ({"dont_retry_on": (ValueError, 3)}, "dont_retry_on takes classes of exceptions, not 3"),
        ({"backoff": "5"}, "backoff must be a timedelta or seconds, not '5'"),
        ({"backoff": [1, -1]}, "backoff must not be negative: -1"),
        ({"backoff": []}, "an empty sequence"),
    ],
)
def test_bad_settings_are_refused_and_named(app: App, settings: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        app.task("t", **settings)(lambda: None)
    for decision in (Retry, Snooze):
        with pytest.raises(TypeError, match="after must be a timedelta or seconds"):
            decision(after="soon")  # type: ignore[arg-type]
