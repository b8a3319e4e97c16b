"""The aids for tests call a batch handler with what is there."""

import asyncio
from typing import Any

import pytest

from fastq import Batch, Client, ServeMux, Task
from fastq.hooks import Hooks
from fastq.testing import AsyncInlineClient, InlineClient, RunOutcome, drain, run_task


class Calls:
    """A mux with a batch handler, plain or async, and what it was called with."""

    def __init__(self, *, is_async: bool = False, size: int = 4) -> None:
        self.mux = ServeMux()
        self.sizes: list[int] = []

        def handle(batch: Batch) -> list[Any]:
            self.sizes.append(len(batch))
            orders = [task.json() for task in batch]
            return [ValueError(order) if order == "fail" else order for order in orders]

        async def handle_async(batch: Batch) -> list[Any]:
            await asyncio.sleep(0)
            return handle(batch)

        self.mux.handle("many", handle_async if is_async else handle, batch=size, max_wait=600)
        self.mux.handle("one", lambda task: task.json())


both = pytest.mark.parametrize("is_async", [False, True])
TASKS = [Task("many", order) for order in (1, 2, "fail", 4, 5)]


@both
def test_run_task_gives_a_batch_of_one(is_async: bool) -> None:
    calls = Calls(is_async=is_async)
    assert run_task(calls.mux, "many", 7).json() == 7
    failed = run_task(calls.mux, "many", "fail", hooks=Hooks(retry_delay=lambda retried, error, task: 7))
    assert (failed.outcome, str(failed.error), failed.retry_in) == (RunOutcome.RETRY, "fail", 7)
    assert calls.sizes == [1, 1]


@both
def test_an_inline_client_gives_the_tasks_of_one_call_together(is_async: bool) -> None:
    calls = Calls(is_async=is_async)
    client = InlineClient(calls.mux)
    client.enqueue_many([*TASKS, Task("one", 6)])
    assert calls.sizes == [4, 1]
    assert [run.outcome is RunOutcome.DONE for run in client.runs] == [True, True, False, True, True, True]
    assert [str(run.error) for run in client.runs if run.error] == ["fail"]
    assert client.enqueue("many", 8).id == client.runs[-1].id
    assert calls.sizes == [4, 1, 1]
    assert [run.outcome for run in client.run_waiting()] == [RunOutcome.RETRY]


@both
def test_an_async_inline_client_does_so_too(is_async: bool) -> None:
    calls = Calls(is_async=is_async)

    async def test() -> AsyncInlineClient:
        client = AsyncInlineClient(calls.mux)
        await client.enqueue_many(TASKS)
        return client

    client = asyncio.run(test())
    assert calls.sizes == [4, 1]
    assert [run.result for run in client.runs] == [b"1", b"2", None, b"4", b"5"]


def test_an_error_is_raised_once_all_are_noted() -> None:
    calls = Calls()
    client = InlineClient(calls.mux, raise_errors=True)
    with pytest.raises(ValueError, match="fail"):
        client.enqueue_many(TASKS)
    assert len(client.runs) == 4


@both
def test_drain_gives_what_is_there(is_async: bool, url: str) -> None:
    client = Client(url)
    calls = Calls(is_async=is_async)
    client.enqueue_many([Task("many", 1), Task("one", 2), Task("many", "fail"), *(Task("many", 3) for _ in range(4))])
    client.close()
    runs = drain(calls.mux, url)
    assert calls.sizes == [3, 3], "of four tasks each, one of which was another's"
    assert [run.outcome for run in runs].count(RunOutcome.RETRY) == 1
    assert len(runs) == 7


def test_drain_gives_back_what_an_exception_kept_from_running(url: str) -> None:
    client = Client(url)
    mux = ServeMux()

    def stop(batch: Batch) -> None:
        raise KeyboardInterrupt

    mux.handle("many", stop, batch=2)
    client.enqueue_many([Task("many") for _ in range(3)])
    client.close()
    with pytest.raises(KeyboardInterrupt):
        drain(mux, url)
    calls = Calls()
    assert len(drain(calls.mux, url)) == 3
