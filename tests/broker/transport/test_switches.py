"""A switch of masters that a sentinel tells of: it is left while nobody asks anything."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from redis.exceptions import ResponseError

from fastq.broker.operations.health import ping
from fastq.broker.transport.blocking import NodeTransport
from fastq.broker.transport.connection import connect
from fastq.broker.transport.events import EVENTS
from fastq.broker.transport.exchange import Command
from fastq.broker.transport.open import open_async_broker
from fastq.broker.transport.wait import TaskWatch
from fastq.wire import keys
from tests.broker.harness import run
from tests.redis_servers import SentinelSetup, redis_sentinel
from tests.waiting import PATIENCE_S, until, wait_until


@pytest.fixture
def setup() -> Iterator[SentinelSetup]:
    with redis_sentinel() as running:
        yield running


def url_of(setup: SentinelSetup) -> str:
    return f"redis-sentinel://127.0.0.1:{setup.sentinel_port}/0?master=mymaster"


def is_heard(setup: SentinelSetup) -> bool:
    with setup.sentinel() as sentinel:
        return any(client["sub"] == f"{len(EVENTS)}" for client in sentinel.client_list())


def is_failed_over(setup: SentinelSetup) -> bool:
    """Return whether there was a failover; order one if not: refused while one goes on, and while replicas are late."""
    with setup.sentinel() as sentinel, suppress(ResponseError):
        if sentinel.sentinel_get_master_addr_by_name("mymaster")[1] != setup.master.port:
            return True
        sentinel.execute_command("SENTINEL", "FAILOVER", "mymaster")
    return False


def test_the_old_master_is_left_although_nobody_asks_anything(
    setup: SentinelSetup, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fastq")

    async def test() -> None:
        broker = open_async_broker(url_of(setup))
        watch = TaskWatch(broker.transport)
        switched = asyncio.Event()
        broker.transport.on_change(switched.set)
        broker.transport.on_change(watch.renew)
        await broker.run(ping())
        await until(lambda: is_heard(setup))
        wait = asyncio.create_task(watch.wait("q", PATIENCE_S))
        await until(lambda: any(line._watched for line in watch._lines.values()))
        # A sentinel that stood still for two seconds gives one up.
        await until(lambda: is_failed_over(setup), interval_s=0.1)
        await switched.wait()
        assert await wait is False, "the wait ends, for one on the new master"
        wait = asyncio.create_task(watch.wait("q", PATIENCE_S))
        await until(lambda: any(line._watched for line in watch._lines.values() if not line.is_over))
        with setup.replica.client() as new:
            await until(lambda: new.info("replication")["role"] == "master")
            new.lpush(keys.pending("q"), "a")
        assert await wait is True
        await watch.close()
        await broker.close()
        await until(lambda: not is_heard(setup))

    run(test)
    said = [record.getMessage() for record in caplog.records if "sentinels" in record.getMessage()]
    old, new = (f"127.0.0.1:{server.port}" for server in (setup.master, setup.replica))
    assert said == [f"the sentinels name {new} as the master of 'mymaster', in place of {old}"]


def test_a_blocking_client_leaves_the_old_master_with_its_next_call(
    setup: SentinelSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_every(seconds: float) -> None:
        monkeypatch.setattr("fastq.broker.transport.sentinel._LOOK_INTERVAL_S", seconds)

    client: Any = connect(url_of(setup))
    pool = client.connection_pool
    with client, closing(NodeTransport(pool, keep=True)) as transport:

        def write() -> None:
            assert transport.send([Command(("SET", "key", "1"), None)]).replies() == [b"OK"], "the old one still writes"

        def has_left() -> bool:
            write()
            return bool(pool.master_address == ("127.0.0.1", setup.replica.port))

        look_every(0.0)
        write()
        write()
        wait_until(lambda: is_heard(setup))
        look_every(3600.0)
        write()
        wait_until(lambda: is_failed_over(setup))
        wait_until(has_left)
        with setup.replica.client() as new:
            new.delete("key")
            write()
            assert new.exists("key")
    wait_until(lambda: not is_heard(setup))


def test_a_sentinel_that_refuses_its_events_is_asked_for_them_again(
    setup: SentinelSetup, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.broker.transport.switches.REFUSED_AGAIN_S", 0.01)

    def said() -> list[str]:
        return [text for record in caplog.records if "switches" in (text := record.getMessage())]

    async def test() -> None:
        broker = open_async_broker(url_of(setup))
        with setup.sentinel() as sentinel:
            sentinel.execute_command("ACL", "SETUSER", "default", "-subscribe")
            refused = "acl_access_denied_cmd"
            await broker.run(ping())
            await until(said)
            first = sentinel.info("stats").get(refused, 0)
            await until(lambda: refused not in sentinel.info("stats") or sentinel.info("stats")[refused] > first)
            sentinel.execute_command("ACL", "SETUSER", "default", "+subscribe")
        await until(lambda: is_heard(setup))
        await broker.close()

    run(test)
    (text,) = said()
    assert text.startswith(f"the sentinel at 127.0.0.1:{setup.sentinel_port} does not tell us of switches: ")
