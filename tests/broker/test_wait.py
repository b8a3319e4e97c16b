"""Waiting for tasks: it ends with any push, moves nothing, and says what hinders it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio
from redis import Redis

from fastq import keys
from fastq.broker.aio import AsyncBroker
from fastq.broker.open import open_async_broker
from fastq.broker.wait import wait_for_tasks
from fastq.errors import BrokerAuthError, BrokerConnectionError, BrokerError
from tests.broker.harness import QUEUE, run, until
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.redis_servers import RedisServer, redis_server
from tests.waiting import PATIENCE_S

PENDING = keys.pending(QUEUE)


@asynccontextmanager
async def broker_at(url: str) -> AsyncIterator[AsyncBroker]:
    broker = open_async_broker(url)
    try:
        yield broker
    finally:
        await broker.close()


def waiting(broker: AsyncBroker, timeout_s: float = PATIENCE_S) -> "asyncio.Task[bool]":
    transport = broker.transport
    return asyncio.create_task(wait_for_tasks(transport.lender(PENDING), transport.where, QUEUE, timeout_s))


async def blocked(db: Redis, count: int = 1) -> None:
    """Wait until so many clients are blocked in Redis."""
    await until(lambda: db.info("clients")["blocked_clients"] == count)


PUSHES: dict[str, Callable[[Any], object]] = {
    "LPUSH": lambda db: db.lpush(PENDING, "a", "b"),
    "RPUSH": lambda db: db.rpush(PENDING, "b", "a"),
    "a script": lambda db: db.eval("redis.call('LPUSH', KEYS[1], 'a', 'b')", 1, PENDING),
    "RENAME": lambda db: (db.lpush("other", "a", "b"), db.rename("other", PENDING)),
    "MULTI": lambda db: db.pipeline(transaction=True).lpush(PENDING, "a").lpush(PENDING, "b").execute(),
}


@pytest.mark.parametrize("push", PUSHES)
def test_any_push_ends_the_wait_and_nothing_is_moved(push: str, db: Redis, url: str) -> None:
    async def test() -> None:
        async with broker_at(url) as broker:
            wait = waiting(broker)
            await blocked(db)
            PUSHES[push](db)
            assert await wait is True
            assert db.lrange(PENDING, 0, -1) == [b"b", b"a"]

    run(test)


def test_all_who_wait_are_woken_by_one_push(db: Redis, url: str) -> None:
    async def test() -> None:
        async with broker_at(url) as broker:
            waits = [waiting(broker) for _ in range(5)]
            await blocked(db, 5)
            db.lpush(PENDING, "a")
            assert await asyncio.gather(*waits) == [True] * 5

    run(test)


def test_a_wait_on_a_queue_that_has_tasks_ends_at_once(db: Redis, url: str) -> None:
    async def test() -> None:
        db.lpush(PENDING, "a")
        async with broker_at(url) as broker:
            assert await waiting(broker) is True

    run(test)


def test_a_wait_that_is_over_leaves_a_connection_that_is_in_step(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with broker_at(url) as broker:
            monkeypatch.setattr("fastq.broker.wait.ANSWER_WITHIN_S", PATIENCE_S)
            assert await waiting(broker, 0.01) is False
            assert await waiting(broker, 0.01) is False
            made: Any = db.info("stats")["total_connections_received"]
            assert await waiting(broker, 0.01) is False
            assert db.info("stats")["total_connections_received"] == made

    run(test)


def test_a_cancelled_wait_gives_up_its_connection(db: Redis, url: str) -> None:
    async def test() -> None:
        async with broker_at(url) as broker:
            wait = waiting(broker)
            await blocked(db)
            wait.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wait
            await blocked(db, 0)
            assert await waiting(broker, 0.01) is False

    run(test)


def test_a_redis_that_forbids_it_says_so(shared_server: RedisServer, db: Redis) -> None:
    admin: Any = db
    admin.acl_setuser("w", enabled=True, passwords=["+p"], categories=["+@all"], commands=["-blmove"], keys=["*"])

    async def test() -> None:
        url = f"unix://w:p@{shared_server.socket_path}"
        async with broker_at(url) as broker:
            with pytest.raises(BrokerAuthError, match="BLMOVE"):
                await waiting(broker)

    try:
        run(test)
    finally:
        admin.acl_deluser("w")


def test_a_key_that_is_no_list_is_an_error_that_does_not_pass(db: Redis, url: str) -> None:
    async def test() -> None:
        db.set(PENDING, "x")
        async with broker_at(url) as broker:
            with pytest.raises(BrokerError, match="BLMOVE") as raised:
                await waiting(broker)
            assert not raised.value.transient

    run(test)


def test_a_replica_made_of_the_server_ends_the_wait_with_an_error_that_may_pass(url: str) -> None:
    async def test() -> None:
        with redis_server() as server, server.client() as db:
            async with broker_at(server.url) as broker:
                wait = waiting(broker)
                await blocked(db)
                db.replicaof("127.0.0.1", "1")
                with pytest.raises(BrokerError) as raised:
                    await wait
                assert raised.value.transient

    run(test)


def test_a_connection_that_is_cut_is_an_error_that_may_pass(db: Redis, shared_server: RedisServer) -> None:
    async def test() -> None:
        with faulty_proxy(shared_server.socket_path) as proxy:
            async with broker_at(proxy.url) as broker:
                wait = waiting(broker)
                await blocked(db)
                proxy.vanish()
                with pytest.raises(BrokerConnectionError):
                    await wait
                with pytest.raises(BrokerConnectionError, match="cannot reach Redis"):
                    await waiting(broker)

    run(test)


def test_a_redis_that_says_nothing_is_given_up(
    db: Redis, shared_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.broker.wait.ANSWER_WITHIN_S", 0.02)

    async def test() -> None:
        silence = Fault("BLMOVE", Act.SWALLOW)
        with faulty_proxy(shared_server.socket_path, silence) as proxy:
            async with broker_at(proxy.url) as broker:
                assert await waiting(broker, 0.01) is False
                await until(lambda: silence.times == 0)  # else it might meet the next one
                # The late reply must not be taken for the next one's.
                db.lpush(PENDING, "a")
                assert await waiting(broker) is True
                assert proxy.connections == 2

    run(test)


def test_a_client_given_by_the_user_is_used(db: Redis, shared_server: RedisServer) -> None:
    async def test() -> None:
        async with redis.asyncio.Redis(unix_socket_path=shared_server.socket_path) as client:
            broker = open_async_broker(client)
            db.lpush(PENDING, "a")
            assert await waiting(broker) is True

    run(test)
