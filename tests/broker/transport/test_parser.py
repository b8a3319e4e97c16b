"""A connection that broke keeps nothing of the call that it broke under, however long nobody uses it again."""

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.connection import Connection as AsyncConnection
from redis.exceptions import ConnectionError as RedisConnectionError

from fastq.broker.transport.connection import connect_async
from fastq.broker.transport.parser import Parser
from fastq.broker.transport.probing import lend


class Payload(bytearray):
    """A payload that can be watched."""


@asynccontextmanager
async def server_that_resets_at(word: bytes) -> AsyncIterator[int]:
    """Serve on a port; answer each login, and reset a connection that sends a word."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while word not in (data := await reader.read(1 << 16)):
            writer.write(b"+OK\r\n" * data.count(b"CLIENT"))
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def lend_of_pool(client: Any, payload: Payload) -> None:
    del payload
    await client.connection_pool.get_connection()


async def lend_of_node(client: Any, payload: Payload) -> None:
    del payload
    await lend(client.startup_nodes[0])


async def lend_of_found_node(client: Any, payload: Payload) -> None:
    """Connect to a node that a redirection named, as ``AsyncClusterTransport`` does."""
    del payload
    manager, seed = client.nodes_manager, client.startup_nodes[0]
    manager.nodes_cache[seed.name] = AsyncClusterNode(seed.host, seed.port, **manager.connection_kwargs)
    await lend(manager.nodes_cache[seed.name])


async def write(client: Any, payload: Payload) -> None:
    await client.set("key", payload)


SENTINEL = "redis-sentinel://127.0.0.1:{}?master=mymaster"


@pytest.mark.parametrize(
    ("url", "word", "call"),
    [
        pytest.param("redis://127.0.0.1:{}", b"CLIENT", lend_of_pool, id="login"),
        pytest.param("redis://127.0.0.1:{}", b"SET\r\n", write, id="command"),
        pytest.param("redis-cluster://127.0.0.1:{}", b"CLIENT", lend_of_node, id="login to a node"),
        pytest.param("redis-cluster://127.0.0.1:{}", b"CLIENT", lend_of_found_node, id="login to a found node"),
        pytest.param(SENTINEL, b"CLIENT", write, id="login to a sentinel"),
        pytest.param(SENTINEL, b"SENTINEL", write, id="question to a sentinel"),
    ],
)
def test_a_connection_that_broke_keeps_nothing_of_the_call(
    url: str, word: bytes, call: Callable[[Any, Payload], Awaitable[None]]
) -> None:
    """Found by seeds 400459 of any and 540393 of any-lanes: a server remembered tasks that had ended long before."""

    async def broken(client: Any) -> weakref.ref[Payload]:
        payload = Payload(b"of a task")

        async def actor(held: Payload) -> None:
            await call(client, held)

        with pytest.raises(RedisConnectionError, match="reset by peer"):
            # A task of its own: the fault keeps the task, which keeps its end with the frames that it went through.
            await asyncio.create_task(actor(payload))
        return weakref.ref(payload)

    async def scenario() -> None:
        async with server_that_resets_at(word) as port, aclosing(connect_async(url.format(port))) as client:
            called = await broken(client)
            await asyncio.sleep(0)  # the turn of the loop in which the fault was raised holds it, too
            gc.collect()
            assert called() is None

    asyncio.run(scenario())


def test_an_end_amid_a_reply_is_a_broken_connection() -> None:
    """As if another coroutine closed the client in the turn of the loop in which half a reply came."""

    async def scenario() -> None:
        connection = AsyncConnection(parser_class=Parser)
        connection._reader = asyncio.StreamReader()
        parser: Any = connection._parser
        parser.on_connect(connection)
        reading = asyncio.create_task(parser.read_response())
        await asyncio.sleep(0)
        connection._reader.feed_data(b"$9\r\nhalf")
        parser.on_disconnect()
        connection._reader.feed_eof()
        with pytest.raises(RedisConnectionError, match="closed"):
            await reading

    asyncio.run(scenario())
