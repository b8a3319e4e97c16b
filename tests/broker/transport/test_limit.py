"""The timeout of a client: no call outlasts it, whatever is silent. Without it replies may take 90 s in the tests."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from fastq import AsyncClient, BrokerTimeoutError, Client, Task
from tests.broker.clusters import Cluster
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_cluster, redis_server, sentinel_server, silent
from tests.waiting import PATIENCE_S, wait_until

TIMEOUT_S = 0.8


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server(free_port()) as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with redis_cluster() as nodes:
        yield Cluster(nodes)


class Blocking:
    """Drive a Client."""

    def __init__(self, url: str) -> None:
        self._client = Client(url, timeout=TIMEOUT_S)

    def do(self, call: Callable[[Any], Any]) -> Any:
        return call(self._client)

    def close(self) -> None:
        self._client.close()


class Looping:
    """Drive an AsyncClient, from call to call."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncClient(url, timeout=timedelta(seconds=TIMEOUT_S))

    def do(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with asyncio.timeout(PATIENCE_S):
                return await call(self._client)

        return self._runner.run(run())

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


WAYS = pytest.mark.parametrize("way", [Blocking, Looping], ids=["Client", "AsyncClient"])


@contextmanager
def opened(way: type[Blocking] | type[Looping], url: str) -> Iterator[Any]:
    client = way(url)
    try:
        yield client
    finally:
        client.close()


def enqueue(queue: str = "q") -> Callable[[Any], Any]:
    return lambda client: client.enqueue("t", queue=queue)


def succeed(client: Any, call: Callable[[Any], Any]) -> None:
    """Make a call until it ends in time: the machine may stand still for longer than the timeout."""

    def is_made() -> bool:
        with suppress(BrokerTimeoutError):
            client.do(call)
            return True
        return False

    wait_until(is_made)


@WAYS
def test_a_server_that_falls_silent_is_named_and_the_task_may_be_there(way: Any, server: RedisServer) -> None:
    with opened(way, server.tcp_url) as client:
        succeed(client, enqueue())
        with silent(server), pytest.raises(BrokerTimeoutError, match=rf"127\.0\.0\.1:{server.port}") as caught:
            client.do(enqueue())
        assert caught.value.maybe_applied
        succeed(client, enqueue())  # it goes on with another connection


@WAYS
def test_of_a_server_that_was_silent_from_the_first_nothing_was_asked(way: Any, server: RedisServer) -> None:
    with opened(way, server.tcp_url) as client, silent(server):
        with pytest.raises(BrokerTimeoutError, match=rf"127\.0\.0\.1:{server.port}") as caught:
            client.do(enqueue())
        assert not caught.value.maybe_applied
        assert ": ." not in str(caught.value), "it says why"


@WAYS
def test_the_tasks_of_a_stretch_have_the_time_together_and_the_results_are_told(way: Any, server: RedisServer) -> None:
    with opened(way, server.tcp_url) as client:
        succeed(client, lambda client: client.enqueue_many([Task("t")] * 3))
        with silent(server), pytest.raises(BrokerTimeoutError) as caught:
            client.do(lambda client: client.enqueue_many([Task("t")] * 1200))
        assert caught.value.results is not None
        assert len(caught.value.results) == 500


@WAYS
def test_a_silent_node_of_a_cluster_is_named(way: Any, cluster: Cluster) -> None:
    node = cluster.nodes[1]
    (queue,) = cluster.queues_on(node)
    with opened(way, cluster.url) as client:
        succeed(client, enqueue(queue))
        with silent(node):
            for _ in range(3):
                with pytest.raises(BrokerTimeoutError, match=rf"127\.0\.0\.1:{node.port}"):
                    client.do(enqueue(queue))
            succeed(client, enqueue(cluster.queues_on(cluster.nodes[0])[0]))


@WAYS
def test_a_silent_sentinel_and_a_silent_master_are_waited_for_no_longer_in_sum(way: Any, server: RedisServer) -> None:
    with redis_server(free_port()) as dumb, sentinel_server(server.port) as sentinel, silent(dumb):
        url = f"redis-sentinel://127.0.0.1:{dumb.port},127.0.0.1:{sentinel}/0?master=mymaster"
        with opened(way, url) as client, silent(server), pytest.raises(BrokerTimeoutError):
            client.do(enqueue())


@pytest.mark.parametrize("make", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("timeout", "error", "text"),
    [
        (0, ValueError, "timeout must be more than 0, not 0"),
        (-1.5, ValueError, "timeout must be more than 0, not -1.5"),
        (float("inf"), ValueError, "timeout must be finite, not inf"),
        ("5", TypeError, "timeout must be a timedelta or seconds, not '5'"),
        (True, TypeError, "timeout must be a timedelta or seconds, not True"),
    ],
)
def test_a_timeout_that_is_none_is_refused(make: Any, timeout: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make("redis://127.0.0.1:1", timeout=timeout)
