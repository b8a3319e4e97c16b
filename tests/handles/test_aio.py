"""Handles of ``AsyncClient``: as those of ``Client``, on an asyncio loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis import Redis

from fastq import (
    AsyncClient,
    BrokerConnectionError,
    DuplicateTaskError,
    Task,
    TaskFailedError,
    TaskGoneError,
    TaskState,
)
from fastq.running import CURRENT
from tests.handles.site import QUEUE, Site
from tests.waiting import until, wait_until

Use = Callable[[AsyncClient, Site], Awaitable[None]]


def on_loop(url: str, db: Redis, use: Use) -> None:
    """Use a client whose looks are none, unless the test asks for some."""
    site = Site(db)

    async def run() -> None:
        async with AsyncClient(url) as client:
            client._waiter._look_every_s = 1e6
            await use(client, site)

    asyncio.run(run())
    wait_until(lambda: site.listeners() == [])


async def begin(client: AsyncClient, wait: Awaitable[Any]) -> asyncio.Future[Any]:
    """Begin a wait, and return once it is looked for."""
    waiting = asyncio.ensure_future(wait)
    await until(lambda: client._waiter._listener()._waits.tasks)
    return waiting


def test_a_message_ends_a_wait(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        handle = await client.submit("t", task_id="a")
        assert await handle.state() is TaskState.PENDING
        waiting = await begin(client, handle.result())
        assert len(site.listeners()) == 1
        site.end("a", result=b"7")
        assert await waiting == await handle == b"7"
        assert client._waiter._listener()._waits.tasks == []

    on_loop(url, db, use)


def test_a_connection_that_is_killed_costs_no_end(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        handle, looks = await client.submit("t", task_id="a"), site.looks()
        waiting = await begin(client, handle.result())
        await until(lambda: site.looks() > looks)
        site.end("a", "archived", error="ValueError: x", tells=False)
        site.db.client_kill_filter(_type="pubsub")
        with pytest.raises(TaskFailedError, match="ValueError: x"):
            await waiting

    on_loop(url, db, use)


def test_what_nobody_tells_is_found_by_a_look(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        client._waiter._look_every_s = 0.05
        waiting = await begin(client, (await client.submit("t", task_id="a")).result())
        site.end("a", "gone", tells=False)
        with pytest.raises(TaskGoneError):
            await waiting

    on_loop(url, db, use)


def test_handles_come_as_their_tasks_end(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        handles = await client.submit_many(Task("t", task_id=f"{number}") for number in range(1_200))
        for number in range(600):
            site.end(f"{number}", result=b"%d" % number, tells=False)
        completed = client.as_completed([*handles, handles[0]])
        first = [(await anext(completed)).id for _ in range(601)]
        assert set(first) == {f"{number}" for number in range(600)}
        for number in range(600, 1_200):
            site.end(f"{number}", result=b"%d" % number)
        assert {handle.id async for handle in completed} == {f"{number}" for number in range(600, 1_200)}
        assert await client.gather(handles, timeout=60) == [b"%d" % number for number in range(1_200)]
        assert await asyncio.gather(*handles[:3]) == [b"0", b"1", b"2"]

    on_loop(url, db, use)


def test_a_wait_has_its_time_and_a_canceled_one_leaves_nothing(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        handle, refused = await client.submit_many([Task("t", task_id="a", unique=60), Task("t", unique=60)])
        with pytest.raises(DuplicateTaskError):
            await refused
        with pytest.raises(TimeoutError, match=r"^task a of queue 'default' has not ended within 0\.05 s$"):
            await handle.result(timeout=0.05)
        with pytest.raises(TimeoutError, match=r"^1 tasks have not ended within 0\.05 s$"):
            await client.gather([handle], timeout=0.05)
        with pytest.raises(TimeoutError, match=r"^task a of queue 'default' has not ended within 0 s$"):
            await client.wait(QUEUE, "a", timeout=0)
        waiting = await begin(client, handle.result())
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert client._waiter._listener()._waits.tasks == []
        await handle.cancel()
        with pytest.raises(TaskGoneError):
            await client.wait(QUEUE, "a")

    on_loop(url, db, use)


def test_a_closed_client_ends_its_waits_and_can_be_used_again(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        handle = await client.submit("t", task_id="a")
        waiting = await begin(client, handle.result())
        await client.close()
        with pytest.raises(BrokerConnectionError, match=r"^the client was closed while it waited for a task$"):
            await waiting
        site.end("a", result=b"1", tells=False)
        assert await handle == b"1"

    on_loop(url, db, use)


def test_a_handler_is_not_let_wait(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        handle = await client.submit("t", task_id="a")
        CURRENT.set(handle)  # type: ignore[arg-type]  # any task will do; the loop ends with the test
        with pytest.raises(RuntimeError, match=r"^the handler of task a cannot wait for other"):
            await handle

    on_loop(url, db, use)
