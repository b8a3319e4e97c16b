import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from fastq.task import Task
from tests.bad_input import BAD_OPTIONS
from tests.scheduler.harness import NOON, entry_of


def test_bad_options_are_refused_when_they_are_registered() -> None:
    for name, value, kind, text in BAD_OPTIONS:
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


def test_options_of_the_task_act_and_of_these_the_queue_is_listed() -> None:
    entry = entry_of("@daily", Task("t", queue="low", max_retry=9), queue="high")
    assert entry.registration.queue == "high"
    assert entry.message().enqueue_options == ('Queue("high")',)
    assert entry_of("@daily", Task("t", queue="low")).registration.queue == "low"
    message = entry_of("@daily", Task("t", queue="low"), max_retry=2).message()
    assert (message.enqueue_options, message.queue) == (('Queue("low")', "MaxRetry(2)"), "low")
    assert entry_of("@daily").message().queue == "default"


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
