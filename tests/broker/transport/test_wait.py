"""Waiting for tasks: it ends with any push, moves nothing, and says what hinders it."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import redis.asyncio
from redis import Redis

from fastq.broker.operations.health import ping
from fastq.broker.transport.open import open_async_broker
from fastq.broker.transport.wait import TaskWatch
from fastq.errors import BrokerAuthError, BrokerConnectionError, BrokerError
from fastq.wire import keys
from tests.broker.harness import QUEUE, run, until
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.redis_servers import RedisServer, redis_server
from tests.sentinel_site import sentinel_site
from tests.waiting import PATIENCE_S, after

PENDING = keys.pending(QUEUE)


@pytest.fixture(scope="module")
def shared_server() -> Iterator[RedisServer]:
    """Run one that only this module's tests use: its connections are counted here."""
    with redis_server() as server:
        yield server


@asynccontextmanager
async def watch_at(url: Any) -> AsyncIterator[TaskWatch]:
    broker = open_async_broker(url)
    watch = TaskWatch(broker.transport)
    try:
        yield watch
    finally:
        await watch.close()
        await broker.close()


def waiting(watch: TaskWatch, queue: str = QUEUE, timeout_s: float = PATIENCE_S) -> "asyncio.Task[bool]":
    return asyncio.create_task(watch.wait(queue, timeout_s))


async def watched(watch: TaskWatch, *queues: str) -> None:
    """Wait until the watch knows that Redis will tell of these queues."""
    wanted = {keys.pending(queue).encode() for queue in queues or (QUEUE,)}
    await until(lambda: wanted <= {key for line in watch._lines.values() for key in line._watched})


def stat(db: Redis, section: str, name: str) -> Any:
    return db.info(section)[name]


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
        async with watch_at(url) as watch:
            wait = waiting(watch)
            await watched(watch)
            PUSHES[push](db)
            assert await wait is True
            assert db.lrange(PENDING, 0, -1) == [b"b", b"a"]

    run(test)


def test_who_waits_is_told_before_the_wait_has_returned(db: Redis, url: str) -> None:
    async def test() -> None:
        was_done: list[bool] = []
        async with watch_at(url) as watch:
            wait = asyncio.create_task(watch.wait(QUEUE, PATIENCE_S, lambda: was_done.append(wait.done())))
            await watched(watch)
            db.lpush(PENDING, "a")
            assert await wait is True
        assert was_done == [False]

    run(test)


def test_all_who_wait_are_woken_by_one_push(db: Redis, url: str) -> None:
    async def test() -> None:
        async with watch_at(url) as first, watch_at(url) as second:
            waits = [waiting(first), waiting(second)]
            await watched(first)
            await watched(second)
            db.lpush(PENDING, "a")
            assert await asyncio.gather(*waits) == [True, True]

    run(test)


def test_many_queues_are_waited_for_on_one_connection_and_one_push_wakes_one(db: Redis, url: str) -> None:
    queues = [f"q{number}" for number in range(200)]

    async def test() -> None:
        async with watch_at(url) as watch:
            made = stat(db, "stats", "total_connections_received")
            waits = {queue: waiting(watch, queue) for queue in queues}
            await watched(watch, *queues)
            assert stat(db, "stats", "total_connections_received") == made + 1
            db.lpush(keys.pending("q150"), "a")
            assert await waits.pop("q150") is True
            again = waiting(watch, "q150")
            await until(again.done)
            assert again.result() is True, "it has tasks"
            assert not any(wait.done() for wait in waits.values())

    run(test)


def test_a_database_that_is_emptied_wakes_all(db: Redis, url: str) -> None:
    async def test() -> None:
        async with watch_at(url) as watch:
            waits = [waiting(watch, queue) for queue in ("q1", "q2")]
            await watched(watch, "q1", "q2")
            db.flushall()
            assert await asyncio.gather(*waits) == [True, True]

    run(test)


def test_a_wait_on_a_queue_that_has_tasks_ends_at_once(db: Redis, url: str) -> None:
    async def test() -> None:
        db.lpush(PENDING, "a")
        async with watch_at(url) as watch:
            assert await waiting(watch) is True

    run(test)


def test_a_wait_whose_time_is_up_leaves_the_connection_to_the_next(db: Redis, url: str) -> None:
    async def test() -> None:
        async with watch_at(url) as watch:
            assert await waiting(watch, timeout_s=0.01) is False
            await until(lambda: stat(db, "clients", "tracking_clients") == 1)  # it may be connected after that
            made = stat(db, "stats", "total_connections_received")
            assert await waiting(watch, timeout_s=0.01) is False
            wait = waiting(watch)
            await watched(watch)
            db.lpush(PENDING, "a")
            assert await wait is True
            assert stat(db, "stats", "total_connections_received") == made

    run(test)


def test_a_message_of_an_earlier_look_does_not_end_the_next_wait(db: Redis, url: str) -> None:
    """The look found a task; that it is gone by now is what Redis tells."""

    async def test() -> None:
        async with watch_at(url) as watch:
            for _ in range(30):
                db.lpush(PENDING, "a")
                assert await waiting(watch) is True
                db.delete(PENDING)  # the message is on its way, or here and not read yet
                wait = waiting(watch)
                await watched(watch)
                assert not wait.done()
                db.lpush(PENDING, "a")
                assert await wait is True

    run(test)


def test_a_cancelled_wait_leaves_the_others_alone(db: Redis, url: str) -> None:
    async def test() -> None:
        async with watch_at(url) as watch:
            wait, other = waiting(watch), waiting(watch, "other")
            await watched(watch, QUEUE, "other")
            wait.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wait
            db.lpush(PENDING, "a")
            db.lpush(keys.pending("other"), "a")
            assert await other is True

    run(test)


@pytest.mark.parametrize("turns", range(0, 40, 4))
def test_a_watch_that_is_closed_ends_its_waits_and_connections(turns: int, db: Redis, url: str) -> None:
    async def test() -> None:
        async with watch_at(url) as watch:
            wait = waiting(watch)
            for _ in range(turns):
                await asyncio.sleep(0)
            await watch.close()
            if watch._lines:
                assert await wait is False
            wait.cancel()
        await until(lambda: stat(db, "clients", "tracking_clients") == 0)

    run(test)


def test_a_watch_that_is_dropped_twice_gives_its_connection_back(db: Redis, url: str) -> None:
    async def test() -> None:
        async with watch_at(url) as watch:
            wait = waiting(watch)
            await watched(watch)
            (line,) = watch._lines.values()
            lent = cast("Any", line._pool)._in_use_connections
            assert len(lent) == 1
            for _ in range(3):
                watch.renew()
                await asyncio.sleep(0)
            assert await wait is False
            await asyncio.wait({line._task})
            assert not lent

    run(test)


def test_a_watch_that_is_dropped_while_it_asks_leaves_no_error_behind(db: Redis, url: str) -> None:
    async def drop() -> None:
        async with watch_at(url) as watch:
            waits = [waiting(watch)]
            await watched(watch)
            waits.append(waiting(watch, "other"))
            asyncio.get_running_loop().call_soon(watch.renew)  # right after the other wait has made its request
            assert await asyncio.gather(*waits) == [False, False]

    async def test() -> None:
        faults: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        await drop()
        gc.collect()  # tells of errors that nobody has taken
        assert faults == []

    run(test)


@pytest.mark.parametrize("command", ["client", "exists"])
def test_a_redis_that_forbids_it_says_so(command: str, shared_server: RedisServer, db: Redis) -> None:
    admin: Any = db
    admin.acl_setuser("w", enabled=True, passwords=["+p"], categories=["+@all"], commands=[f"-{command}"], keys=["*"])

    async def test() -> None:
        async with watch_at(f"unix://w:p@{shared_server.socket_path}") as watch:
            for _ in range(2):
                with pytest.raises(BrokerAuthError, match=r"TRACKING|EXISTS"):
                    await waiting(watch)

    try:
        run(test)
    finally:
        admin.acl_deluser("w")


def test_few_rights_are_enough_and_an_error_of_one_queue_is_its_own(db: Redis, shared_server: RedisServer) -> None:
    admin: Any = db
    rights = {"categories": ["+@connection"], "commands": ["+exists"], "keys": [PENDING], "reset_channels": True}
    admin.acl_setuser("w", enabled=True, passwords=["+p"], **rights)

    async def test() -> None:
        async with watch_at(f"unix://w:p@{shared_server.socket_path}") as watch:
            wait = waiting(watch)
            await watched(watch)
            with pytest.raises(BrokerAuthError, match="EXISTS"):
                await waiting(watch, "other")
            db.lpush(PENDING, "a")
            assert await wait is True

    try:
        run(test)
    finally:
        admin.acl_deluser("w")


def test_a_connection_that_is_cut_is_an_error_that_may_pass(db: Redis, shared_server: RedisServer) -> None:
    async def test() -> None:
        with faulty_proxy(shared_server.socket_path) as proxy:
            async with watch_at(proxy.url) as watch:
                waits = [waiting(watch), waiting(watch, "other")]
                await watched(watch, QUEUE, "other")
                proxy.vanish()
                for wait in waits:
                    with pytest.raises(BrokerConnectionError):
                        await wait
                with pytest.raises(BrokerConnectionError, match="cannot reach Redis"):
                    await waiting(watch)

    run(test)


@pytest.mark.parametrize("data", [b":1\r\n", b"what\r\n", b"-ERR why\r\n"])
def test_what_is_no_answer_and_no_message_ends_the_connection(data: bytes, db: Redis, url: str) -> None:
    async def test() -> None:
        async with watch_at(url) as watch:
            wait = waiting(watch)
            await watched(watch)
            (line,) = watch._lines.values()
            assert line._ear is not None
            line._ear.data_received(data)
            with pytest.raises(BrokerError):
                await wait
            wait = waiting(watch)
            await watched(watch)
            db.lpush(PENDING, "a")
            assert await wait is True

    run(test)


def test_a_redis_that_says_nothing_is_given_up(
    db: Redis, shared_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.broker.transport.wait.PING_EVERY_S", 0.02)

    async def test() -> None:
        with faulty_proxy(shared_server.socket_path, Fault("EXISTS", Act.SWALLOW)) as proxy:
            async with watch_at(proxy.url) as watch:
                wait = waiting(watch)
                await until(lambda: "EXISTS" in proxy.names_seen())
                with monkeypatch.context() as patch:
                    patch.setattr("fastq.broker.transport.wait.ANSWER_WITHIN_S", 0.02)
                    with pytest.raises(BrokerError) as raised:
                        await wait
                assert raised.value.transient
                db.lpush(PENDING, "a")
                assert await waiting(watch) is True
                assert proxy.connections == 2

    run(test)


def test_a_redis_that_does_not_answer_its_first_words_is_given_up(
    db: Redis, shared_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.broker.transport.wait.ANSWER_WITHIN_S", 0.02)

    async def test() -> None:
        with faulty_proxy(shared_server.socket_path, Fault("HELLO", Act.SWALLOW)) as proxy:
            async with watch_at(proxy.url) as watch:
                with pytest.raises(BrokerError, match="no answer to HELLO"):
                    await waiting(watch)
                assert "EXISTS" not in proxy.names_seen()

    run(test)


def test_its_first_words_may_be_answered_later_than_it_asks_an_idle_connection(
    db: Redis, shared_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.broker.transport.wait.PING_EVERY_S", 0.01)
    late = Fault("HELLO", Act.DELAY)

    async def test() -> None:
        with faulty_proxy(shared_server.socket_path, late) as proxy:
            async with watch_at(proxy.url) as watch:
                wait = waiting(watch)
                await until(lambda: late.times == 0)
                await until(after(0.05))
                assert not wait.done()
                late.until.set()
                await watched(watch)
                db.lpush(PENDING, "a")
                assert await wait is True

    run(test)


def test_a_silent_connection_is_asked_whether_it_lives(
    db: Redis, shared_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.broker.transport.wait.PING_EVERY_S", 0.02)

    async def test() -> None:
        with faulty_proxy(shared_server.socket_path) as proxy:
            async with watch_at(proxy.url) as watch:
                wait = waiting(watch)
                await until(lambda: proxy.names_seen().count("PING") >= 3)
                proxy.faults.append(Fault("PING", Act.CUT_BEFORE_REPLY))
                with pytest.raises(BrokerConnectionError):
                    await wait

    run(test)


def test_it_goes_on_at_the_master_that_the_sentinels_name_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.broker.transport.wait.PING_EVERY_S", 0.01)

    async def test() -> None:
        with sentinel_site() as site, site.new.client() as new:
            broker = open_async_broker(site.url)
            watch = TaskWatch(broker.transport)
            wait = waiting(watch)
            await watched(watch)
            site.replace()
            while not wait.done():
                try:
                    await broker.run(ping())  # as others in the server do; the pool asks the sentinels meanwhile
                except BrokerConnectionError:
                    continue
            assert await wait is False
            wait = waiting(watch)
            await watched(watch)
            new.lpush(PENDING, "a")
            assert await wait is True
            await watch.close()
            await broker.close()

    run(test)


def test_a_client_given_by_the_user_is_used_and_given_back(db: Redis, shared_server: RedisServer) -> None:
    async def test() -> None:
        async with redis.asyncio.Redis(unix_socket_path=shared_server.socket_path) as client:
            async with watch_at(client) as watch:
                db.lpush(PENDING, "a")
                assert await waiting(watch) is True
            db.hset("h", "field", "value")
            assert await client.hgetall("h") == {b"field": b"value"}

    run(test)


def test_a_connection_that_was_given_up_ends_though_its_cancellation_was_swallowed(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would wait on, unknown to the watch, that closes what it knows."""
    monkeypatch.setattr("fastq.broker.transport.wait.PING_EVERY_S", 0.01)

    async def test() -> None:
        async with watch_at(url) as watch:
            wait = waiting(watch)
            await watched(watch)
            (line,) = watch._lines.values()
            line._end(None)  # as end() does, but for the cancellation
            assert await wait is False
            await until(line._task.done)

    run(test)
