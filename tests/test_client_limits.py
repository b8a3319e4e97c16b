"""``set_limit`` of all clients."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from fastq import App, AsyncClient, Client, ServeMux
from fastq.testing import AsyncInlineClient, InlineClient
from fastq.wire import keys


def with_client(url: str, *args: Any, **named: Any) -> None:
    with Client(url) as client:
        client.set_limit(*args, **named)


def with_async_client(url: str, *args: Any, **named: Any) -> None:
    async def run() -> None:
        async with AsyncClient(url) as client:
            await client.set_limit(*args, **named)

    asyncio.run(run())


def with_inline_client(url: str, *args: Any, **named: Any) -> None:
    InlineClient(ServeMux()).set_limit(*args, **named)


def with_async_inline_client(url: str, *args: Any, **named: Any) -> None:
    asyncio.run(AsyncInlineClient(ServeMux()).set_limit(*args, **named))


@pytest.mark.parametrize("set_limit", [with_client, with_async_client])
def test_a_limit_is_set_at_once(db: Redis, url: str, set_limit: Any) -> None:
    set_limit(url, "emails", "openai:acme", concurrency=8, rate="10/s", burst=20, weight=2)
    set_limit(url, "emails", "orders", concurrency=1, order="strict")
    set_limit(url, "emails", "free")
    set_limit(url, "emails", None, concurrency=100)
    rules = {b"openai:acme": b"8:100000:20:2", b"orders": b"1:0:1:1:strict", b"free": b"0:0:1:1", b"": b"100:0:1:1"}
    assert db.hgetall(keys.limits("emails")) == rules


def test_all_clients_put_the_earliest_deadline_first(db: Redis, url: str) -> None:
    app = App()

    @app.task("typed", lane="x")
    def typed(number: int) -> None: ...

    async def enqueue(at: datetime) -> None:
        async with AsyncClient(url) as client:
            await client.enqueue("async", lane="x", task_id="second", deadline=at)

    now = datetime.now(UTC)
    with_client(url, "default", "x", order="deadline")
    with Client(url) as client:
        client.enqueue("sync", lane="x", task_id="last")
        client.enqueue("sync", lane="x", task_id="third", deadline=now + timedelta(hours=3))
        asyncio.run(enqueue(now + timedelta(hours=2)))
        client.enqueue(typed.task(1), task_id="first", deadline=now + timedelta(hours=1))
        client.enqueue("sync", lane="x", task_id="later", deadline=now + timedelta(hours=1), process_in=60)
    assert db.zrange(keys.group("default", "x"), 0, -1) == [b"first", b"second", b"third", b"last"]
    kept = [db.hget(keys.task("default", one), "priority") for one in ("first", "later", "last")]
    wanted = f"0:{int((now + timedelta(hours=1)).timestamp())}".encode()
    assert kept == [wanted, wanted, None]


@pytest.mark.parametrize("set_limit", [with_client, with_async_client, with_inline_client, with_async_inline_client])
@pytest.mark.parametrize(
    ("lane", "limit", "said"),
    [
        ("acme", {"rate": "5"}, "rate '5' is not a number of tasks in a time"),
        ("acme", {"concurrency": 0}, "concurrency must be at least 1, not 0"),
        ("acme", {"order": "first"}, "order must be strict, lifo or deadline, not 'first'"),
        ("acme", {"order": "strict"}, "order='strict' needs concurrency=1"),
        ("a*", {"concurrency": 1}, "'a*' is neither a lane"),
        (None, {"rate": "5/s"}, "a queue as a whole has a concurrency only"),
    ],
)
def test_a_wrong_limit_is_said_before_anything_is_written(
    db: Redis, url: str, set_limit: Any, lane: str | None, limit: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        set_limit(url, "emails", lane, **limit)
    assert db.keys("*") == []
