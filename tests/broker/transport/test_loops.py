"""One asynchronous client or inspector in several event loops, in threads and one after the other."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import redis.asyncio
from redis import Redis
from redis.asyncio.cluster import ClusterNode

from fastq import AsyncClient, AsyncInspector, BrokerConnectionError, TaskInfo
from fastq.wire import keys
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_cluster, redis_server, silent
from tests.sentinel_site import sentinel_site
from tests.waiting import PATIENCE_S, until, wait_until

PENDING = keys.pending("default")
LOOPS = 5


@pytest.fixture(scope="module")
def shared_server() -> Iterator[RedisServer]:
    """Run one that only this module's tests use: its connections are counted here."""
    with redis_server() as server:
        yield server


def connections(db: Redis) -> int:
    """Return how many clients are connected beside the one that asks."""
    return len(db.client_list()) - 1


def pending(db: Redis) -> list[str]:
    """Return the ids of all tasks, sorted."""
    found: Any = db.lrange(PENDING, 0, -1)
    return sorted(each.decode() for each in found)


def test_loops_one_after_the_other_each_end_without_a_connection(db: Redis, url: str) -> None:
    client, inspector = AsyncClient(url), AsyncInspector(url)

    async def use() -> None:
        await asyncio.gather(*(client.enqueue("t") for _ in range(10)))
        assert (await inspector.get_queue_info("default")).pending
        assert connections(db) > 1

    for done in range(LOOPS):
        asyncio.run(use())
        assert db.llen(PENDING) == 10 * (done + 1)
        wait_until(lambda: not connections(db))


def test_loops_of_threads_use_one_client_at_the_same_time(db: Redis, url: str) -> None:
    client = AsyncClient(url)
    together = threading.Barrier(LOOPS)

    async def use() -> list[TaskInfo]:
        infos = [await client.enqueue("t")]
        together.wait(PATIENCE_S)  # all loops have connections now
        return infos + await asyncio.gather(*(client.enqueue("t") for _ in range(20)))

    with ThreadPoolExecutor(LOOPS) as threads:
        enqueued = [
            info.id for each in [threads.submit(asyncio.run, use()) for _ in range(LOOPS)] for info in each.result()
        ]
    assert sorted(enqueued) == pending(db)
    wait_until(lambda: not connections(db))


def test_close_ends_the_connections_of_its_own_loop_only(db: Redis, url: str) -> None:
    client = AsyncClient(url)
    with asyncio.Runner() as one, asyncio.Runner() as other:
        one.run(client.enqueue("t"))
        other.run(client.enqueue("t"))
        assert connections(db) == 2
        one.run(client.close())
        one.run(client.close())
        wait_until(lambda: connections(db) == 1)  # Redis may answer before it sees that the other one has closed
        other.run(client.enqueue("t"))
        assert connections(db) == 1
        one.run(client.enqueue("t"))
        assert connections(db) == 2
    wait_until(lambda: not connections(db))


@contextmanager
def own_server(*, is_cluster: bool) -> Iterator[RedisServer]:
    """Run a server, or a cluster of one node."""
    with ExitStack() as stack:
        if is_cluster:
            (server,) = stack.enter_context(redis_cluster(1))
        else:
            server = stack.enter_context(redis_server(free_port()))
        yield server


@pytest.mark.parametrize("is_cluster", [False, True], ids=["one", "cluster"])
def test_calls_under_way_end_when_their_client_is_closed(is_cluster: bool) -> None:
    """One has sent a part of its request, one is connecting, one waits; Redis is silent, and is not waited for."""

    async def use(server: RedisServer) -> None:
        client = AsyncClient(f"redis-cluster://127.0.0.1:{server.port}" if is_cluster else server.tcp_url)
        await client.ping()
        with silent(server):
            calls = [asyncio.create_task(client.enqueue("t", bytes(8 << 20))) for _ in range(3)]
            await until(lambda: is_sending_and_connecting(client))
            await client.close()
            sending, connecting, waiting = await asyncio.gather(*calls, return_exceptions=True)
        where = f"127.0.0.1:{server.port}"
        text = f"enqueue: the client was closed before Redis at {where} answered; the outcome is not known"
        assert str(sending) == text
        assert {str(connecting), str(waiting)} == {"enqueue: the client was closed before this was sent"}
        for error, was_sent in ((sending, True), (connecting, False), (waiting, False)):
            assert isinstance(error, BrokerConnectionError)
            assert error.maybe_applied is was_sent

    with own_server(is_cluster=is_cluster) as server:
        asyncio.run(use(server))
        with server.client() as db:
            wait_until(lambda: not connections(db))
            assert not db.exists(PENDING)


@pytest.mark.parametrize("is_cluster", [False, True], ids=["one", "cluster"])
def test_a_call_whose_connection_introduces_itself_ends_when_its_client_is_closed(
    is_cluster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis-py finds no writer then."""
    send = redis.asyncio.connection.AbstractConnection._send_packed_command

    async def use(server: RedisServer) -> None:
        client = AsyncClient(f"redis-cluster://127.0.0.1:{server.port}" if is_cluster else server.tcp_url)
        await client.ping()

        async def close_first(connection: Any, command: Any) -> None:
            await client.close()
            await send(connection, command)

        monkeypatch.setattr(redis.asyncio.connection.AbstractConnection, "_send_packed_command", close_first)
        calls = [client.enqueue("t") for _ in range(3)]  # one of them on the connection that there is
        ended = await asyncio.gather(*calls, return_exceptions=True)
        errors = [each for each in ended if isinstance(each, BaseException)]
        assert all(isinstance(each, BrokerConnectionError) for each in errors)
        assert "enqueue: the client was closed before this was sent" in map(str, errors)
        await client.close()

    with own_server(is_cluster=is_cluster) as server:
        asyncio.run(use(server))


def is_sending_and_connecting(client: AsyncClient) -> bool:
    """Return whether one connection has bytes to send, and another one waits for its first reply."""
    transport: Any = client._broker.transport
    pool = transport.lender()
    if hasattr(pool, "_transport"):
        (node,) = pool._transport._cluster.get_nodes()
        made = node._connections
    else:
        made = pool._in_use_connections
    writers = [connection._writer for connection in made]
    return len(writers) == 2 and all(writers) and any(each.transport.get_write_buffer_size() for each in writers)


CLOSES_LOOPS = """
import asyncio, gc, sys
from redis import Redis
from fastq import AsyncClient
client, db = AsyncClient(sys.argv[1]), Redis.from_url(sys.argv[1])
for _ in range(20):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.enqueue("t"))
    loop.close()
    del loop
    gc.collect()
print(db.llen("asynq:{default}:pending"), len(db.client_list()) - 1)
"""


def test_loops_that_were_closed_and_not_shut_down_are_forgotten(url: str) -> None:
    """Python warns of what such a loop leaves open, so that this is another process's affair."""
    done = subprocess.run([sys.executable, "-c", CLOSES_LOOPS, url], capture_output=True, text=True, check=True)
    enqueued, left = map(int, done.stdout.split())
    assert enqueued == 20
    assert left < 5, "that of the last loop, and what Redis and the collector have not seen the end of yet"


@pytest.mark.skipif(sys.platform != "linux", reason="counts the entries of /proc/self/fd")
def test_many_loops_leave_no_descriptor_open(url: str) -> None:
    client = AsyncClient(url)
    asyncio.run(client.enqueue("t"))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        asyncio.run(client.enqueue("t"))
    # What earlier tests left open may be collected meanwhile, or be at work.
    assert len(os.listdir("/proc/self/fd")) < before + 10


# From Python 3.12 on, asyncio and redis-py warn of what was left open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_that_was_dropped_unclosed_closes_its_connections(db: Redis, url: str) -> None:
    async def test() -> None:
        client = AsyncClient(url)
        await client.enqueue("t")
        assert connections(db) == 1
        del client
        gc.collect()
        while connections(db):
            await asyncio.sleep(0)

    asyncio.run(test())


@pytest.fixture(scope="module")
def node_of_cluster() -> Iterator[RedisServer]:
    """Run a cluster of one node."""
    with redis_cluster(1) as (node,):
        yield node


@pytest.fixture
def node(node_of_cluster: RedisServer) -> RedisServer:
    """Return the node, emptied."""
    with node_of_cluster.client() as db:
        db.flushall()
    return node_of_cluster


def test_a_cluster_and_a_sentinel_serve_any_number_of_loops(node: RedisServer) -> None:
    with sentinel_site() as site:
        for url, server in ((f"redis-cluster://127.0.0.1:{node.port}", node), (site.url, site.old)):
            client = AsyncClient(url)
            for _ in range(3):
                asyncio.run(client.enqueue("t"))
            with server.client() as db:
                assert db.llen(PENDING) == 3


def test_a_redis_that_is_away_is_said_in_every_loop() -> None:
    client = AsyncClient(f"redis://127.0.0.1:{free_port()}")
    for _ in range(2):
        with pytest.raises(BrokerConnectionError):
            asyncio.run(client.enqueue("t"))


# A client of the user's own has the connections that it has ----------------------------------------------------------


@pytest.fixture(params=["Redis", "RedisCluster"])
def made(
    request: pytest.FixtureRequest, shared_server: RedisServer, db: Redis, node: RedisServer
) -> Iterator[tuple[Any, Redis]]:
    if request.param == "Redis":
        yield redis.asyncio.Redis(unix_socket_path=shared_server.socket_path), db
        return
    with node.client() as its_db:
        yield redis.asyncio.RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", node.port)]), its_db


def test_a_given_client_is_refused_in_a_second_loop_before_anything_is_sent(made: tuple[Any, Redis]) -> None:
    given, db = made
    client = AsyncClient(given)
    with asyncio.Runner() as one:
        one.run(client.enqueue("t", task_id="a"))
        with pytest.raises(RuntimeError, match=r"has connections of another event loop; give a URL"):
            asyncio.run(client.enqueue("t", task_id="b"))
        one.run(client.enqueue("t", task_id="c"))
        one.run(given.aclose())
    assert pending(db) == ["a", "c"]


def test_a_given_client_that_its_owner_closed_serves_the_next_loop(made: tuple[Any, Redis]) -> None:
    given, db = made
    client = AsyncClient(given)

    async def use() -> None:
        await client.enqueue("t")
        await given.aclose()

    for _ in range(3):
        asyncio.run(use())
    assert db.llen(PENDING) == 3
