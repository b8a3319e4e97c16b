"""A name that leads to another master, while the old one lives on as a replica: READONLY ends the connection to it."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from fastq import AsyncClient, BrokerReadOnlyError, Client
from fastq.wire import keys
from tests.broker.harness import QUEUE, until
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server
from tests.server.actors.fetching import Pool, fetcher_and_wakers
from tests.server.harness import Bench, on_bench
from tests.waiting import PATIENCE_S


@dataclass(frozen=True)
class Name:
    """A name, here a link to a socket, that leads to one server and then to the other."""

    old: RedisServer
    new: RedisServer
    link: Path

    @property
    def url(self) -> str:
        return f"unix://{self.link}"

    def move(self) -> None:
        """Let the name lead to the new one; the old one becomes a replica and keeps its clients."""
        self.link.unlink()
        self.link.symlink_to(self.new.socket_path)
        with self.old.client() as old:
            old.replicaof("127.0.0.1", free_port())


@pytest.fixture
def name(tmp_path: Path) -> Iterator[Name]:
    with redis_server() as old, redis_server() as new:
        (tmp_path / "name").symlink_to(old.socket_path)
        yield Name(old, new, tmp_path / "name")


def is_there(server: RedisServer, task_id: str) -> bool:
    with server.client() as db:
        return bool(db.exists(keys.task("default", task_id)))


@pytest.mark.parametrize("made", [str, redis.Redis.from_url], ids=["URL", "given"])
def test_a_refused_call_goes_to_the_new_master(name: Name, made: Callable[[str], Any]) -> None:
    with Client(made(name.url)) as client:
        client.enqueue("t", task_id="a")
        name.move()
        client.enqueue("t", task_id="b")
    assert is_there(name.new, "b")


@pytest.mark.parametrize("made", [str, redis.asyncio.Redis.from_url], ids=["URL", "given"])
def test_so_does_that_of_an_asyncio_client(name: Name, made: Callable[[str], Any]) -> None:
    async def test() -> None:
        given = made(name.url)
        async with AsyncClient(given) as client:
            await client.enqueue("t", task_id="a")
            name.move()
            await client.enqueue("t", task_id="b")
        if given is not name.url and not isinstance(given, str):
            await given.aclose()

    asyncio.run(test())
    assert is_there(name.new, "b")


def test_a_fetcher_that_meets_a_replica_lets_wakers_wait_at_the_new_master(name: Name) -> None:
    async def test(bench: Bench) -> None:
        fetching, _ = fetcher_and_wakers(bench, Pool(bench))
        bench.stats.outage.on_replica = bench.watch.renew  # as a process does
        wait = asyncio.create_task(bench.watch.wait(QUEUE, PATIENCE_S))
        await until(lambda: bench.db.info("clients")["tracking_clients"] == 1)
        name.move()
        with name.new.client() as new:
            new.lpush(keys.pending(QUEUE), "a")
        fetching._note_failure(QUEUE, BrokerReadOnlyError("a replica"))
        assert await wait is False
        assert await bench.watch.wait(QUEUE, PATIENCE_S) is True

    with name.old.client() as old:
        on_bench(old, name.url, test)
