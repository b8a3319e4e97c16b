"""``once`` on SQLite: what a second run of a task finds."""

from typing import Any

import pytest
from django.db import transaction
from django.test import TransactionTestCase

from fastq import ServeMux, Task
from fastq.contrib.django import once
from fastq.testing import RunOutcome, run_task
from tests.contrib.django.shop.models import Order


@once
def sell(item: str) -> Any:
    order = Order.objects.create(item=item)
    if item == "nothing":
        raise ValueError("no stock")
    return [order.item, Order.objects.count()] if item != "silence" else None


@once
def count() -> int:
    return Order.objects.count()


mux: ServeMux = ServeMux()


@mux.handler("sell")
def handle(task: Task) -> Any:
    sold, _ = sell(task.json()), count()
    return sold


class OnceTest(TransactionTestCase):
    available_apps = ("fastq.contrib.django", "tests.contrib.django.shop")

    def run_it(self, item: str, task_id: str, queue: str = "default") -> Any:
        return run_task(mux, "sell", item, task_id=task_id, queue=queue, retention=60)

    def test_a_second_run_of_a_task_returns_the_result_of_the_first(self) -> None:
        assert [self.run_it("book", "a").json() for _ in range(2)] == [["book", 1]] * 2  # and not that of count
        assert self.run_it("book", "b").json() == ["book", 2]
        assert self.run_it("book", "a", queue="other").json() == ["book", 3]
        assert Order.objects.count() == 3

    def test_a_result_of_none_is_kept_too(self) -> None:
        assert [self.run_it("silence", "a").result for _ in range(2)] == [None] * 2
        assert Order.objects.count() == 1

    def test_a_run_that_fails_leaves_nothing(self) -> None:
        for _ in range(2):
            assert isinstance(self.run_it("nothing", "a").error, ValueError)
        assert Order.objects.count() == 0
        assert self.run_it("book", "a").outcome is RunOutcome.DONE

    def test_an_outer_transaction_that_is_rolled_back_takes_the_note_with_it(self) -> None:
        with transaction.atomic():
            self.run_it("book", "a")
            transaction.set_rollback(True)
        assert self.run_it("book", "a").json() == ["book", 1]

    def test_outside_a_task_it_is_a_function_in_a_transaction(self) -> None:
        assert [sell("book") for _ in range(2)] == [["book", 1], ["book", 2]]
        with pytest.raises(ValueError, match="no stock"):
            sell("nothing")
        assert Order.objects.count() == 2


def test_a_coroutine_is_refused() -> None:
    async def sell_later() -> None: ...

    with pytest.raises(TypeError, match="needs a plain function"):
        once(sell_later)
    with pytest.raises(TypeError, match="the function of @once is a generator"):
        once(lambda: (yield))
