"""From what the user gave as ``redis`` to a broker that uses it, and closes only what was opened here."""

import codecs
from typing import TypeAlias

import redis
import redis.asyncio

from fastq.broker.aio import AsyncBroker, AsyncNodeTransport
from fastq.broker.blocking import BlockingBroker, NodeTransport
from fastq.broker.cluster import AsyncClusterTransport, ClusterTransport
from fastq.broker.connection import connect, connect_async
from fastq.broker.gather import GatheringTransport

__all__ = ["AsyncRedis", "BlockingRedis", "open_async_broker", "open_broker"]

BlockingRedis: TypeAlias = redis.Redis | redis.RedisCluster
AsyncRedis: TypeAlias = redis.asyncio.Redis | redis.asyncio.RedisCluster


def open_broker(given: str | BlockingRedis | None) -> BlockingBroker:
    """Open a broker on a URL, an existing redis-py client, or (None) the default URL; nothing is sent yet."""
    client = connect(given)
    _check_encoding(client.get_encoder().encoding)
    ours = client is not given
    if isinstance(client, redis.RedisCluster):
        return BlockingBroker(ClusterTransport(client), close=client.close if ours else None)
    node = NodeTransport(client.connection_pool, keep=ours)

    def close() -> None:
        node.close()
        client.close()

    return BlockingBroker(node, close=close if ours else None)


def open_async_broker(given: str | AsyncRedis | None, *, gather: bool = False) -> AsyncBroker:
    """Open a broker for asyncio; as ``open_broker``. With ``gather`` concurrent callers share pipelines."""
    client = connect_async(given)
    _check_encoding(client.get_encoder().encoding)
    ours = client is not given
    if isinstance(client, redis.asyncio.RedisCluster):
        return AsyncBroker(AsyncClusterTransport(client), close=client.aclose if ours else None)
    node = AsyncNodeTransport(client.connection_pool)
    if not gather:
        return AsyncBroker(node, close=client.aclose if ours else None)
    gathering = GatheringTransport(node)

    async def close() -> None:
        await gathering.close()
        if ours:
            await client.aclose()

    return AsyncBroker(gathering, close)


def _check_encoding(encoding: str) -> None:
    """Refuse a client that would write other names than those in the messages."""
    if codecs.lookup(encoding).name != "utf-8":
        raise ValueError(f"redis must be a client with encoding='utf-8', as names are on the wire, not {encoding!r}")
