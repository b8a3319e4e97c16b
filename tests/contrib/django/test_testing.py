"""The backend for tests: tasks run at once, within the transaction of the test. Cases of Django's ImmediateBackend."""

import asyncio
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import TestCase, override_settings
from django.utils import timezone

from fastq.contrib.django.framework import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from fastq.contrib.django.testing import InlineBackend
from fastq.testing import InlineClient, assert_enqueued
from tests.contrib.django import jobs
from tests.contrib.django.shop.models import Order
from tests.contrib.django.shop.tasks import aconfirm, confirm

RUN = [("started", "RUNNING"), ("finished", "SUCCESSFUL")]
INLINE = "fastq.contrib.django.testing.InlineBackend"


def inline(**options: Any) -> Any:
    return override_settings(TASKS={"default": {"BACKEND": INLINE, "QUEUES": ["default", "mail"], "OPTIONS": options}})


def client() -> InlineClient:
    backend = task_backends["default"]
    assert isinstance(backend, InlineBackend)
    return backend.client


@inline()
class InlineTest(TestCase):
    def test_tasks_run_at_once_and_see_the_transaction_of_the_test(self) -> None:
        order = Order.objects.create(pk=7, item="item 7")
        assert connection.in_atomic_block
        result = confirm.enqueue(7)
        assert result.status == TaskResultStatus.SUCCESSFUL
        assert result.return_value["order"] == 7
        asynchronous: Any = aconfirm.enqueue(order_id=7)
        assert (asynchronous.status, asynchronous.return_value) == (TaskResultStatus.SUCCESSFUL, 7)
        order.refresh_from_db()
        assert order.confirmed == 2
        assert confirm.get_result(result.id) == result
        assert (result.attempts, result.args, asynchronous.kwargs) == (1, [7], {"order_id": 7})
        assert_enqueued(client(), confirm.module_path, queue="default")

    async def test_coroutines_enqueue_and_see_the_transaction_too(self) -> None:
        await Order.objects.acreate(pk=7, item="item 7")
        for job in (confirm, aconfirm):
            assert (await job.aenqueue(7)).status == TaskResultStatus.SUCCESSFUL
        assert (await Order.objects.aget(pk=7)).confirmed == 2

    def test_errors_are_kept_with_their_tracebacks(self) -> None:
        result: Any = jobs.fail.enqueue("no stock")
        assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
        assert result.errors[0].exception_class is ValueError
        assert result.errors[0].traceback.endswith("ValueError: no stock\n")
        assert "KeyError: 'cause'" in result.errors[0].traceback
        assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
        assert jobs.fail.get_result(result.id) == result

    def test_failed_and_later_tasks_run_when_they_are_told_to(self) -> None:
        failed = jobs.fail_twice.enqueue()
        later = jobs.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
        assert (failed.status, failed.attempts) == (TaskResultStatus.READY, 1)
        assert (later.status, later.attempts) == (TaskResultStatus.READY, 0)
        client().run_waiting()
        for result in (failed, later):
            result.refresh()
        assert (failed.status, len(failed.errors)) == (TaskResultStatus.FAILED, 2)
        assert (later.status, later.return_value) == (TaskResultStatus.SUCCESSFUL, 2)

    def test_receivers_are_told_of_the_enqueuing_before_the_run(self) -> None:
        heard: list[tuple[str, str, str]] = []

        def hear(signal: Any, task_result: Any, **_: Any) -> None:
            assert task_result.enqueued_at is not None
            heard.append((names[signal], task_result.task.name, task_result.status))
            if heard == [("enqueued", "add", "READY")]:
                jobs.aadd.enqueue(1)  # it runs after the task that the receiver is told of

        names = {task_enqueued: "enqueued", task_started: "started", task_finished: "finished"}
        with ExitStack() as stack:
            for signal in names:
                signal.connect(hear)
                stack.callback(signal.disconnect, hear)
            result: Any = jobs.add.enqueue(1)
        assert result.status == TaskResultStatus.SUCCESSFUL
        assert heard == [
            ("enqueued", "add", "READY"),
            ("enqueued", "aadd", "READY"),
            *((name, job, state) for job in ("add", "aadd") for name, state in RUN),
        ]

    def test_a_task_whose_receiver_fails_waits(self) -> None:
        def refuse(**_: Any) -> None:
            raise LookupError("a receiver's fault")

        task_enqueued.connect(refuse)
        try:
            with pytest.raises(LookupError, match="a receiver's fault"):
                jobs.add.enqueue(1)
        finally:
            task_enqueued.disconnect(refuse)
        assert (client().runs, len(client().waiting)) == ([], 1)

    def test_revoked_and_unknown_tasks_have_no_result(self) -> None:
        for result_id in (jobs.revoke.enqueue().id, "default:123"):
            with pytest.raises(TaskResultDoesNotExist):
                task_backends["default"].get_result(result_id)

    def test_errors_are_raised_where_the_backend_is_told_so(self) -> None:
        with inline(raise_errors=True), pytest.raises(ValueError, match="no stock"):
            jobs.fail.enqueue("no stock")

    def test_tasks_run_when_the_callbacks_of_the_commit_do(self) -> None:
        with inline(enqueue_on_commit=True), self.captureOnCommitCallbacks(execute=True), transaction.atomic():
            result: Any = jobs.add.enqueue(1)
            assert result.status == TaskResultStatus.READY
        assert result.status == TaskResultStatus.SUCCESSFUL


def test_a_loop_of_ones_own_can_enqueue() -> None:
    with inline():
        result: Any = asyncio.run(jobs.aadd.aenqueue(1))
    assert result.return_value == 2
