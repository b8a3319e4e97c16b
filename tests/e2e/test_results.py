"""Whole workers tell clients of the ends of tasks, by which results are waited for."""

import asyncio

import pytest
from redis import Redis

from fastq import AsyncClient, Client, Handle, Task, TaskFailedError, TaskGoneError
from tests.e2e.harness import Workers
from tests.e2e.typed_app import Size, pages, resize, retries, revokes, snoozes, who, who_async
from tests.e2e.view import View
from tests.waiting import wait_until

APP = "tests.e2e.typed_app:app"


def progress_of(handle: Handle[int]) -> tuple[float, float | None, str] | None:
    progress = handle.progress()
    return None if progress is None else progress[:3]


def traceback_of(client: Client, task_id: str) -> str:
    with pytest.raises(TaskFailedError) as error:
        client.wait("default", task_id)
    return error.value.traceback


def test_clients_wait_for_what_workers_did(workers: Workers, client: Client, view: View, db: Redis, url: str) -> None:
    worker = workers.start("--queues", "default,media", "--delayed-task-check-interval", "0.05", app=APP).is_ready()
    client._waiter._look_every_s = 1e6  # so that each end is found by its message, or by the look at the begin
    sized = client.submit(resize.task(7, width=8))
    assert sized.result() == Size(8, 7)
    failed, retried, gone = (
        client.submit(task) for task in (retries.task("never"), retries.task("now"), revokes.task())
    )
    with pytest.raises(TaskFailedError) as error:
        failed.result()
    assert error.value.error_class == "ZeroDivisionError"
    wait_until(lambda: ", in retries\n" in traceback_of(client, failed.id))  # written apart, and may come later
    with pytest.raises(TaskFailedError) as error:
        retried.result()
    assert error.value.error_class == "Retry", "of the second attempt"
    with pytest.raises(TaskGoneError):
        gone.result()
    snoozed = client.submit(snoozes.task("e2e:open"))
    view.expect("snoozes", snoozed.id)
    db.set("e2e:open", 1)
    assert snoozed.result() == "ran at 0 retried"
    handles = client.submit_many(who.task() for _ in range(1_000))
    assert sum(handle.result() for handle in client.as_completed(handles)) == 1_000
    paged = client.submit(pages.task("e2e:pages"))
    view.expect("waits", paged.id)
    wait_until(lambda: progress_of(paged) == (4, 4, "pages"))
    db.set("e2e:pages", 1)
    assert paged.result() == 4
    assert progress_of(paged) == (6, None, ""), "the last one came within 50 ms of another, and goes with the end"
    wrong = client.submit(Task("nobody.has.it", max_retry=0))
    with pytest.raises(TaskFailedError, match="HandlerNotFoundError"):
        wrong.result()

    async def use() -> None:
        async with AsyncClient(url) as client:
            client._waiter._look_every_s = 1e6
            handles = await client.submit_many(who_async.task() for _ in range(100))
            assert await client.gather(handles) == [True] * 100
            assert await (await client.submit(resize.task(1))) == Size(640, 1)

    asyncio.run(use())
    assert worker.stop() == 0, worker.text
