"""Brokers for the ``redis`` argument of the user; they close only connections that they opened."""

import asyncio
import codecs
from typing import Any, TypeAlias

import redis
import redis.asyncio

from fastq.broker.transport.aio import AsyncBroker, AsyncNodeTransport, AsyncTransport, abort_sending
from fastq.broker.transport.blocking import BlockingBroker, NodeTransport
from fastq.broker.transport.cluster import AsyncClusterTransport, ClusterTransport
from fastq.broker.transport.confirm import Confirm, Terms
from fastq.broker.transport.connection import connect, connect_async
from fastq.broker.transport.credentials import Ask
from fastq.broker.transport.gather import GatheringTransport
from fastq.broker.transport.limit import REPLY_S, step_s
from fastq.broker.transport.loops import LoopTransport, Opened
from fastq.broker.transport.sentinel import AsyncMasterPool
from fastq.broker.transport.switches import MasterTransport
from fastq.broker.transport.uri import default_url

BlockingRedis: TypeAlias = redis.Redis | redis.RedisCluster
AsyncRedis: TypeAlias = redis.asyncio.Redis | redis.asyncio.RedisCluster


def open_broker(
    given: str | BlockingRedis | None, *, timeout_s: float | None = None, confirm: Confirm | None = None
) -> BlockingBroker:
    """Open a broker on a URL, an existing redis-py client, or (None) the default URL; nothing is sent yet.

    ``timeout_s`` bounds each call; the timeouts of a given client apply, too. ``confirm`` says how many replicas are to
    confirm a write.
    """
    client = connect(given, **_limits(confirm, None if timeout_s is None else step_s(timeout_s)))
    _check_encoding(client.get_encoder().encoding)
    ours, reply_s = client is not given, _reply_s(client)
    if isinstance(client, redis.RedisCluster):
        return BlockingBroker(ClusterTransport(client, confirm), client.close if ours else None, timeout_s, reply_s)
    node = NodeTransport(client.connection_pool, keep=ours, confirm=confirm)

    def close() -> None:
        node.close()
        client.close()

    return BlockingBroker(node, close if ours else None, timeout_s, reply_s)


def open_async_broker(
    given: str | AsyncRedis | None,
    *,
    gather: bool = False,
    timeout_s: float | None = None,
    confirm: Confirm | None = None,
    ask: Ask | None = None,
    in_one_loop: bool = False,
) -> AsyncBroker:
    """Open a broker for asyncio, as ``open_broker`` does; with ``gather`` concurrent callers share pipelines.

    ``ask`` calls the function of changing credentials. With ``in_one_loop`` no other event loop will use it.
    """
    url_or_client = default_url() if given is None else given
    limits = _limits(confirm, timeout_s)
    client = connect_async(url_or_client, ask=ask, **limits)
    _check_encoding(client.get_encoder().encoding)
    terms = Terms(None if timeout_s is None else timeout_s / 2, confirm)

    def another() -> Opened:
        if client is url_or_client:
            _check_loop(client)
            return _opened(client, terms, gather=gather, ours=False)
        return _opened(connect_async(url_or_client, ask=ask, **limits), terms, gather=gather, ours=True)

    first = _opened(client, terms, gather=gather, ours=client is not url_or_client)
    if in_one_loop:
        return AsyncBroker(*first, timeout_s, _reply_s(client))
    transport = LoopTransport(first, another)
    return AsyncBroker(transport, transport.close, timeout_s, _reply_s(client))


def _reply_s(client: BlockingRedis | AsyncRedis) -> float:
    return float(client.get_connection_kwargs().get("socket_timeout") or REPLY_S)


def _limits(confirm: Confirm | None, at_most_s: float | None) -> dict[str, float]:
    """Return the time limits of ``connect``: ``at_most_s`` for each step, or else more time for what WAIT takes."""
    if at_most_s is not None:
        return {"at_most_s": at_most_s}
    return {} if confirm is None else {"more_s": confirm.timeout_s}


def _opened(client: AsyncRedis, terms: Terms, *, gather: bool, ours: bool) -> Opened:
    transport: AsyncTransport
    if isinstance(client, redis.asyncio.RedisCluster):
        transport = AsyncClusterTransport(client, gather=gather, terms=terms)
    elif isinstance(client.connection_pool, AsyncMasterPool):
        transport = MasterTransport(client.connection_pool, terms)
    else:
        transport = AsyncNodeTransport(client.connection_pool, terms, keep=ours)
    if gather and not isinstance(transport, AsyncClusterTransport):
        transport = GatheringTransport(transport)

    async def close() -> None:
        await transport.close()
        if ours:
            for connection in _connections(client):
                abort_sending(connection)
            await client.aclose()

    return Opened(transport, close)


def _check_loop(client: AsyncRedis) -> None:
    """Refuse a client that has connections of another event loop, before anything is sent."""
    running = asyncio.get_running_loop()
    if any(connection.is_connected and connection._reader._loop is not running for connection in _connections(client)):
        raise RuntimeError(
            f"this {type(client).__module__}.{type(client).__name__} has connections of another event loop; "
            "give a URL, which serves any number of loops, or a client of this one"
        )


def _connections(client: AsyncRedis) -> list[Any]:
    if isinstance(client, redis.asyncio.RedisCluster):
        return [each for node in client.get_nodes() for each in node._connections]
    pool: Any = client.connection_pool
    return [*pool._available_connections, *pool._in_use_connections]


def _check_encoding(encoding: str) -> None:
    """Refuse a client whose encoding would make key names differ from those in the messages."""
    if codecs.lookup(encoding).name != "utf-8":
        raise ValueError(f"redis must be a client with encoding='utf-8', as names are on the wire, not {encoding!r}")
