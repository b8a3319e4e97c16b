"""A master that the sentinels have replaced, but that still takes writes: once that is known, it gets no more."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, closing, contextmanager, suppress
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError

from fastq import AsyncClient, Client
from fastq.broker.operations.health import ping
from fastq.broker.transport.aio import AsyncBroker, AsyncNodeTransport
from fastq.broker.transport.blocking import BlockingBroker, NodeTransport
from fastq.broker.transport.connection import connect, connect_async
from fastq.broker.transport.exchange import ATTEMPTS, Command
from fastq.broker.transport.open import open_async_broker
from fastq.broker.transport.sentinel import Known, Search, SentinelSchedule
from fastq.broker.transport.subscription import listen
from fastq.errors import BrokerConnectionError, BrokerError, BrokerTimeoutError
from tests.broker.harness import run, until
from tests.manual_clock import ManualClock
from tests.ports import free_port
from tests.redis_servers import redis_server, sentinel_server
from tests.sentinel_site import Failover, SentinelSite, failover_held_open, sentinel_site
from tests.waiting import wait_until

WRITERS = 4


@pytest.fixture(scope="module")
def shared_site() -> Iterator[SentinelSite]:
    with sentinel_site() as site:
        yield site


@pytest.fixture
def site(shared_site: SentinelSite) -> SentinelSite:
    shared_site.restore()
    return shared_site


def pool_of(client: Any) -> Any:
    return client.connection_pool


# Whom the sentinels name ----------------------------------------------------------------------------------------------


@pytest.fixture
def failing_over() -> Iterator[Failover]:
    with failover_held_open() as failover:
        yield failover


def test_the_new_master_is_known_while_the_failover_still_goes_on(failing_over: Failover) -> None:
    """What is written to the old one is lost, and redis-py's own question names it until the end."""
    with Redis(port=failing_over.sentinel_port) as sentinel, connect(failing_over.url) as client:
        assert sentinel.sentinel_masters()["mymaster"]["port"] == failing_over.old.port
        assert pool_of(client).get_connection().port == failing_over.new.port
        assert sentinel.sentinel_masters()["mymaster"]["port"] == failing_over.old.port

    async def test() -> None:
        async with connect_async(failing_over.url) as client:
            assert (await pool_of(client).get_connection()).port == failing_over.new.port

    run(test)


def test_a_master_that_the_sentinel_takes_for_dead_is_not_asked() -> None:
    with redis_server(free_port()) as master, sentinel_server(master.port) as port, Redis(port=port) as sentinel:
        url = f"redis-sentinel://127.0.0.1:{port}?master=mymaster"
        sentinel.sentinel_set("mymaster", "down-after-milliseconds", 1)
        master.stop()
        wait_until(lambda: sentinel.sentinel_master("mymaster")["is_sdown"])
        text = rf"^No master found for 'mymaster': 127\.0\.0\.1:{port}: takes 127\.0\.0\.1:{master.port} for down$"
        with connect(url) as client, pytest.raises(RedisConnectionError, match=text):
            client.ping()


def test_the_next_sentinel_is_asked_and_is_the_first_one_asked_later(site: SentinelSite) -> None:
    async def first_of_asyncio(url: str) -> Any:
        async with connect_async(url) as client:
            await client.ping()
            return pool_of(client).sentinel_manager.known.first.connection_pool.connection_kwargs["port"]

    with redis_server(free_port()) as other, sentinel_server(other.port) as port, Redis(port=port) as sentinel:
        sentinel.sentinel_remove("mymaster")  # it answers, and knows no such master
        hosts = ",".join(f"127.0.0.1:{each}" for each in (free_port(), port, site.sentinel_port))
        url = f"redis-sentinel://{hosts}?master=mymaster"
        with connect(url) as client:
            assert client.ping()
            first = pool_of(client).sentinel_manager.known.first
            assert first.connection_pool.connection_kwargs["port"] == site.sentinel_port
        assert asyncio.run(first_of_asyncio(url)) == site.sentinel_port


@contextmanager
def silent_sentinels(count: int) -> Iterator[list[socket.socket]]:
    """Listen, and never answer."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]


def searches_seen(sentinel: socket.socket) -> int:
    """Return how many connections wait to be accepted."""
    sentinel.setblocking(False)
    seen = 0
    with suppress(BlockingIOError):
        while True:
            sentinel.accept()[0].close()
            seen += 1
    return seen


def error_of_ping(url: str, way: str) -> BrokerError:
    if way == "blocking":
        with connect(url, read_timeout_s=0.05) as client, pytest.raises(BrokerError) as caught:
            BlockingBroker(NodeTransport(pool_of(client))).run(ping())
        return caught.value

    async def ask() -> BrokerError:
        async with connect_async(url, read_timeout_s=0.05) as client:
            with pytest.raises(BrokerError) as caught:
                await AsyncBroker(AsyncNodeTransport(pool_of(client))).run(ping())
            return caught.value

    return asyncio.run(ask())


@pytest.mark.parametrize("way", ["blocking", "asyncio"])
def test_sentinels_that_are_all_silent_are_a_timeout_that_is_not_tried_again(way: str) -> None:
    with silent_sentinels(2) as sentinels:
        places = [f"127.0.0.1:{sentinel.getsockname()[1]}" for sentinel in sentinels]
        away = f"127.0.0.1:{free_port()}"
        error = error_of_ping(f"redis-sentinel://{','.join([away, *places])}?master=mymaster", way)
        assert type(error) is BrokerTimeoutError
        assert all(place in str(error) for place in (away, *places)), error
        assert str(error).count("Timeout reading from") == 2
        # The look before a connection is lent, and the connection itself; a second try would make it three.
        assert [searches_seen(sentinel) for sentinel in sentinels] == [2, 2]


@pytest.mark.parametrize("way", ["blocking", "asyncio"])
def test_a_sentinel_that_answers_beside_a_silent_one_is_asked_again(way: str) -> None:
    """So it is while a failover goes on whose old master took a sentinel along."""
    with silent_sentinels(1) as (silent,), redis_server(free_port()) as other, sentinel_server(other.port) as port:
        hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{port}"
        errors: list[BrokerError] = []

        def is_answered() -> bool:
            """Ask once more where the other one was late as well: machines stand still for longer than its limit."""
            searches_seen(silent)
            errors.append(error_of_ping(f"redis-sentinel://{hosts}?master=unknown", way))
            return f"127.0.0.1:{port}: knows no such master" in str(errors[-1])

        wait_until(is_answered)
        assert type(errors[-1]) is BrokerConnectionError
        assert ATTEMPTS < searches_seen(silent) <= 2 * ATTEMPTS  # two more or so where the other one was late at first


# Which answer is the latest ------------------------------------------------------------------------------------------

OLD, NEW = ("127.0.0.1", 1), ("127.0.0.1", 2)


def answers(address: tuple[str, int], epoch: int) -> tuple[Any, Any]:
    state = {"ip": address[0], "port": address[1], "is_sdown": False, "is_odown": False, "config-epoch": epoch}
    return state, [address[0].encode(), str(address[1]).encode()]


def heard(known: Known, *said: tuple[tuple[str, int], int], of: int = 3) -> tuple[str, int] | None:
    """Search among so many sentinels, of which the first ones answer."""
    search = Search("mymaster", known)
    for each in said:
        if search.take(object(), answers(*each)):
            break
    search.end(of)
    return known.address


def test_a_sentinel_that_has_not_heard_of_the_failover_is_not_believed() -> None:
    known = Known()
    assert heard(known, (OLD, 4)) == OLD
    assert heard(known, (NEW, 5)) == NEW
    assert heard(known, (OLD, 4), (NEW, 5)) == NEW, "the next one is asked"
    assert heard(known, (OLD, 4)) == NEW, "the others are out of reach"


def test_most_sentinels_are_believed_although_they_began_anew() -> None:
    known = Known()
    assert heard(known, (NEW, 5)) == NEW
    assert heard(known, (OLD, 0), (OLD, 0)) == OLD
    assert heard(known, (NEW, 1), of=1) == NEW
    assert heard(known, (OLD, 0), of=1) == OLD


def test_one_sentinel_that_began_anew_is_believed_once_the_master_is_none_any_more() -> None:
    known = Known()
    assert heard(known, (NEW, 5)) == NEW
    known.saw(OLD, is_gone=True)
    assert heard(known, (OLD, 0)) == NEW, "that is another one"
    known.saw(NEW, is_gone=True)
    known.saw(NEW, is_gone=False)
    assert heard(known, (OLD, 0)) == NEW, "it is there again"
    known.saw(NEW, is_gone=True)
    assert heard(known, (OLD, 0), (NEW, 5)) == NEW, "another sentinel knows a later one"
    assert heard(known, (OLD, 0)) == NEW, "and has named it again"
    known.saw(NEW, is_gone=True)
    assert heard(known, (OLD, 0)) == OLD


def test_an_answer_that_took_long_does_not_replace_a_later_one() -> None:
    known = Known()
    assert heard(known, (OLD, 4)) == OLD
    slow = Search("mymaster", known)
    assert heard(known, (NEW, 5)) == NEW
    assert not slow.take(object(), answers(OLD, 4))
    assert not slow.take(object(), answers(OLD, 4))
    assert not slow.end(2)
    assert known.address == NEW


# A connection that was made tells the pool ----------------------------------------------------------------------------


def test_a_connection_that_was_in_use_meanwhile_is_closed_when_it_is_lent_next(site: SentinelSite) -> None:
    with connect(site.url) as client:
        pool = pool_of(client)
        in_use = pool.get_connection()
        site.replace()
        made = pool.get_connection()
        assert (in_use.port, made.port) == (site.old.port, site.new.port)
        pool.release(made)
        pool.release(in_use)
        assert {pool.get_connection().port for _ in range(2)} == {site.new.port}
        wait_until(lambda: not site.connections_to_old())


def test_an_asyncio_connection_that_was_in_use_meanwhile_is_closed_when_it_is_lent_next(site: SentinelSite) -> None:
    async def test() -> None:
        async with connect_async(site.url) as client:
            pool = pool_of(client)
            in_use = await pool.get_connection()
            site.replace()
            made = await pool.get_connection()
            assert (in_use.port, made.port) == (site.old.port, site.new.port)
            await pool.release(made)
            await pool.release(in_use)
            assert {(await pool.get_connection()).port for _ in range(2)} == {site.new.port}
            await until(lambda: not site.connections_to_old())

    run(test)


def test_a_connection_that_was_being_made_meanwhile_is_not_lent(site: SentinelSite) -> None:
    with connect(site.url) as client:
        pool = pool_of(client)
        introduce = pool.connection_kwargs["redis_connect_func"]

        def introduce_and_learn(connection: Any) -> None:
            introduce(connection)
            if connection.port == site.old.port:
                site.replace()
                pool.get_master_address()  # as another thread does that connects just now

        pool.connection_kwargs["redis_connect_func"] = introduce_and_learn
        assert pool.get_connection().port == site.new.port
        wait_until(lambda: not site.connections_to_old())


def test_an_asyncio_connection_that_was_being_made_meanwhile_is_not_lent(site: SentinelSite) -> None:
    async def test() -> None:
        async with connect_async(site.url) as client:
            pool = pool_of(client)
            introduce = pool.connection_kwargs["redis_connect_func"]

            async def introduce_and_learn(connection: Any) -> None:
                await introduce(connection)
                if connection.port == site.old.port:
                    site.replace()
                    await pool.get_master_address()

            pool.connection_kwargs["redis_connect_func"] = introduce_and_learn
            assert (await pool.get_connection()).port == site.new.port
            await until(lambda: not site.connections_to_old())

    run(test)


def test_a_blocking_connection_that_fails_to_follow_goes_back_to_the_pool(site: SentinelSite) -> None:
    with connect(site.url) as client:
        pool = pool_of(client)
        introduce = pool.connection_kwargs["redis_connect_func"]

        def introduce_once(connection: Any) -> None:
            if connection.port == site.new.port:
                raise RedisConnectionError("no entry")
            introduce(connection)
            site.replace()
            pool.get_master_address()

        pool.connection_kwargs["redis_connect_func"] = introduce_once
        with pytest.raises(RedisConnectionError, match="no entry"):
            pool.get_connection()
        assert not pool._in_use_connections


def test_a_connection_kept_between_calls_is_given_up(site: SentinelSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.broker.transport.blocking.TRUSTED_S", 3600.0)
    with connect(site.url) as client, closing(NodeTransport(pool_of(client), keep=True)) as transport:
        pool = pool_of(client)
        assert transport.send([Command(("SET", "before", "1"), None)]).replies() == [b"OK"]
        site.replace()
        pool.get_master_address()  # as another thread does that connects
        assert transport.send([Command(("SET", "after", "1"), None)]).replies() == [b"OK"]
        with site.old.client() as old, site.new.client() as new:
            assert (old.keys(), new.keys()) == ([b"before"], [b"after"])
        wait_until(lambda: not site.connections_to_old())


# So does a refused write ----------------------------------------------------------------------------------------------


def test_one_refused_write_is_enough_for_all_connections(site: SentinelSite) -> None:
    with connect(site.url) as client:
        pool = pool_of(client)
        refused, other = pool.get_connection(), pool.get_connection()
        site.demote()
        refused.send_command("SET", "key", "1")
        with pytest.raises(ReadOnlyError):
            refused.read_response()
        pool.release(refused)
        assert pool.get_connection().port == site.new.port
        pool.release(other)
        assert pool.get_connection().port == site.new.port


def test_one_refused_write_is_enough_for_all_asyncio_connections(site: SentinelSite) -> None:
    async def test() -> None:
        async with connect_async(site.url) as client:
            pool = pool_of(client)
            refused, other = await pool.get_connection(), await pool.get_connection()
            site.demote()
            await refused.send_command("SET", "key", "1")
            with pytest.raises(ReadOnlyError):
                await refused.read_response()
            await pool.release(refused)
            assert (await pool.get_connection()).port == site.new.port
            await pool.release(other)
            assert (await pool.get_connection()).port == site.new.port

    run(test)


# Sentinels that were set up anew, of which one answers ----------------------------------------------------------------


def url_with_sentinels_that_are_gone(site: SentinelSite) -> str:
    hosts = ",".join(f"127.0.0.1:{port}" for port in (free_port(), site.sentinel_port, free_port()))
    return f"redis-sentinel://{hosts}?master=mymaster"


@contextmanager
def replaced_as(how: str, site: SentinelSite) -> Iterator[None]:
    """Set the sentinel up anew with another master, whose epoch is lower than that of the one before."""
    if how == "a replica":
        site.demote()
        yield
        return
    site.replace()
    with site.old.client() as old:
        port = old.config_get("port")["port"]
        old.config_set("port", 0)
        old.execute_command("CLIENT", "KILL", "TYPE", "normal")
        yield
    with Redis(unix_socket_path=site.old.socket_path) as old:
        old.config_set("port", port)


@pytest.mark.parametrize("how", ["a replica", "out of reach"])
def test_a_client_follows_a_sentinel_that_was_set_up_anew(how: str, site: SentinelSite) -> None:
    with Client(url_with_sentinels_that_are_gone(site)) as client:
        client.enqueue("t")
        pool: Any = client._broker.transport.lender()
        pool.sentinel_manager.known.epoch = 5

        def is_enqueued() -> bool:
            with suppress(BrokerError):
                client.enqueue("t", task_id="after")
                return True
            return False

        with replaced_as(how, site), site.new.client() as new:
            wait_until(is_enqueued)
            assert new.exists("asynq:{default}:t:after")


@pytest.mark.parametrize("how", ["a replica", "out of reach"])
def test_an_asyncio_client_follows_a_sentinel_that_was_set_up_anew(how: str, site: SentinelSite) -> None:
    async def test() -> None:
        async with AsyncClient(url_with_sentinels_that_are_gone(site)) as client:
            await client.enqueue("t")
            pool: Any = client._broker.transport.lender()
            pool.sentinel_manager.known.epoch = 5
            with replaced_as(how, site), site.new.client() as new:
                while not new.exists("asynq:{default}:t:after"):
                    with suppress(BrokerError):
                        await client.enqueue("t", task_id="after")

    run(test)


# Under constant load --------------------------------------------------------------------------------------------------


def test_writers_that_never_rest_all_leave_the_old_master(site: SentinelSite) -> None:
    """No connection breaks or is missing here, and none is ever idle for long: the pool must ask by itself."""

    async def test() -> None:
        rounds = [0] * WRITERS
        is_over = asyncio.Event()

        async def write(number: int) -> None:
            while not is_over.is_set():  # not cancelled: redis-py may swallow it
                with suppress(RedisConnectionError):  # the sentinel knows no master for a moment
                    await client.incr("writes")
                    rounds[number] += 1

        async def all_write(times: int) -> None:
            aims = [done + times for done in rounds]
            await until(lambda: all(done >= aim for done, aim in zip(rounds, aims, strict=True)))

        with site.old.client() as old, site.new.client() as new:
            async with connect_async(site.url) as client:
                writers = asyncio.gather(*map(write, range(WRITERS)))
                try:
                    await all_write(5)
                    assert not new.exists("writes")
                    site.replace()
                    await until(lambda: new.exists("writes"))
                    await all_write(2)  # the first of them may have been on its way
                    last = old.get("writes")
                    await all_write(5)
                    assert old.get("writes") == last
                finally:
                    is_over.set()
                    await writers

    run(test)


def test_a_subscription_ends_so_that_it_can_be_made_where_messages_come_now(
    site: SentinelSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.broker.transport.subscription.PING_EVERY_S", 0.01)

    async def test() -> None:
        broker = open_async_broker(site.url)
        try:
            transport = broker.transport
            async with aclosing(listen(transport.lender(), transport.where, "channel")) as messages:  # type: ignore[type-var]  # a generator, though typed as an iterator
                assert await anext(messages) is None
                site.replace()
                await broker.run(ping())
                with pytest.raises(StopAsyncIteration):
                    await anext(messages)
            await until(lambda: not site.connections_to_old())
        finally:
            await broker.close()

    run(test)


# When to ask ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("took_s", "answered", "pause_s"),
    [
        pytest.param(0.25, True, 1.0, id="a second"),
        pytest.param(3.0, True, 1.0, id="as the next one answered, and is asked first from then on"),
        pytest.param(3.0, False, 30.0, id="all were silent, and may cost a tenth of the time"),
        pytest.param(15.0, False, 30.0, id="half a minute at most"),
    ],
)
def test_sentinels_are_asked_again_after_a_while(took_s: float, answered: bool, pause_s: float) -> None:
    clock = ManualClock()
    schedule = SentinelSchedule(clock)
    assert schedule.begin()
    clock.advance(took_s)
    schedule.end(answered=answered)
    clock.advance(pause_s - 0.25)
    assert not schedule.begin()
    clock.advance(0.25)
    assert schedule.begin()


def test_nobody_else_asks_while_one_waits_for_silent_sentinels() -> None:
    clock = ManualClock()
    schedule = SentinelSchedule(clock)
    assert schedule.begin()
    clock.advance(15.0)
    assert not schedule.begin()
