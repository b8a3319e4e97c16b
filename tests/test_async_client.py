"""AsyncClient: the same as Client on an asyncio loop, which it shares with others."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio
from redis import Redis

from fastq import AsyncClient, Client, DuplicateTaskError, Task, TaskIDConflictError, TaskInfo, TaskState
from fastq.broker.transport.aio import MOST_AT_ONCE
from fastq.wire.codec import decode_task_message
from tests.bad_input import BAD_OPTIONS
from tests.redis_servers import RedisServer
from tests.waiting import wait_until

PENDING = "asynq:{default}:pending"


def on_loop(url: str, use: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
    """Use a client for one loop's life."""

    async def run() -> Any:
        async with AsyncClient(url) as client:
            return await use(client)

    return asyncio.run(run())


def test_a_task_is_described_as_by_client(db: Redis, url: str) -> None:
    options: dict[str, Any] = {"task_id": "a", "queue": "low", "retention": 60, "headers": {"a": "1"}}
    info = on_loop(url, lambda client: client.enqueue("t", {"id": 1}, **options))
    db.flushall()
    with Client(url) as client:
        same = client.enqueue("t", {"id": 1}, **options)
    fields = [name for name in TaskInfo.__slots__ if name != "next_process_at"]
    assert {name: getattr(info, name) for name in fields} == {name: getattr(same, name) for name in fields}
    assert info.state is TaskState.PENDING


def test_a_bad_option_writes_nothing(db: Redis, url: str) -> None:
    async def use(client: AsyncClient) -> None:
        for name, value, kind, message in BAD_OPTIONS:
            with pytest.raises(kind, match=f"^{message}$"):
                await client.enqueue("t", b"x", **{name: value})
            assert db.keys("*") == [], (name, value)

    on_loop(url, use)


def test_a_task_has_its_payload_already(db: Redis, url: str) -> None:
    with pytest.raises(TypeError, match=r"^a Task already has a payload"):
        on_loop(url, lambda client: client.enqueue(Task("t"), b"x"))
    assert db.keys("*") == []


def test_conflicts_and_duplicates_are_raised(db: Redis, url: str) -> None:
    async def use(client: AsyncClient) -> None:
        await client.enqueue("t", task_id="a", unique=60)
        with pytest.raises(TaskIDConflictError):
            await client.enqueue("other", task_id="a")
        with pytest.raises(DuplicateTaskError):
            await client.enqueue("t", task_id="b", unique=60)

    on_loop(url, use)
    assert db.llen(PENDING) == 1


def test_many_calls_may_be_under_way_at_once(db: Redis, url: str) -> None:
    async def use(client: AsyncClient) -> list[TaskInfo]:
        infos = await asyncio.gather(*(client.enqueue("t", b"%d" % n) for n in range(200)))
        assert len(connections_named_fastq(db) - others) <= MOST_AT_ONCE
        return infos

    others = connections_named_fastq(db)
    infos = on_loop(url, use)
    assert [info.payload for info in infos] == [b"%d" % n for n in range(200)], "each has its own answer"
    assert db.llen(PENDING) == len({info.id for info in infos}) == 200


def test_a_given_pool_of_few_connections_is_waited_for(db: Redis, shared_server: RedisServer) -> None:
    async def run() -> int:
        path = shared_server.socket_path
        async with redis.asyncio.Redis(unix_socket_path=path, max_connections=3) as given:
            client = AsyncClient(given)
            return len(await asyncio.gather(*(client.enqueue("t") for _ in range(50))))

    assert asyncio.run(run()) == db.llen(PENDING) == 50


def test_one_call_s_error_is_no_other_s(db: Redis, url: str) -> None:
    async def use(client: AsyncClient) -> list[Any]:
        calls = (client.enqueue("t", task_id=f"{n // 2}") for n in range(100))
        return await asyncio.gather(*calls, return_exceptions=True)

    results = on_loop(url, use)
    assert sum(isinstance(result, TaskInfo) for result in results) == 50
    assert sum(isinstance(result, TaskIDConflictError) for result in results) == 50
    for n, result in enumerate(results):
        assert f"{n // 2}" == (result.id if isinstance(result, TaskInfo) else result.task_id)


def test_enqueue_many_lets_others_run_between_its_chunks(db: Redis, url: str) -> None:
    async def use(client: AsyncClient) -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        results = await client.enqueue_many(Task("t") for _ in range(5_000))
        counting.cancel()
        assert results.enqueued == 5_000
        return turns

    assert on_loop(url, use) >= 10


def test_calls_of_enqueue_many_may_be_under_way_at_once(db: Redis, url: str) -> None:
    async def use(client: AsyncClient) -> list[int]:
        calls = [client.enqueue_many([Task("t", task_id=f"{name}{n}") for n in range(1200)]) for name in "abcd"]
        return [results.enqueued for results in await asyncio.gather(*calls)]

    assert on_loop(url, use) == [1200] * 4
    assert db.llen(PENDING) == 4800


def test_a_cancelled_enqueue_many_leaves_a_client_in_order(db: Redis, url: str) -> None:
    async def use(client: AsyncClient) -> None:
        far = asyncio.Event()

        def tasks() -> Any:
            for n in range(1_000_000):
                if n == 2000:
                    far.set()
                yield Task("t", task_id=f"{n}")

        call = asyncio.create_task(client.enqueue_many(tasks()))
        await far.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await client.enqueue("t", task_id="after")).id == "after"
        with pytest.raises(TaskIDConflictError):
            await client.enqueue("t", task_id="0")

    on_loop(url, use)
    assert 1000 <= db.llen(PENDING) < 10_000


def test_ping_and_close_twice(db: Redis, url: str) -> None:
    async def run() -> None:
        client = AsyncClient(url)
        await client.ping()
        await client.close()
        await client.close()

    asyncio.run(run())


def test_close_leaves_no_connection(db: Redis, url: str) -> None:
    async def use(client: AsyncClient) -> int:
        await asyncio.gather(*(client.enqueue("t") for _ in range(10)))
        return len(connections_named_fastq(db) - others)

    others = connections_named_fastq(db)
    assert on_loop(url, use) == 2  # they share pipelines, two at a time
    wait_until(lambda: connections_named_fastq(db) <= others)


def connections_named_fastq(db: Redis) -> set[str]:
    """Return the ids of those that there are; what other tests left may go at any time."""
    found: Any = db.client_list()
    return {each["id"] for each in found if each["name"] == "fastq"}


def test_a_given_client_is_never_closed(db: Redis, shared_server: RedisServer) -> None:
    async def run() -> None:
        async with redis.asyncio.Redis(unix_socket_path=shared_server.socket_path) as given:
            connection_id = await given.client_id()
            async with AsyncClient(given) as client:
                await client.enqueue("t")
            await client.close()
            assert await given.client_id() == connection_id, "on the same connection"
            await client.enqueue("t")

    asyncio.run(run())
    assert db.llen(PENDING) == 2


@pytest.mark.parametrize(
    "settings",
    [{"decode_responses": True}, {"protocol": 3}, {"protocol": 2}, {"decode_responses": True, "protocol": 3}],
)
def test_a_given_client_may_be_set_as_it_likes(settings: dict[str, Any], db: Redis, shared_server: RedisServer) -> None:
    async def run() -> None:
        async with redis.asyncio.Redis(unix_socket_path=shared_server.socket_path, **settings) as given:
            client = AsyncClient(given)
            await client.enqueue("t", b"\xff\x00", task_id="ü", queue="日本")
            with pytest.raises(TaskIDConflictError):
                await client.enqueue("t", task_id="ü", queue="日本")
            twice = await client.enqueue_many([Task("t", task_id="a"), Task("t", task_id="a")])
            assert twice.enqueued == 1
            await client.ping()

    asyncio.run(run())
    stored: Any = db.hget("asynq:{日本}:t:ü", "msg")
    assert decode_task_message(stored).payload == b"\xff\x00"


def test_a_given_client_that_would_write_other_names_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^redis must be a client with encoding='utf-8'"):
        AsyncClient(redis.asyncio.Redis(encoding="latin-1"))


def test_a_blocking_client_is_refused() -> None:
    given: Any = Redis()
    with pytest.raises(
        TypeError, match=r"^redis must be a URL, redis.asyncio.Redis or redis.asyncio.RedisCluster, not"
    ):
        AsyncClient(given)
    other: Any = redis.asyncio.Redis()
    with pytest.raises(TypeError, match=r"^redis must be a URL, redis.Redis or redis.RedisCluster, not Redis$"):
        Client(other)


def test_without_an_argument_the_environment_names_the_redis(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with AsyncClient() as client:
            await client.enqueue("t")

    monkeypatch.setenv("FASTQ_REDIS_URL", url)
    asyncio.run(run())
    assert db.llen(PENDING) == 1
