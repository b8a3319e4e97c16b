"""The hooks of a failed task: asynq's order, and that one which fails stands for its default."""

import logging
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from fastq.errors import PayloadError, RevokeTask, SkipRetry, Snooze, TaskTimeout
from fastq.hooks import FailureRule, Hooks
from fastq.running import RunningTask
from fastq.worker.child.hooks import caused_by, failure_report, hooks_named, lost_report
from fastq.worker.shared.names import AppNameError
from fastq.worker.shared.report import FailureReport
from tests.worker.harness import running

BOOM = ValueError("boom")


class Recorder:
    """All three hooks; records the calls."""

    def __init__(self, *, is_failure: Any = True, delay: Any = 7) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._is_failure = is_failure
        self._delay = delay

    def hooks(self) -> Hooks:
        return Hooks(self.error_handler, self.is_failure, self.retry_delay)

    def error_handler(self, task: RunningTask, error: BaseException) -> None:
        self.calls.append(("error_handler", task.id, error))

    def is_failure(self, error: BaseException) -> Any:
        self.calls.append(("is_failure", error))
        return self._is_failure

    def retry_delay(self, retried: int, error: BaseException, task: RunningTask) -> Any:
        self.calls.append(("retry_delay", retried, error, task.id))
        return self._delay

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]


def test_a_failure_that_is_tried_again_goes_through_all_three_in_order() -> None:
    recorder = Recorder()
    report = failure_report(recorder.hooks(), running(retried=3), BOOM)
    assert recorder.calls == [
        ("error_handler", "id-1", BOOM),
        ("is_failure", BOOM),
        ("retry_delay", 3, BOOM, "id-1"),
    ]
    assert report == FailureReport("ValueError: boom", True, 7.0, report.trace)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"retry": 3, "retried": 3}, BOOM),
        ({"retry": 0}, BOOM),
        ({"retry": 0}, TaskTimeout("up")),
        ({}, SkipRetry("no use")),
        ({}, RevokeTask("forget it")),
        ({"retry": 0}, RevokeTask("forget it")),
    ],
)
def test_a_task_that_is_not_tried_again_is_only_told_of(fields: dict[str, int], error: BaseException) -> None:
    recorder = Recorder(is_failure=False)
    report = failure_report(recorder.hooks(), running(**fields), error)
    assert recorder.names() == ["error_handler"]
    assert (report.is_failure, report.retry_in_s) == (True, None)


@pytest.mark.parametrize(
    ("error", "rule", "why"),
    [
        (SkipRetry("no use"), None, "SkipRetry was raised"),
        (PayloadError("Expected int"), None, "its payload does not fit"),
        (BOOM, FailureRule((OSError,), (), None), "retry_on of the task excludes this error"),
        (BOOM, FailureRule((Exception,), (ValueError,), None), "dont_retry_on of the task excludes this error"),
        (BOOM, FailureRule((ValueError,), (), None), ""),
        (BOOM, None, ""),
    ],
)
def test_a_report_says_why_a_task_with_retries_left_is_not_tried_again(
    error: BaseException, rule: FailureRule | None, why: str
) -> None:
    task = running()
    if rule is not None:
        task._rule = rule
    assert FailureReport.decode(failure_report(Hooks(), task, error).encode()).final == why


def test_a_snoozed_task_is_not_said_to_have_failed() -> None:
    because = Snooze("too early", after=5)
    because.__cause__ = BOOM
    for error, text in (
        (Snooze(after=5), "snoozed (not failed)"),
        (Snooze("too early", after=5), "snoozed (not failed): too early"),
        (because, "snoozed (not failed): ValueError: boom"),
    ):
        report = failure_report(Hooks(), running(), error)
        assert (report.error, report.retry_in_s, report.is_snoozed) == (text, 5.0, True)


def test_without_hooks_the_defaults_stand() -> None:
    report = failure_report(Hooks(), running(), BOOM)
    assert (report.error, report.is_failure, report.retry_in_s) == ("ValueError: boom", True, None)


@pytest.mark.parametrize(("answer", "counts"), [(False, False), (0, False), (None, False), (True, True), ("yes", True)])
def test_is_failure_decides_whether_it_counts(answer: object, counts: bool) -> None:
    assert failure_report(Recorder(is_failure=answer).hooks(), running(), BOOM).is_failure is counts


@pytest.mark.parametrize(
    ("delay", "seconds"), [(5, 5.0), (0.25, 0.25), (timedelta(minutes=2), 120.0), (0, 0.0), (-3, 0.0)]
)
def test_retry_delay_is_seconds_or_a_timedelta_and_never_negative(delay: object, seconds: float) -> None:
    assert failure_report(Recorder(delay=delay).hooks(), running(), BOOM).retry_in_s == seconds


@pytest.mark.parametrize("delay", [None, "soon", float("nan"), float("inf"), True])
def test_a_delay_that_is_none_stands_for_the_default(delay: object, caplog: pytest.LogCaptureFixture) -> None:
    assert failure_report(Recorder(delay=delay).hooks(), running(), BOOM).retry_in_s is None
    assert [record.getMessage() for record in caplog.records] == ["retry_delay failed; the default delay is used"]


@pytest.mark.parametrize("error", [ZeroDivisionError("a defect"), SystemExit(1)])
def test_a_hook_that_raises_is_logged_and_the_others_are_asked(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> Any:
        raise error

    recorder = Recorder(is_failure=False)
    report = failure_report(Hooks(fail, recorder.is_failure, recorder.retry_delay), running(), BOOM)
    assert (report.is_failure, report.retry_in_s) == (False, 7.0)
    report = failure_report(Hooks(recorder.error_handler, fail, fail), running(), BOOM)
    assert (report.is_failure, report.retry_in_s) == (True, None)
    assert [record.getMessage() for record in caplog.records] == [
        "error_handler raised an exception for task id-1",
        "is_failure raised an exception; the error counts as a failure",
        "retry_delay failed; the default delay is used",
    ]
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
    assert all(record.exc_info for record in caplog.records)


def test_a_task_whose_time_is_up_in_a_hook_ends_there() -> None:
    def hang(*_: object) -> Any:
        raise TaskTimeout("up")

    with pytest.raises(TaskTimeout):
        failure_report(Hooks(error_handler=hang), running(), BOOM)


@pytest.mark.parametrize("retried", [0, 25])
def test_of_a_task_that_was_lost_only_the_delay_is_asked_for(retried: int) -> None:
    recorder = Recorder()
    report = lost_report(recorder.hooks(), running(retried=retried), BOOM)
    assert recorder.names() == ["retry_delay"]
    assert (report.is_failure, report.retry_in_s) == (False, 7.0)


# Names ------------------------------------------------------------------------------------------------------------

not_callable = 5


def module_hook(*_: object) -> bool:
    return False


def test_hooks_are_imported_by_name() -> None:
    hooks = hooks_named(is_failure="tests.worker.child.test_hooks:module_hook", retry_delay=None, error_handler="")
    assert hooks == Hooks(None, module_hook, None)


def test_a_name_that_is_no_hook_is_said() -> None:
    with pytest.raises(
        AppNameError, match=r"is_failure='tests.worker.child.test_hooks:not_callable' is not callable: 5"
    ):
        hooks_named(is_failure="tests.worker.child.test_hooks:not_callable")
    with pytest.raises(AppNameError, match="has no 'module_hok'; did you mean 'module_hook'"):
        hooks_named(is_failure="tests.worker.child.test_hooks:module_hok")


# Causes -----------------------------------------------------------------------------------------------------------


def chain(*errors: BaseException) -> BaseException:
    """Raise each from the one after it."""
    for error, cause in pairwise(errors):
        error.__cause__ = cause
    return errors[0]


def test_a_decision_counts_wherever_it_is_in_the_chain_of_causes() -> None:
    assert caused_by(SkipRetry(), SkipRetry)
    assert caused_by(chain(ValueError(), KeyError(), SkipRetry()), SkipRetry)
    assert not caused_by(chain(ValueError(), KeyError()), SkipRetry)
    assert not caused_by(SkipRetry(), RevokeTask)


def test_an_error_that_was_raised_while_another_was_handled_is_not_its_cause() -> None:
    error = ValueError()
    error.__context__ = SkipRetry()
    assert not caused_by(error, SkipRetry)


def test_a_circle_of_causes_has_an_end() -> None:
    one, two = ValueError(), KeyError()
    one.__cause__, two.__cause__ = two, one
    assert not caused_by(one, SkipRetry)
    assert caused_by(one, KeyError)


def test_a_rule_decides_about_the_errors_that_it_judges_in_the_words_of_its_users() -> None:
    task = running(retried=3)
    task._rule = FailureRule((OSError,), (), None)
    assert failure_report(Hooks(), task, TaskTimeout()).final == ""
    task._rule = task._rule._replace(judges=(Exception, TaskTimeout), names=("named", "not named"))
    task._limit = 4
    report = failure_report(Hooks(), task, TaskTimeout())
    assert (report.final, report.max_retry) == ("named of the task excludes this error", 4)
    assert failure_report(Hooks(), task, OSError()).final == ""
    task._limit = 3
    assert (task.max_retry, failure_report(Hooks(), task, OSError()).retry_in_s) == (3, None)
