"""A subscription: it tells when it is there, brings each message, and notices a connection that died."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from redis import Redis

from fastq.broker.transport.open import open_async_broker
from fastq.broker.transport.subscription import ChannelMessage, listen
from fastq.errors import BrokerAuthError, BrokerConnectionError, BrokerError
from tests.broker.harness import run, until
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.redis_servers import RedisServer
from tests.waiting import PATIENCE_S

CHANNEL = "asynq:cancel"
ANOTHER = "another"


@asynccontextmanager
async def subscribed(url: str, *channels: str) -> AsyncIterator[AsyncIterator[ChannelMessage | None]]:
    broker = open_async_broker(url)
    try:
        transport = broker.transport
        async with aclosing(listen(transport.lender(), transport.where, *(channels or (CHANNEL,)))) as messages:  # type: ignore[type-var]  # a generator, though typed as an iterator
            yield messages
    finally:
        await broker.close()


def test_it_tells_when_it_is_subscribed_and_brings_each_message(db: Redis, url: str) -> None:
    async def test() -> None:
        async with subscribed(url) as messages:
            assert await anext(messages) is None
            db.publish(CHANNEL, "id-1")
            db.publish("other", "id-2")
            db.publish(CHANNEL, "ü")
            db.publish(CHANNEL, b"\xff")
            db.publish(CHANNEL, b"")
            texts = ["id-1", "ü", "\N{REPLACEMENT CHARACTER}", ""]
            assert [await anext(messages) for _ in texts] == [ChannelMessage(CHANNEL, text) for text in texts]

    run(test)


def test_messages_of_several_channels_come_in_their_order_once_all_are_there(db: Redis, url: str) -> None:
    async def test() -> None:
        async with subscribed(url, CHANNEL, ANOTHER) as messages:
            assert await anext(messages) is None
            assert [count for _, count in db.pubsub_numsub(CHANNEL, ANOTHER)] == [1, 1]
            for number in range(10):
                db.publish((CHANNEL, ANOTHER)[number % 2], str(number))
            heard = [await anext(messages) for _ in range(10)]
            assert heard == [ChannelMessage((CHANNEL, ANOTHER)[number % 2], str(number)) for number in range(10)]

    run(test)


def test_leaving_ends_the_subscription(db: Redis, url: str) -> None:
    async def test() -> None:
        async with subscribed(url) as messages:
            assert await anext(messages) is None
            assert db.pubsub_numsub(CHANNEL) == [(CHANNEL.encode(), 1)]
        await until(lambda: db.pubsub_numsub(CHANNEL) == [(CHANNEL.encode(), 0)])

    run(test)


def pings(db: Redis) -> int:
    stats: Any = db.info("commandstats")
    return int(stats.get("cmdstat_ping", {"calls": 0})["calls"])


def test_an_idle_connection_is_asked_for_a_sign_of_life(
    db: Redis, shared_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.broker.transport.subscription.PING_EVERY_S", 0.01)
    monkeypatch.setattr("fastq.broker.transport.subscription.ANSWER_WITHIN_S", PATIENCE_S)

    async def test() -> None:
        async with subscribed(shared_server.url) as messages:
            assert await anext(messages) is None
            before = pings(db)
            following = asyncio.ensure_future(anext(messages))
            await until(lambda: pings(db) >= before + 3)
            db.publish(CHANNEL, "id-1")
            assert await following == ChannelMessage(CHANNEL, "id-1")

    run(test)


def test_a_connection_that_died_silently_is_noticed(
    db: Redis, shared_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        with faulty_proxy(shared_server.socket_path, Fault("PING", Act.SWALLOW, times=None)) as proxy:
            async with subscribed(proxy.url) as messages:
                assert await anext(messages) is None
                monkeypatch.setattr("fastq.broker.transport.subscription.PING_EVERY_S", 0.05)
                monkeypatch.setattr("fastq.broker.transport.subscription.ANSWER_WITHIN_S", 0.5)
                with pytest.raises(BrokerError, match="did not answer in time"):
                    await anext(messages)

    run(test)


def test_a_connection_that_is_cut_is_an_error_that_may_pass(db: Redis, shared_server: RedisServer) -> None:
    async def test() -> None:
        with faulty_proxy(shared_server.socket_path) as proxy:
            async with subscribed(proxy.url) as messages:
                assert await anext(messages) is None
                proxy.vanish()
                with pytest.raises(BrokerConnectionError):
                    await anext(messages)
            async with subscribed(proxy.url) as messages:
                with pytest.raises(BrokerConnectionError, match="cannot reach Redis"):
                    await anext(messages)

    run(test)


def test_a_channel_that_is_forbidden_is_an_error_that_says_so(db: Redis, shared_server: RedisServer) -> None:
    admin: Any = db
    admin.acl_setuser("s", enabled=True, passwords=["+p"], categories=["+@all"], keys=["*"], reset_channels=True)

    async def test() -> None:
        async with subscribed(f"unix://s:p@{shared_server.socket_path}") as messages:
            with pytest.raises(BrokerAuthError, match="SUBSCRIBE"):
                await anext(messages)

    try:
        run(test)
    finally:
        admin.acl_deluser("s")
