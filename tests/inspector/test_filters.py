"""Which tasks a filter leaves, and what it refuses."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fastq import TaskFilter, TaskInfo, TaskState
from fastq.info import task_info
from fastq.wire.messages import TaskMessage

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def info(state: TaskState = TaskState.ARCHIVED, **fields: Any) -> TaskInfo:
    message = TaskMessage(id="it", queue="q", **{"type": "mail:send", "payload": b"", **fields})
    return task_info(message, state)


def seconds(moment: datetime) -> int:
    return int(moment.timestamp())


@pytest.mark.parametrize(
    ("where", "is_meant"),
    [
        (TaskFilter(), True),
        (TaskFilter(type="mail:*"), True),
        (TaskFilter(type="mail"), False),
        (TaskFilter(error="Time.*slow"), True),
        (TaskFilter(error="^slow"), False),
        (TaskFilter(since=NOW), True),
        (TaskFilter(since=NOW + timedelta(seconds=1)), False),
        (TaskFilter(type="mail:*", error="Key"), False),
        (TaskFilter(test=lambda info: info.queue == "q"), True),
        (TaskFilter(type="mail:*", test=lambda info: info.queue == "other"), False),
    ],
)
def test_all_that_is_given_must_match(where: TaskFilter, is_meant: bool) -> None:
    failed = info(error_msg="TimeoutError: slow", last_failed_at=seconds(NOW))
    assert where.wants(failed) is is_meant


def test_completed_tasks_count_from_when_they_were_completed() -> None:
    done = info(TaskState.COMPLETED, completed_at=seconds(NOW), last_failed_at=seconds(NOW - timedelta(days=1)))
    assert TaskFilter(since=NOW).wants(done)
    assert not TaskFilter(since=NOW).wants(info(last_failed_at=0))


def test_since_may_be_how_long_ago() -> None:
    before = datetime.now(UTC)
    since = TaskFilter(since=timedelta(hours=1)).since
    assert isinstance(since, datetime)
    assert before <= since + timedelta(hours=1) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"error": "("}, r"error: '\(' is not a regular expression: "),
        ({"since": datetime(2026, 11, 22)}, "since must have a time zone"),
        ({"since": timedelta.max}, "is before the calendar begins"),
    ],
)
def test_what_means_nothing_is_refused(named: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        TaskFilter(**named)


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"type": 5}, "type must be a str, not 5"),
        ({"error": 503}, "error must be a str or a compiled pattern of str, not 503"),
        ({"error": TimeoutError}, "error must be a str .* not <class 'TimeoutError'>"),
        ({"error": re.compile(b"slow")}, r"error must be .* of str, not re\.compile\(b'slow'\)"),
        ({"since": 3600}, "since must be a datetime or a timedelta, not 3600"),
    ],
)
def test_values_of_other_types_are_refused(named: dict[str, Any], error: str) -> None:
    with pytest.raises(TypeError, match=error):
        TaskFilter(**named)


def test_since_needs_states_that_have_a_time() -> None:
    TaskFilter(since=NOW).check([TaskState.RETRY, TaskState.COMPLETED])
    with pytest.raises(ValueError, match="since goes with retry, archived, completed; pending tasks have no such time"):
        TaskFilter(since=NOW).check([TaskState.RETRY, TaskState.PENDING])
