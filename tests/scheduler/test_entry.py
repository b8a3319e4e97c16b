import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from fastq.scheduler.option_list import option_strings
from fastq.task import Task
from tests.bad_input import BAD_OPTIONS
from tests.scheduler.harness import NOON, entry_of


@pytest.mark.parametrize(("name", "value", "kind", "text"), BAD_OPTIONS)
def test_bad_options_are_refused_when_they_are_registered(
    name: str, value: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        entry_of("@daily", **{name: value})


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ({"task": None}, TypeError, "task must be a fastq.Task or a type name, not None"),
        ({"task": " "}, ValueError, "task type must contain one or more characters"),
        ({"name": ""}, ValueError, "name must contain one or more characters"),
        ({"name": 5}, TypeError, "name must be a str, not int: 5"),
        ({"missed": "some"}, ValueError, "missed must be one of skip, once, all, not 'some'"),
        ({"missed": None}, ValueError, "missed must be one of skip, once, all, not None"),
        ({"unique_key": "k"}, ValueError, "unique_key='k' needs unique="),
        ({"colour": 1}, TypeError, "unknown option 'colour'"),
    ],
)
def test_bad_registrations_are_refused_by_name(how: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        entry_of("@daily", how.pop("task", "t"), **how)


def test_options_are_listed_as_asynq_writes_them_in_the_order_given() -> None:
    options = {
        "timeout": 1.5,
        "queue": "a)b",
        "max_retry": -1,
        "retention": timedelta(hours=24),
        "unique": 60,
        "unique_key": "not asynq's",
        "process_in": timedelta(minutes=30),
        "deadline": NOON,
        "headers": {"k": "v", "x": "<"},
        "group": "g",
        "task_id": None,
    }
    assert option_strings(options) == (
        "Timeout(1.5s)",
        'Queue("a\\x29b")',
        "MaxRetry(0)",
        "Retention(24h0m0s)",
        "Unique(1m0s)",
        "ProcessIn(30m0s)",
        "Deadline(Mon Mar  2 12:00:00 UTC 2026)",
        'Header(["k","v"])',
        'Header(["x","\\u003c"])',
        'Group("g")',
    )


def test_options_of_the_task_act_and_are_not_listed() -> None:
    entry = entry_of("@daily", Task("t", queue="low", max_retry=9), queue="high")
    assert entry.registration.queue == "high"
    assert entry.message().enqueue_options == ('Queue("high")',)
    assert entry_of("@daily", Task("t", queue="low")).registration.queue == "low"


def test_an_attempt_keeps_its_task_id_until_the_tick_is_settled() -> None:
    entry = entry_of("* * * * *")
    first, second = NOON + timedelta(minutes=1), NOON + timedelta(minutes=2)
    attempt = entry.attempt(first)
    assert entry.attempt(first) is attempt
    assert entry.attempt(second).task_id != attempt.task_id
    entry.settle(second)
    assert (entry.prev, entry.next) == (second, NOON + timedelta(minutes=3))
    assert entry.attempt(second) is not attempt


def test_a_given_task_id_is_every_tick_s() -> None:
    entry = entry_of("* * * * *", task_id="fixed")
    attempts = [entry.attempt(datetime.fromtimestamp(at, NOON.tzinfo)) for at in (1, 2)]
    assert [(attempt.task_id, attempt.is_id_ours) for attempt in attempts] == [("fixed", False)] * 2
