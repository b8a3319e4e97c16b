"""Pipelines on a Redis Cluster: commands go to the node of their key, one pipeline a node, and follow redirections.

redis-py's own cluster pipeline refuses EVALSHA. ``Routing`` decides, without I/O, which commands go where and what a
reply means for the routes; the blocking and the asyncio transport share it. A redirected command was not carried out,
so it is safe to send it again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.cluster import ClusterNode
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, RedisClusterException, RedisError, TryAgainError

from fastq.broker.transport.aio import MOST_AT_ONCE, AsyncPool, exchange_on
from fastq.broker.transport.blocking import NodeTransport, Sent
from fastq.broker.transport.exchange import Command
from fastq.broker.transport.faults import CONNECT_FAULTS, Unsent

__all__ = ["AsyncClusterTransport", "ClusterTransport", "Routing"]

MAX_REDIRECTS = 8
"""As go-redis has it."""


class Hop(NamedTuple):
    """Where to send a command: the address that a redirection named, or None for the node of its slot."""

    at: int
    address: tuple[str, int] | None
    asking: bool


class Routing:
    """The state of one transfer: what remains to be sent where, and the replies so far."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = commands
        self.replies: list[Any] = [None] * len(commands)
        self.hops = [Hop(at, None, False) for at in range(len(commands))]
        self.stale = False
        self._rounds = 0

    def slot(self, hop: Hop) -> int:
        """Return the slot of a command's key; a command without key goes to the node of slot 0."""
        key = self.commands[hop.at].key
        return 0 if key is None else int(key_slot(key.encode()))

    def lines(self, hops: Sequence[Hop]) -> list[Command]:
        """Return what is sent to one node for these hops: each command, after an ASKING where Redis wants one."""
        asking = Command(("ASKING",), None)
        return [
            line
            for hop in hops
            for line in ((asking, self.commands[hop.at]) if hop.asking else (self.commands[hop.at],))
        ]

    def receive(self, hops: Sequence[Hop], replies: Sequence[Any]) -> None:
        """Take the replies to ``lines``; keep the answers, queue the redirections for the next round."""
        answers = iter(replies)
        for hop in hops:
            if hop.asking:
                next(answers)
            self._settle(hop, next(answers))

    def _settle(self, hop: Hop, reply: Any) -> None:
        self.replies[hop.at] = reply
        if self._rounds >= MAX_REDIRECTS:
            return
        if isinstance(reply, AskError) and not isinstance(reply, MovedError):
            self.hops.append(Hop(hop.at, (reply.host, reply.port), True))
        elif isinstance(reply, MovedError):
            self.stale = True
            self.hops.append(Hop(hop.at, (reply.host, reply.port), False))
        elif isinstance(reply, TryAgainError) or (isinstance(reply, Unsent) and self._rounds == 1):
            self.stale = True  # the node may be gone; its successor is in the new slot map
            self.hops.append(Hop(hop.at, None, False))

    def next_round(self) -> list[Hop]:
        """Return the commands to send now, and start counting the next round."""
        hops, self.hops = self.hops, []
        self._rounds += 1
        return hops


class ClusterTransport:
    """A transport to a Redis Cluster through redis-py's slot map and its nodes' connection pools."""

    where = "a node of the cluster"

    def __init__(self, cluster: redis.RedisCluster) -> None:
        self._cluster = cluster
        self._seeds = [(seed.host, seed.port) for seed in cluster.startup_nodes]
        self._get_node: Callable[[str, int], Any] = cluster.get_node

    def send(self, commands: Sequence[Command]) -> Sent:
        """Note the commands; they go out when their replies are asked for, since nodes may redirect them."""
        return _Deferred(self, commands)

    def transfer(self, commands: Sequence[Command]) -> list[Any]:
        """Send the commands, a pipeline a node, following redirections, and return their replies."""
        routing = Routing(commands)
        while hops := routing.next_round():
            if routing.stale:
                routing.stale = False
                self._refresh()
            by_node = defaultdict(list)
            for hop in hops:
                try:
                    by_node[self._node(routing, hop)].append(hop)
                except (RedisClusterException, RedisError) as error:
                    routing.replies[hop.at] = Unsent(error)
            for node, group in by_node.items():
                lines = routing.lines(group)
                try:
                    pool = self._cluster.get_redis_connection(node).connection_pool
                except CONNECT_FAULTS as error:
                    routing.receive(group, [Unsent(error)] * len(lines))
                else:
                    routing.receive(group, NodeTransport(pool).send(lines).replies())
        return routing.replies

    def _node(self, routing: Routing, hop: Hop) -> Any:
        manager = self._cluster.nodes_manager
        if hop.address is None:
            return manager.get_node_from_slot(routing.slot(hop))
        node = self._get_node(*hop.address)
        if node is None:
            # A node that has no slot yet is in no slot map: it is taking over its first.
            host, port = hop.address
            node = ClusterNode(host, port)  # type: ignore[no-untyped-call]  # redis-py's
            manager.nodes_cache[node.name] = node
        return node

    def _refresh(self) -> None:
        try:
            # The known nodes, then the seeds: the whole cluster may have moved to other addresses.
            self._cluster.nodes_manager.initialize(additional_startup_nodes_info=self._seeds)
        except (RedisClusterException, RedisError, OSError):
            return  # the old map stays; the next reply says what is wrong


class _Deferred(NamedTuple):
    transport: ClusterTransport
    commands: Sequence[Command]

    def replies(self) -> list[Any]:
        return self.transport.transfer(self.commands)


class AsyncClusterTransport:
    """A transport to a Redis Cluster through redis-py's asyncio slot map and its nodes' connections."""

    where = "a node of the cluster"

    def __init__(self, cluster: redis.asyncio.RedisCluster) -> None:
        self._cluster = cluster
        self._seeds = [(seed.host, seed.port) for seed in cluster.startup_nodes]
        self._get_node: Callable[[str, int], Any] = cluster.get_node
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def transfer(self, commands: Sequence[Command]) -> list[Any]:
        """Send the commands, a pipeline a node, following redirections."""
        async with self._turns:
            return await self._transfer(commands)

    async def _transfer(self, commands: Sequence[Command]) -> list[Any]:
        try:
            await self._cluster.initialize()
        except (RedisClusterException, RedisError, OSError) as error:
            return [Unsent(error)] * len(commands)
        routing = Routing(commands)
        while hops := routing.next_round():
            if routing.stale:
                routing.stale = False
                await self._refresh()
            by_node = defaultdict(list)
            for hop in hops:
                try:
                    by_node[self._node(routing, hop)].append(hop)
                except (RedisClusterException, RedisError) as error:
                    routing.replies[hop.at] = Unsent(error)
            for node, group in by_node.items():
                routing.receive(group, await self._send(node, routing.lines(group)))
        return routing.replies

    def lender(self, key: str | None = None) -> AsyncPool:
        """Lend connections to the node of ``key``; without one, of any node."""
        return _NodeLender(self, key)

    async def place_of(self, key: str) -> str:
        """Name the node that serves a key now."""
        return str((await self.node_of(key)).name)

    async def _send(self, node: Any, lines: Sequence[Command]) -> list[Any]:
        try:
            connection = await lend(node)
        except CONNECT_FAULTS as error:
            return [Unsent(error)] * len(lines)
        try:
            return await exchange_on(connection, lines)
        finally:
            node.release(connection)

    def _node(self, routing: Routing, hop: Hop) -> Any:
        manager = self._cluster.nodes_manager
        if hop.address is None:
            return manager.get_node_from_slot(routing.slot(hop))
        node = self._get_node(*hop.address)
        if node is None:
            node = AsyncClusterNode(*hop.address, **manager.connection_kwargs)  # as in ClusterTransport
            manager.nodes_cache[node.name] = node
        return node

    async def node_of(self, key: str | None) -> Any:
        """Return the node that serves a key now; raise redis-py's errors of a connection."""
        try:
            await self._cluster.initialize()
            return self._node(Routing([Command((), key)]), Hop(0, None, False))
        except RedisClusterException as error:  # no subclass of RedisError
            raise redis.exceptions.ConnectionError(str(error)) from error

    async def _refresh(self) -> None:
        manager = self._cluster.nodes_manager
        with suppress(RedisClusterException, RedisError, OSError):
            return await manager.initialize()
        # As additional nodes, as in ClusterTransport, they would keep connections that nobody closes.
        for host, port in self._seeds:
            seed = AsyncClusterNode(host, port, **manager.connection_kwargs)
            manager.startup_nodes.setdefault(seed.name, seed)
        with suppress(RedisClusterException, RedisError, OSError):
            await manager.initialize()


async def lend(node: Any) -> Any:
    """Return a connection of a node's, connected and in step; the caller is to release it."""
    connection = node.acquire_connection()
    try:
        await connection.connect()
        if await _is_stale(connection):
            await connection.disconnect(nowait=True)
            await connection.connect()
    except BaseException:
        node.release(connection)
        raise
    return connection


async def _is_stale(connection: Any) -> bool:
    """Return whether there is something to read.

    Nothing was requested, so something to read means that the node closed the connection while it was idle.
    """
    look = getattr(connection, "can_read", None) or connection.can_read_destructive  # its name before redis-py 8
    try:
        return bool(await look())
    except CONNECT_FAULTS:
        return True


class _NodeLender:
    """A lender of one node's connections, as a pool is; the node is looked up each time, since slots move."""

    def __init__(self, transport: AsyncClusterTransport, key: str | None) -> None:
        self._transport = transport
        self._key = key
        self.connection_kwargs: dict[str, Any] = {}
        self._lent: dict[int, Any] = {}

    async def get_connection(self) -> Any:
        """Lend a connected connection."""
        node = await self._transport.node_of(self._key)
        connection = await lend(node)
        self._lent[id(connection)] = node
        return connection

    async def release(self, connection: Any) -> None:
        """Take it back."""
        self._lent.pop(id(connection)).release(connection)
