"""Handles of ``AsyncClient``: as those of ``Client``, on an asyncio loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import BlockingConnectionPool as AsyncBlockingPool
from redis.asyncio import ConnectionPool as AsyncPool
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import UnixDomainSocketConnection

from fastq import (
    AsyncClient,
    BrokerConnectionError,
    DuplicateTaskError,
    Task,
    TaskFailedError,
    TaskGoneError,
    TaskState,
)
from fastq.handles.waits import Waits
from fastq.running import CURRENT
from fastq.wire import keys
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.handles.site import GARBLED, QUEUE, Site
from tests.redis_servers import RedisServer
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


def test_a_late_message_of_an_earlier_task_of_the_same_id_ends_no_wait(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        client._waiter._look_every_s = 1e6
        await client.submit("t", task_id="a")
        late = site.db.hget(keys.task(QUEUE, "a"), "msg")
        site.db.delete(keys.task(QUEUE, "a"))
        waiting = await begin(client, (await client.submit("t", task_id="a")).result())
        for state, error in (("completed", ""), ("archived", "ValueError: of the first"), ("gone", "")):
            assert site.tell(late, state, error=error) == 1
        site.end("a", result=b"2")
        assert await waiting == b"2"

    on_loop(url, db, use)


def test_the_message_of_an_older_server_has_the_client_look(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        client._waiter._look_every_s = 1e6
        handle, looks = await client.submit("t", task_id="a"), site.looks()
        message = site.db.hget(keys.task(QUEUE, "a"), "msg")
        waiting = await begin(client, handle.result())
        await until(lambda: site.looks() > looks)
        site.end("a", result=b"7", tells=False)
        site.tell(message, "completed", knows_submits=False)
        assert await waiting == b"7"

    on_loop(url, db, use)


def test_after_a_long_wait_it_is_said_what_the_task_waits_for(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.handles.waits.Deadline.is_long", True)

    async def use(client: AsyncClient, site: Site) -> None:
        handle = await client.submit("t", task_id="a")
        with pytest.raises(TimeoutError, match=r"within 0\.05 s: it is pending; no server serves queue 'default'$"):
            await handle.result(timeout=0.05)

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


def test_waits_that_begin_together_are_looked_at_together(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        handles = await client.submit_many(Task("t", task_id=f"{number}") for number in range(300))
        drive, looks = client._broker.drive, list[str]()

        async def count(flow: Any) -> Any:
            looks.append(flow.__name__)
            return await drive(flow)

        client._broker.drive = count  # type: ignore[method-assign]  # counts, and does the same
        waiting = asyncio.gather(*handles)
        await until(lambda: bool(looks))
        for handle in handles:
            site.end(handle.id)
        await waiting
        assert looks.count("look_at") < 10

    on_loop(url, db, use)


def test_a_wait_that_has_no_time_looks_once(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        done, gone = await client.submit_many([Task("t", task_id="a"), Task("t", task_id="b")])
        site.end("a", result=b"7", tells=False)
        site.end("b", "gone", tells=False)
        assert await done.result(timeout=0) == b"7"
        with pytest.raises(TaskGoneError):
            await gone.result(timeout=0)

    on_loop(url, db, use)


def test_a_wait_that_cannot_look_when_it_begins_ends_and_an_older_one_goes_on(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        older, later = await client.submit_many([Task("t", task_id="a"), Task("t", task_id="b")])
        looks = site.looks()
        waiting = await begin(client, older.result())
        await until(lambda: site.looks() > looks)
        drive = client._broker.drive

        async def fail(flow: Any) -> Any:
            flow.close()
            raise BrokerConnectionError("away")

        client._broker.drive = fail  # type: ignore[method-assign]  # Redis is away
        with pytest.raises(BrokerConnectionError, match="away"):
            await later
        client._broker.drive = drive  # type: ignore[method-assign]  # as it was
        site.end("a")
        assert await waiting is None

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


def test_a_message_that_is_garbled_is_dropped_and_the_waits_go_on(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        waiting = await begin(client, (await client.submit("t", task_id="a")).result())
        for garbled in GARBLED:
            assert site.db.publish(keys.inbox_channel(client._waiter._listener().inbox), garbled) == 1
        site.end("a", result=b"7")
        assert await waiting == b"7"
        assert [record.getMessage()[:42] for record in caplog.records] == ["dropped a message to this client's inbox: "]

    on_loop(url, db, use)


def test_a_failure_wins_over_a_look_that_finds_no_task_and_ends_with_it(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        drive, waits = client._broker.drive, client._waiter._listener()._waits

        async def drive_late(flow: Any) -> Any:
            for _, task_id, _ in waits.tasks:
                site.end(task_id, "gone", tells=False)
                site.tell(messages[task_id], "archived", error="ValueError: full")
            await until(lambda: waits.tasks == [])
            return await drive(flow)

        handles = await client.submit_many(Task("t", task_id=name) for name in "abc")
        messages = {name: site.db.hget(keys.task(QUEUE, name), "msg") for name in "abc"}
        client._broker.drive = drive_late  # type: ignore[method-assign]  # both happen before the look, and are heard
        with pytest.raises(TaskFailedError, match="ValueError: full"):
            await handles[0]
        with pytest.raises(TaskFailedError, match="ValueError: full"):
            await client.gather(handles[1:])
        client._broker.drive = drive  # type: ignore[method-assign]  # as it was
        again = await client.submit("t", task_id="a")
        await again.cancel()
        with pytest.raises(TaskGoneError):
            await again

    on_loop(url, db, use)


def test_a_wait_for_anybodys_task_ends_with_the_client(db: Redis, url: str) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        task_id = (await client.submit("t")).id
        drive, has_looked = client._broker.drive, asyncio.Event()

        async def look(flow: Any) -> Any:
            found = await drive(flow)
            has_looked.set()
            return found

        client._broker.drive = look  # type: ignore[method-assign]  # tells that it has a reply
        waiting = asyncio.ensure_future(client.wait(QUEUE, task_id))
        await has_looked.wait()
        await client.close()
        with pytest.raises(BrokerConnectionError, match=r"^the client was closed while it waited for a task$"):
            await waiting

    on_loop(url, db, use)


def test_a_defect_ends_the_waits_and_later_ones_begin_anew(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(client: AsyncClient, site: Site) -> None:
        handle = await client.submit("t", task_id="a")
        waiting = await begin(client, handle.result())
        with monkeypatch.context() as patched:
            patched.setattr(Waits, "take_message", lambda *_: 1 / 0)
            site.tell(site.db.hget(keys.task(QUEUE, "a"), "msg"), "gone")
            with pytest.raises(ZeroDivisionError):
                await waiting
        site.end("a", result=b"7", tells=False)
        assert await handle == b"7"

    on_loop(url, db, use)
    assert [record.getMessage() for record in caplog.records] == ["unexpected error: the client waits no longer"]


def given(server: RedisServer, **options: Any) -> AsyncRedis:
    """Return a client of redis-py's as a user would give one; it speaks RESP3 unless told otherwise."""
    return AsyncRedis(unix_socket_path=server.socket_path, **options)


def test_a_client_that_was_given_hears_messages(db: Redis, shared_server: RedisServer) -> None:
    site = Site(db)

    async def run() -> None:
        async with given(shared_server) as redis, AsyncClient(redis) as client:
            client._waiter._look_every_s = 1e6
            waiting = await begin(client, (await client.submit("t", task_id="a")).result())
            site.end("a", result=b"7", tells=False)
            assert site.tell(site.db.hget(keys.task(QUEUE, "a"), "msg"), "completed", b"7") == 1
            assert await waiting == b"7"

    asyncio.run(run())


@pytest.mark.parametrize("kind", [AsyncBlockingPool, AsyncPool])
def test_a_client_of_one_connection_waits_by_looking(
    kind: type[AsyncPool],
    db: Redis,
    shared_server: RedisServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site(db)
    place: dict[str, Any] = {"connection_class": UnixDomainSocketConnection, "path": shared_server.socket_path}

    async def run() -> None:
        for most in (1, 2):
            pool = kind(max_connections=most, **place)
            async with AsyncRedis.from_pool(pool) as redis, AsyncClient(redis) as client:
                client._waiter._look_every_s = 0.05
                handles = await asyncio.gather(*(client.submit("t", task_id=f"{most}:{number}") for number in range(5)))
                for handle in handles:
                    site.end(handle.id, result=b"7", tells=False)
                assert await asyncio.gather(*handles) == [b"7"] * 5

    asyncio.run(run())
    assert [record.getMessage() for record in caplog.records] == [
        "cannot hear when tasks end, and looks every 5 s: SUBSCRIBE: the Redis client was given with "
        "max_connections=1, and a subscription needs a connection of its own"
    ]


def test_a_subscription_that_is_not_answered_holds_up_no_wait(
    db: Redis, shared_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.handles.aio.OPEN_WITHIN_S", 0.05)
    site = Site(db)

    async def run() -> None:
        with faulty_proxy(shared_server.socket_path, Fault("SUBSCRIBE", Act.SWALLOW, times=None)) as proxy:
            async with AsyncClient(proxy.url) as client:
                client._waiter._look_every_s = 0.05
                waiting = await begin(client, (await client.submit("t", task_id="a")).result())
                site.end("a", result=b"7", tells=False)
                assert await waiting == b"7"

    asyncio.run(run())
