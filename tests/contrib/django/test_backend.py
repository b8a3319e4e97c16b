"""The backend of Django's tasks on a real Redis. The cases are those of Django's own tests of its backends.

README.md says which test here stands for which of Django's.

Of those that are left out, DummyBackend's are about its list of results, ImmediateBackend's about what it does not
support. fastq differs in three of them. A task with retries left that has failed is READY again. A return value that is
no JSON does not make a task fail that is done: what cannot be kept of it is replaced by a marker. And a task is sent
when its transaction is committed.
"""

import asyncio
import logging
import pickle
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import override_settings
from django.utils import timezone
from django.utils.module_loading import import_string

from fastq import Client, Inspector, TaskState
from fastq.contrib.django import task as django_task
from fastq.contrib.django.backend import KNOWN_TASKS, FastqBackend, FastqTask
from fastq.contrib.django.framework import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from fastq.contrib.django.handlers import handler_of
from fastq.errors import BrokerConnectionError
from fastq.mux import ServeMux
from fastq.testing import TaskRun, drain
from tests.contrib.django import jobs

READY, SUCCESSFUL, FAILED = TaskResultStatus.READY, TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED

task: Any = django_task  # wrong arguments are tried
add: Any = jobs.add

pytestmark = pytest.mark.usefixtures("tasks_are")
Change = Callable[..., None]


@pytest.fixture
def run_all(url: str) -> Callable[[], Any]:
    """Return a function that runs all tasks as a server would."""
    mux: ServeMux[Any] = ServeMux()
    for path, known in KNOWN_TASKS.items():
        mux.handle(f"{path}\0", handler_of(known))
    return lambda: drain(mux, url, retries=True)


# Definition -----------------------------------------------------------------------------------------------------------


def test_the_decorator_makes_tasks_of_the_backend() -> None:
    backend = task_backends["default"]
    assert isinstance(backend, FastqBackend)
    assert all(isinstance(each, FastqTask) for each in (add, jobs.aadd, jobs.fail))
    assert isinstance(add.get_backend(), FastqBackend)
    assert (add.name, jobs.aadd.queue_name) == ("add", "mail")
    assert import_string(add.module_path) is add
    assert KNOWN_TASKS[add.module_path] is add


def test_using_makes_another_task_and_leaves_the_first() -> None:
    later = datetime(2040, 1, 1, tzinfo=UTC)
    changed = add.using(run_after=later).using(queue_name="mail", max_retry=7)
    assert (changed.run_after, changed.queue_name, changed.max_retry) == (later, "mail", 7)
    assert (add.run_after, add.queue_name, add.max_retry) == (None, "default", None)
    assert add.using() == add
    assert add.using() is not add
    assert KNOWN_TASKS[add.module_path] is add


def local() -> None:
    def inner() -> None: ...

    task(inner)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (local, "module level"),
        (lambda: task(any), "module level"),
        (lambda: task(jobs.steps), r"task 'tests\.contrib\.django\.jobs\.steps' is a generator, which would not run"),
        (lambda: add.using(run_after=datetime(2040, 1, 1)), "run_after must be an aware datetime"),
        (lambda: add.using(queue_name="unknown"), "Queue 'unknown' is not valid"),
        (lambda: add.using(priority=1), "does not support setting priority"),
        (lambda: task(takes_context=True)(add.func), "first argument of 'context'"),
        (lambda: add.using(backend="unknown"), "'unknown' doesn't exist"),
        (lambda: task(max_retry="many")(add.func), "max_retry"),
        (lambda: task(retries=3)(add.func), "retries"),
        (lambda: task(run_after=datetime(2040, 1, 1))(add.func), r"write using\(run_after"),
    ],
)
def test_a_wrong_task_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(Exception, match=message):
        make()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retries": 3}, "no option 'retries'"),
        ({"max_retry": "many"}, "max_retry"),
        ({"enqueue_on_commit": "yes"}, "enqueue_on_commit must be True or False, not 'yes'"),
    ],
)
def test_wrong_options_of_a_backend_are_refused(tasks_are: Change, options: dict[str, Any], message: str) -> None:
    tasks_are(**options)
    with pytest.raises(ImproperlyConfigured, match=rf"TASKS\['default'\].*{message}"):
        add.enqueue(1)


def test_a_task_is_checked_again_when_it_is_enqueued(tasks_are: Change) -> None:
    changed = add.using(queue_name="mail")
    tasks_are(queues=("other",))
    with pytest.raises(Exception, match="Queue 'mail' is not valid"):
        changed.enqueue(1)
    with pytest.raises(Exception, match="Queue 'mail' is not valid"):
        asyncio.run(changed.aenqueue(1))
    with override_settings(TASKS={}), pytest.raises(Exception, match="default"):
        changed.enqueue(1)


def test_a_backend_with_an_empty_list_of_queues_takes_all(tasks_are: Change) -> None:
    tasks_are(queues=())
    result = add.using(queue_name="any:name").enqueue(1)
    assert add.get_result(result.id).task.queue_name == "any:name"


# Enqueueing -----------------------------------------------------------------------------------------------------------


def test_a_task_travels_with_its_arguments_and_options(url: str, tasks_are: Change) -> None:
    tasks_are(max_retry=4, timeout=60)
    result = add.using(max_retry=2, run_after=timezone.now() + timedelta(hours=1)).enqueue(1, right=2)
    assert (result.status, result.args, result.kwargs, result.attempts) == (READY, [1], {"right": 2}, 0)
    queue, _, task_id = result.id.partition(":")
    assert len(result.id) <= 64
    with Inspector(url) as inspector:
        info = inspector.get_task_info(queue, task_id)
    assert (info.type, info.payload) == ("tests.contrib.django.jobs.add", b'{"args":[1],"kwargs":{"right":2}}')
    assert (info.state, info.max_retry, info.timeout) == (TaskState.SCHEDULED, 2, timedelta(seconds=60))
    assert info.retention == timedelta(days=1)
    found = add.get_result(result.id)
    assert found.task.run_after == info.next_process_at


@pytest.mark.parametrize("value", [datetime(2040, 1, 1), {1, 2}, b"\xff"])
def test_arguments_that_are_no_json_are_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError), match="Unsupported"):
        add.enqueue(value)
    with pytest.raises((TypeError, ValueError), match="Unsupported"):
        asyncio.run(add.aenqueue(value))


def test_numbers_that_json_lacks_are_refused_within_the_transaction() -> None:
    with pytest.raises(ValueError, match="nan"), transaction.atomic():
        add.enqueue(float("nan"))


def test_a_result_is_the_same_when_it_is_read() -> None:
    result = add.enqueue(1)
    assert add.get_result(result.id) == result
    assert asyncio.run(add.aget_result(result.id)) == result
    before = asdict(result)
    result.refresh()
    assert asdict(result) == before
    assert asyncio.run(jobs.aadd.aenqueue(1)).task == jobs.aadd


@pytest.mark.parametrize("result_id", ["", "123", "default:123", "default:", ":123", "unknown:123", "other queue:1"])
def test_an_unknown_result_does_not_exist(result_id: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(result_id)
    with pytest.raises(TaskResultDoesNotExist):
        asyncio.run(task_backends["default"].aget_result(result_id))


def test_the_result_of_another_task_does_not_match() -> None:
    result = add.enqueue(1)
    with pytest.raises(Exception, match="Task does not match"):
        jobs.aadd.get_result(result.id)


@pytest.mark.parametrize("type_", ["mail:send", "tests.contrib.django.jobs.not_a_task", "os.system", "no.such.name"])
def test_a_task_of_no_function_of_django_has_no_result(url: str, type_: str) -> None:
    with Client(url) as client:
        info = client.enqueue(type_, {"args": [], "kwargs": {}})
    with pytest.raises(TaskResultDoesNotExist, match=type_):
        task_backends["default"].get_result(f"default:{info.id}")


def test_a_task_can_be_pickled() -> None:
    import django

    if django.VERSION < (6, 1):
        pytest.skip("tasks can be pickled since Django 6.1")
    assert pickle.loads(pickle.dumps(add)) == add


# Transactions ---------------------------------------------------------------------------------------------------------


def exists(result: Any) -> bool:
    try:
        task_backends["default"].get_result(result.id)
    except TaskResultDoesNotExist:
        return False
    return True


def test_a_task_is_sent_when_the_outermost_transaction_is_committed() -> None:
    with transaction.atomic():
        with transaction.atomic():
            result = add.enqueue(1)
        assert (exists(result), result.enqueued_at) == (False, None)
    assert exists(result)
    assert result.enqueued_at is not None


def test_a_task_is_not_sent_when_the_transaction_is_rolled_back() -> None:
    with transaction.atomic():
        result = add.enqueue(1)
        transaction.set_rollback(True)
    assert not exists(result)


@pytest.mark.parametrize(("outer", "inner"), [("default", "other"), ("other", "default")])
def test_a_task_waits_for_the_transactions_of_all_databases(outer: str, inner: str) -> None:
    with transaction.atomic(using=outer):
        with transaction.atomic(using=inner):
            result = add.enqueue(1)
        assert not exists(result)
    assert exists(result)


def test_a_task_is_sent_at_once_where_the_backend_is_told_so(tasks_are: Change) -> None:
    tasks_are(enqueue_on_commit=False)
    with transaction.atomic():
        assert exists(add.enqueue(1))


def test_an_error_of_redis_at_the_commit_is_logged_and_keeps_no_other_callback_from_running(
    tasks_are: Change, caplog: pytest.LogCaptureFixture
) -> None:
    tasks_are(redis="redis://127.0.0.1:1/0")
    ran: list[str] = []
    with transaction.atomic():
        transaction.on_commit(lambda: ran.append("before"))
        result = add.enqueue(1)
        transaction.on_commit(lambda: ran.append("after"))
    assert (ran, result.enqueued_at) == (["before", "after"], None)
    (line,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert line.startswith(f"task {result.id} (tests.contrib.django.jobs.add) was not sent after the commit")
    with pytest.raises(BrokerConnectionError):
        add.enqueue(1)  # outside of a transaction


# Results --------------------------------------------------------------------------------------------------------------


def test_a_task_that_succeeds_has_its_return_value(run_all: Callable[[], list[TaskRun]]) -> None:
    for job in (add, jobs.aadd):
        result = job.enqueue(1, right=2)
        assert not result.is_finished
        with pytest.raises(ValueError, match="not finished"):
            _ = result.return_value
        run_all()
        result.refresh()
        assert (result.status, result.return_value, result.attempts) == (SUCCESSFUL, 3, 1)
        assert result.is_finished
        assert result.enqueued_at is not None
        assert result.finished_at is not None
        assert result.started_at == result.last_attempted_at
        assert result.started_at is not None
        assert result.enqueued_at <= result.started_at <= result.finished_at
        assert result.errors == []
        assert (result.task, result.args, result.kwargs) == (job, [1], {"right": 2})


def test_times_are_naive_without_use_tz(run_all: Callable[[], list[TaskRun]]) -> None:
    with override_settings(USE_TZ=False):
        result = add.using(run_after=datetime(2020, 1, 1)).enqueue(1)
        run_all()
        result.refresh()
        times = [result.enqueued_at, result.started_at, result.finished_at, result.last_attempted_at]
    assert [each.tzinfo if each else each for each in times] == [None] * 4


def test_a_task_that_fails_has_its_errors(run_all: Callable[[], list[TaskRun]]) -> None:
    result = jobs.fail.enqueue("no stock")
    run_all()
    result.refresh()
    assert (result.status, result.is_finished, result.attempts) == (FAILED, True, 1)
    assert [each.exception_class for each in result.errors] == [ValueError]
    assert "ValueError: no stock" in result.errors[0].traceback
    assert result.finished_at is not None
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_a_task_with_retries_left_is_ready_again(url: str) -> None:
    mux: ServeMux[Any] = ServeMux()
    mux.handle(f"{jobs.fail_twice.module_path}\0", handler_of(jobs.fail_twice))
    result = jobs.fail_twice.enqueue()
    drain(mux, url)
    result.refresh()
    assert (result.status, result.attempts) == (READY, 1)
    drain(mux, url, retries=True)
    result.refresh()
    assert (result.status, result.attempts) == (FAILED, 2)
    assert result.errors[-1].exception_class is SystemExit


def test_a_return_value_that_is_no_json_does_not_fail_the_task(run_all: Callable[[], list[TaskRun]]) -> None:
    result = jobs.return_complex.enqueue()
    run_all()
    result.refresh()
    assert result.status == SUCCESSFUL
    assert result.return_value["b"] == 3
    assert "complex" in str(result.return_value["a"])


def test_a_task_without_retention_has_no_result_once_it_is_done(
    tasks_are: Change, run_all: Callable[[], list[TaskRun]]
) -> None:
    tasks_are(retention=0)
    result = add.enqueue(1)
    run_all()
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


def test_a_task_that_takes_its_context_is_told_of_itself(run_all: Callable[[], list[TaskRun]]) -> None:
    for job in (jobs.tell, jobs.atell):
        result = job.enqueue("text")
        run_all()
        result.refresh()
        assert result.return_value == [result.id, 1, ["text"], "text"]


# Signals --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "args", "told"),
    [
        (add, [1], [READY, "RUNNING", SUCCESSFUL]),
        (jobs.aadd, [1], [READY, "RUNNING", SUCCESSFUL]),
        (jobs.fail, [], [READY, "RUNNING", FAILED]),
        (jobs.fail_twice, [], [READY, "RUNNING", "RUNNING", FAILED]),
        (jobs.revoke, [], [READY, "RUNNING", FAILED]),
        (jobs.snooze, [], [READY, "RUNNING"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_receivers_of_signals_are_told(
    url: str, caplog: pytest.LogCaptureFixture, job: FastqTask, args: list[Any], told: list[str]
) -> None:
    heard: list[tuple[Any, str, str]] = []
    mux: ServeMux[Any] = ServeMux()
    mux.handle(f"{job.module_path}\0", handler_of(job))

    def hear(sender: Any, task_result: Any, **_: Any) -> None:
        heard.append((sender, task_result.id, str(task_result.status)))
        if task_result.status != READY:
            raise RuntimeError("a receiver's fault")  # it must not fail the task

    for signal in (task_enqueued, task_started, task_finished):
        signal.connect(hear)
    try:
        result = job.enqueue(*args)
        drain(mux, url)
        if job is not jobs.snooze:
            drain(mux, url, retries=True)
    finally:
        for signal in (task_enqueued, task_started, task_finished):
            signal.disconnect(hear)
    assert heard == [(FastqBackend, result.id, str(each)) for each in told]
    if told[-1] == FAILED:  # Django logs it
        assert any(each.levelno == logging.ERROR and result.id in each.getMessage() for each in caplog.records)
