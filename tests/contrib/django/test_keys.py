"""Django's tasks with keys, unique locks and lanes: the options that typed tasks take, too."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from redis import Redis

from fastq import DuplicateTaskError, Inspector, TaskState
from fastq.contrib.django import task as django_task
from fastq.contrib.django.framework import TaskResultStatus, task_enqueued
from fastq.contrib.django.handlers import handler_of
from fastq.mux import ServeMux
from fastq.testing import drain
from tests.contrib.django import jobs

task: Any = django_task  # wrong arguments are tried
add: Any = jobs.add

pytestmark = pytest.mark.usefixtures("tasks_are")


def test_a_key_names_its_task_by_the_arguments(url: str) -> None:
    sent: list[Any] = []

    def note(**signal: Any) -> None:
        sent.append(signal["task_result"])

    keyed = add.using(key="sum:{left}:{right}")
    task_enqueued.connect(note)
    first, second, other = keyed.enqueue(1), keyed.enqueue(left=1, right=1), keyed.enqueue(2)
    task_enqueued.disconnect(note)
    assert (first.id, other.id) == ("default:sum%3A1%3A1", "default:sum%3A2%3A1")
    assert (second.id, second.enqueued_at) == (first.id, None), "it is the one that was there"
    assert sent == [first, other]
    with Inspector(url) as inspector:
        assert inspector.get_task_info("default", "sum:1:1").state is TaskState.PENDING
    mux: ServeMux[Any] = ServeMux()
    mux.handle(f"{add.module_path}\0", handler_of(add))
    drain(mux, url)
    found = add.get_result(first.id)
    assert (found.id, found.status, found.return_value) == (first.id, TaskResultStatus.SUCCESSFUL, 2)


def test_a_task_with_a_key_is_put_off(url: str) -> None:
    keyed = add.using(key="sum", if_there="postpone", latest=timedelta(minutes=10))
    for minutes in (1, 2):
        result = keyed.using(run_after=timezone.now() + timedelta(minutes=minutes)).enqueue(minutes)
    with Inspector(url) as inspector:
        info = inspector.get_task_info("default", "sum")
    assert (info.state, info.payload) == (TaskState.SCHEDULED, b'{"args":[2],"kwargs":{}}')
    assert info.next_process_at is not None
    assert result.enqueued_at is not None
    assert info.next_process_at - result.enqueued_at > timedelta(seconds=110)


def test_a_lock_refuses_a_second_one() -> None:
    unique = add.using(unique=60, unique_key="sum", until="end")
    unique.enqueue(1)
    with pytest.raises(DuplicateTaskError):
        unique.enqueue(2)


def test_a_lock_that_is_held_at_the_commit_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    unique = add.using(unique=60)
    others: list[str] = []
    caplog.set_level(logging.INFO, "fastq.django")
    with transaction.atomic():
        results = [unique.enqueue(1), unique.enqueue(1)]
        transaction.on_commit(lambda: others.append("ran"))
    assert others == ["ran"]
    assert [one.enqueued_at is None for one in results] == [False, True]
    assert f"task {results[1].id} ({add.module_path}) was not sent: one like it holds the unique lock" in caplog.text


def test_a_key_that_is_taken_at_the_commit_keeps_no_other_task_from_being_sent(
    db: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    db.hset("asynq:{default}:t:sum", "state", "aggregating")
    with transaction.atomic():
        taken = add.using(key="sum", if_there="replace").enqueue(1)
        others = add.enqueue(2)
    assert (taken.enqueued_at, others.enqueued_at is None) == (None, False)
    assert f"task {taken.id} ({add.module_path}) was not sent after the commit" in caplog.text


def test_a_lane_is_named_by_the_arguments(db: Redis) -> None:
    add.using(lane="tenant:{left}").enqueue(7)
    assert db.smembers("asynq:{default}:groups") == {b"tenant:7"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: add.using(key="{nobody}"), r"the key of task '.*add' names 'nobody', its arguments are: left, right"),
        (lambda: add.using(key="a", lane="b"), "key='a' does not go with lane"),
        (lambda: add.using(if_there="rerun"), "if_there='rerun' needs key="),
        (lambda: add.using(until="end"), "until='end' needs unique="),
        (lambda: add.using(unique="long"), "unique must be a timedelta or seconds"),
        (lambda: add.using(key="{left}").enqueue(1.5), "takes a str, an int or a UUID as 'left', not float: 1.5"),
        (lambda: add.using(key="{left}").enqueue(), "missing a required argument: 'left'"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_is_sent(make: Callable[[], object], message: str, db: Redis) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()
    assert db.keys("asynq:*") == []
