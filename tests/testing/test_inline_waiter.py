"""Handles of the inline clients: their tasks have run, or wait until the test runs them."""

import asyncio

import pytest

from fastq import App, SkipRetry, TaskFailedError, TaskGoneError, TaskState
from fastq.testing import AsyncInlineClient, InlineClient

app = App()


@app.task("double")
def double(x: int) -> int:
    if x < 0:
        raise SkipRetry(f"{x} is negative")
    return 2 * x


def test_handles_have_the_results_of_tasks_that_have_run() -> None:
    client = InlineClient(app)
    handles = client.submit_many(double.task(x) for x in (1, 2))
    assert [handle.result() for handle in client.as_completed(handles)] == [2, 4]
    assert client.gather(handles) == [2, 4]
    assert client.wait("default", handles[0].id) == b"2"
    assert handles[0].state() is TaskState.COMPLETED
    failed = client.submit(double.task(-1))
    assert failed.state() is TaskState.ARCHIVED
    with pytest.raises(TaskFailedError, match="-1 is negative"):
        failed.result()
    later, canceled = client.submit(double.task(3), process_in=60), client.submit(double.task(4), process_in=60)
    assert later.state() is TaskState.SCHEDULED
    with pytest.raises(TimeoutError, match=r"waits: it runs by run_waiting\(\)$"):
        later.result()
    canceled.cancel()
    client.run_waiting()
    assert later.result() == 6
    for asked in (canceled.result, canceled.state):
        with pytest.raises(TaskGoneError):
            asked()


def test_async_handles_have_them_too() -> None:
    async def test() -> None:
        client = AsyncInlineClient(app)
        handles = await client.submit_many(double.task(x) for x in (1, 2))
        assert [await handle async for handle in client.as_completed(handles)] == [2, 4]
        assert await client.gather(handles) == [2, 4]
        assert await client.wait("default", handles[0].id) == b"2"
        canceled = await client.submit(double.task(4), process_in=60)
        assert await canceled.state() is TaskState.SCHEDULED
        await canceled.cancel()
        with pytest.raises(TaskGoneError):
            await canceled

    asyncio.run(test())
