"""Pipelines on a Redis Cluster: commands go to the nodes of their keys, one pipeline per node, and follow redirections.

redis-py's own cluster pipeline refuses EVALSHA. ``Routing`` decides, without I/O, where commands go and how replies
change the routes; the blocking and the asyncio transport share it. All commands are sent before the first reply is
read. A redirected command was not carried out, so it is safe to send it again.
"""

import asyncio
import logging
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.cluster import ClusterNode
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, RedisClusterException, RedisError

from fastq.broker.transport.aio import AsyncPool, AsyncTransport
from fastq.broker.transport.blocking import NodeTransport, Pool, Sent, Unsendable
from fastq.broker.transport.confirm import NO_TERMS, Confirm, Terms
from fastq.broker.transport.exchange import Command
from fastq.broker.transport.faults import CONNECT_FAULTS, ClientClosedError, NoReply, Silent, Unsent, is_timeout
from fastq.broker.transport.gather import GatheringTransport
from fastq.broker.transport.limit import Limit
from fastq.broker.transport.probing import ProbingTransport, lend
from fastq.broker.transport.silence import Silence

MAX_REDIRECTS = 8
"""As in go-redis."""
SLOTS: Final = 16384
_ROWS: Final = (Command(("CLUSTER", "SLOTS"), None),)

_log = logging.getLogger("fastq")


class Hop(NamedTuple):
    """The destination of a command: the address of a redirection, or None for the node of its slot."""

    at: int
    address: tuple[str, int] | None
    asking: bool


def slot_of(key: str | None) -> int:
    """Return the slot of a key; a command without one goes to the node of slot 0."""
    return 0 if key is None else int(key_slot(key.encode()))


class Routing:
    """The state of one transfer: which commands remain to be sent to which nodes, and the replies so far."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = commands
        self.replies: list[Any] = [None] * len(commands)
        self.hops = [Hop(at, None, False) for at in range(len(commands))]
        self.stale = False
        self.silent: str | None = None
        """The node that did not answer in time; it is not asked again."""
        self.fault: Exception = TimeoutError()
        """The error that showed that this node does not answer."""
        self._rounds = 0

    def slot(self, hop: Hop) -> int:
        """Return the slot of a command's key."""
        return slot_of(self.commands[hop.at].key)

    def is_for_any(self, hop: Hop) -> bool:
        """Return whether any node will do for a command."""
        return hop.address is None and self.commands[hop.at].key is None

    def lines(self, hops: Sequence[Hop]) -> list[Command]:
        """Return the commands to send to a node for these hops, each after an ASKING if Redis requires it."""
        asking = Command(("ASKING",), None)
        return [
            line
            for hop in hops
            for line in ((asking, self.commands[hop.at]) if hop.asking else (self.commands[hop.at],))
        ]

    def receive(self, hops: Sequence[Hop], replies: Sequence[Any], node: str = "") -> None:
        """Take a node's replies to ``lines``; keep results, and queue redirected commands for the next round."""
        if isinstance(replies[-1], (NoReply, Unsent)) and is_timeout(replies[-1].error):
            self.silent, self.fault = node, replies[-1].error
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
        elif (
            isinstance(reply, Unsent)
            and not (isinstance(reply, Silent) or isinstance(reply.error, ClientClosedError))
            and self._rounds == 1
        ):
            self.stale = True  # the node may be gone: then the new slot map has its successor
            self.hops.append(Hop(hop.at, None, False))

    def next_round(self) -> list[Hop]:
        """Return the commands to send now, and start counting the next round."""
        hops, self.hops = self.hops, []
        self._rounds += 1
        return hops


class SlotOwners:
    """The last known nodes of all slots, so that a move of slots is logged once."""

    def __init__(self) -> None:
        self._seen: list[str] = []
        self._lock = threading.Lock()

    def see(self, slots: Mapping[int, Sequence[Any]]) -> bool:
        """Compare with redis-py's slot map; return whether slots have moved."""
        now = [nodes[0].name if (nodes := slots.get(slot)) else "" for slot in range(SLOTS)]
        with self._lock:
            before, self._seen = self._seen, now
        if before == now:
            return False
        moved = Counter((old, new) for old, new in zip(before, now, strict=False) if old and old != new)
        for (old, new), count in moved.items():
            _log.info("the Redis cluster moved %d slots from %s to %s", count, old, new or "no node")
        return bool(moved)


class ClusterTransport:
    """A transport to a Redis Cluster through redis-py's slot map and its nodes' connection pools."""

    where = "a node of the cluster"

    def __init__(self, cluster: redis.RedisCluster, confirm: Confirm | None = None) -> None:
        self._cluster = cluster
        self._confirm = confirm
        self._seeds = [(seed.host, seed.port) for seed in cluster.startup_nodes]
        self._get_node: Callable[[str, int], Any] = cluster.get_node
        self._owners = SlotOwners()
        self._silences: dict[str, Silence] = {}
        """The nodes that did not answer in time; commands for a node fail at once until it reacts."""

    def lender(self) -> Pool:
        """Return the pool of some node."""
        node = self._cluster.get_random_node()  # type: ignore[no-untyped-call]  # redis-py's
        pool: Pool = self._cluster.get_redis_connection(node).connection_pool
        return pool

    def send(self, commands: Sequence[Command], limit: Limit | None = None) -> Sent:
        """Send the commands, one pipeline per node."""
        return _Spread(self, Routing(commands), limit)

    def begin(self, routing: Routing, limit: Limit | None) -> list["_Part"]:
        """Send the commands of a round to their nodes, if any are left."""
        hops = routing.next_round()
        if routing.silent is not None:
            self._note_silence(routing.silent, routing.fault)
        if hops and routing.stale:
            self._refresh(limit, routing.silent)
            routing.stale = False
        by_node = defaultdict(list)
        for hop in hops:
            try:
                if (node := self._answering(routing, hop, limit)) is not None:
                    by_node[node].append(hop)
            except (RedisClusterException, RedisError) as error:
                routing.replies[hop.at] = Unsent(error)
        return [
            _Part(node.name, group, self._send(node, routing.lines(group), limit)) for node, group in by_node.items()
        ]

    def _answering(self, routing: Routing, hop: Hop, limit: Limit | None) -> Any:
        """Return the node for a command. If the node is silent, take that as the command's reply, and return None."""
        node = self._node(routing, hop)
        if routing.is_for_any(hop) and node.name in self._silences:
            masters = (nodes[0] for nodes in self._cluster.nodes_manager.slots_cache.values())
            node = next((one for one in masters if one.name not in self._silences), node)
        if node.name == routing.silent:
            return None
        if (silence := self._silences.get(node.name)) is None:
            return node
        if silence.is_over():
            self._silences.pop(node.name, None)
            return node
        if silence.is_time_to_look() and self._has_moved(node, limit):
            return self._node(routing, hop)
        routing.replies[hop.at] = Silent(silence.fault, node.name)
        return None

    def _note_silence(self, name: str, fault: Exception) -> None:
        # Not if only the call's own time is over: other nodes may have used it up.
        if isinstance(fault, redis.exceptions.TimeoutError) and name not in self._silences:
            silence = self._silences[name] = Silence(name, fault)
            silence.is_over()  # sends a PING

    def _has_moved(self, silent: Any, limit: Limit | None) -> bool:
        """Ask a node that answers whether slots of a silent node have moved; if so, read the slot map again."""
        manager = self._cluster.nodes_manager
        nodes = [node for node in manager.nodes_cache.values() if node.name not in self._silences]
        for node in random.sample(nodes, len(nodes)):
            (rows,) = self._send(node, _ROWS, limit).replies()
            if isinstance(rows, list):
                if _slots_at(rows, silent) == sum(nodes[0] is silent for nodes in manager.slots_cache.values()):
                    return False
                self._refresh(limit, silent.name)
                return True
            if isinstance(rows, (NoReply, Unsent)):
                self._note_silence(node.name, rows.error)
        return False

    def _send(self, node: Any, lines: Sequence[Command], limit: Limit | None) -> Sent:
        try:
            pool = self._cluster.get_redis_connection(node).connection_pool
        except CONNECT_FAULTS as error:
            return Unsendable([Unsent(error, node.name)] * len(lines))
        return NodeTransport(pool, confirm=self._confirm).send(lines, limit)

    def _node(self, routing: Routing, hop: Hop) -> Any:
        manager = self._cluster.nodes_manager
        if hop.address is None:
            return manager.get_node_from_slot(routing.slot(hop))
        node = self._get_node(*hop.address)
        if node is None:
            # A node that is taking over its first slot is not in the slot map yet.
            host, port = hop.address
            node = ClusterNode(host, port)  # type: ignore[no-untyped-call]  # redis-py's
            manager.nodes_cache[node.name] = node
        return node

    def _refresh(self, limit: Limit | None, silent: str | None) -> None:
        """Read the slot map again, asking a silent node last."""
        manager = self._cluster.nodes_manager
        self._owners.see(manager.slots_cache)
        try:
            if limit is not None:
                limit.require(3)
            # First the known nodes, then the seeds: the whole cluster may have moved to other addresses.
            manager.initialize(additional_startup_nodes_info=self._seeds, last_failed_node_name=silent)
        except (RedisClusterException, RedisError, OSError):
            return  # the old map stays; the next reply shows the fault
        self._owners.see(manager.slots_cache)


class _Part(NamedTuple):
    """The commands that were sent to one node, and their hops."""

    node: str
    hops: list[Hop]
    sent: Sent


class _Spread:
    """Commands that were sent to their nodes; reading the replies follows redirections."""

    def __init__(self, transport: ClusterTransport, routing: Routing, limit: Limit | None) -> None:
        self._transport = transport
        self._routing = routing
        self._limit = limit
        self._parts = transport.begin(routing, limit)

    def replies(self) -> list[Any]:
        """Read the replies, including those of redirected commands."""
        while parts := self._parts:
            while parts:
                part = parts.pop(0)
                try:
                    self._routing.receive(part.hops, part.sent.replies(), part.node)
                except BaseException:
                    self.abandon()
                    raise
            self._parts = self._transport.begin(self._routing, self._limit)
        return self._routing.replies

    def abandon(self) -> None:
        """Drop the connections whose replies will not be read."""
        for part in self._parts:
            part.sent.abandon()


class AsyncClusterTransport:
    """A transport to a Redis Cluster through redis-py's asyncio slot map and its nodes' connections.

    With ``gather`` concurrent callers share the pipelines to each node.
    """

    where = "a node of the cluster"

    def __init__(self, cluster: redis.asyncio.RedisCluster, *, gather: bool = False, terms: Terms = NO_TERMS) -> None:
        self._cluster = cluster
        self._gather = gather
        self._terms = terms
        self._seeds = [(seed.host, seed.port) for seed in cluster.startup_nodes]
        self._get_node: Callable[[str, int], Any] = cluster.get_node
        self._nodes: dict[str, _Route] = {}
        self._on_change: list[Callable[[], None]] = []
        self._owners = SlotOwners()

    def begin(self, commands: Sequence[Command], done: Callable[[list[Any]], None], most_s: float) -> bool:
        """Return false: only ``transfer`` finds the nodes of commands."""
        del commands, done, most_s
        return False

    async def transfer(self, commands: Sequence[Command]) -> list[Any]:
        """Send the commands, one pipeline per node, following redirections."""
        try:
            await self._cluster.initialize()
        except (RedisClusterException, RedisError, OSError) as error:
            return [Unsent(error)] * len(commands)
        key = commands[0].key if len(commands) == 1 else None
        nodes = self._cluster.nodes_manager.slots_cache.get(slot_of(key)) if key is not None else None
        if not nodes:
            return await self._route(Routing(commands))
        # A single command, the usual case, makes its first round without the work for several.
        replies = await self._route_to(nodes[0]).shared.transfer(commands)
        if not isinstance(replies[0], (Exception, NoReply, Unsent)):
            return replies
        routing = Routing(commands)
        routing.receive(routing.next_round(), replies, nodes[0].name)
        return await self._route(routing)

    async def _route(self, routing: Routing) -> list[Any]:
        while hops := routing.next_round():
            if routing.stale:
                routing.stale = False
                await self._refresh(routing.silent)
            by_node = defaultdict(list)
            for hop in hops:
                try:
                    if (node := self._node(routing, hop)).name != routing.silent:
                        by_node[node].append(hop)
                except (RedisClusterException, RedisError) as error:
                    routing.replies[hop.at] = Unsent(error)
            sending = [self._route_to(node).shared.transfer(routing.lines(group)) for node, group in by_node.items()]
            answers = [await sending[0]] if len(sending) == 1 else await asyncio.gather(*sending)
            for (node, group), replies in zip(by_node.items(), answers, strict=True):
                routing.receive(group, replies, node.name)
        return routing.replies

    async def close(self) -> None:
        """End background coroutines; the connections belong to the client."""
        await asyncio.gather(*(route.shared.close() for route in self._nodes.values()))

    def lender(self, key: str | None = None) -> AsyncPool:
        """Return a pool of connections to the node of ``key``, or to any node."""
        return _NodeLender(self, key, self._cluster.nodes_manager.connection_kwargs["max_connections"])

    async def place_of(self, key: str) -> str:
        """Return the address of the node that serves a key now."""
        return str((await self.node_of(key)).name)

    def on_change(self, call: Callable[[], None]) -> None:
        """Register a function to call after slots have moved, and when a silent node answers again."""
        self._on_change.append(call)

    def node_name_of(self, key: str) -> str:
        """Return the address of a key's node in the slot map, "" before there is one."""
        nodes = self._cluster.nodes_manager.slots_cache.get(slot_of(key))
        return str(nodes[0].name) if nodes else ""

    def _route_to(self, node: Any) -> "_Route":
        route = self._nodes.get(node.name)
        if route is None or route.node is not node:
            alone = ProbingTransport(node, partial(self._look, node), self._tell, self._terms)
            route = _Route(node, alone, GatheringTransport(alone) if self._gather else alone)
            self._nodes[node.name] = route
        return route

    def _node(self, routing: Routing, hop: Hop) -> Any:
        manager = self._cluster.nodes_manager
        if hop.address is None:
            node = manager.get_node_from_slot(routing.slot(hop))
            if routing.is_for_any(hop) and self._route_to(node).node_transport.is_silent:
                masters = (nodes[0] for nodes in manager.slots_cache.values())
                return next((one for one in masters if not self._route_to(one).node_transport.is_silent), node)
            return node
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

    async def _refresh(self, silent: str | None) -> None:
        manager = self._cluster.nodes_manager
        self._owners.see(manager.slots_cache)
        with suppress(RedisClusterException, RedisError, OSError):
            await manager.initialize(last_failed_node_name=silent)
            return self._tell_if_moved()
        # The seeds become startup nodes. If redis-py got them as in ClusterTransport, their connections would never be
        # closed.
        for host, port in self._seeds:
            seed = AsyncClusterNode(host, port, **manager.connection_kwargs)
            manager.startup_nodes.setdefault(seed.name, seed)
        with suppress(RedisClusterException, RedisError, OSError):
            await manager.initialize(last_failed_node_name=silent)
            self._tell_if_moved()

    def _tell_if_moved(self) -> None:
        if self._owners.see(self._cluster.nodes_manager.slots_cache):
            self._tell()

    def _tell(self) -> None:
        for call in self._on_change:
            call()

    async def _look(self, silent: Any) -> bool:
        """Ask another node for the slots of a silent node; return whether the silent node has any.

        The slot map is read again only if slots have moved, since redis-py then reconnects to every node.
        """
        manager = self._cluster.nodes_manager
        routes = [self._route_to(node) for node in manager.nodes_cache.values() if node is not silent]
        # In random order: the first node that answers may be cut off from the others and out of date.
        for route in random.sample(routes, len(routes)):
            if not route.node_transport.is_silent:
                (rows,) = await route.node_transport.transfer(_ROWS)
                if isinstance(rows, list):
                    count = _slots_at(rows, silent)
                    if count != sum(nodes[0] is silent for nodes in manager.slots_cache.values()):
                        await self._refresh(silent.name)
                    return count > 0
        return True


class _Route(NamedTuple):
    """The two transports to one node: its own, and the shared one that callers use."""

    node: Any
    node_transport: ProbingTransport
    shared: AsyncTransport


def _slots_at(rows: Sequence[Sequence[Any]], node: Any) -> int:
    """Return how many slots a node has by the reply to CLUSTER SLOTS."""
    return sum(row[1] - row[0] + 1 for row in rows if _is_at(row[2], node))


def _is_at(place: Sequence[Any], node: Any) -> bool:
    """Return whether an entry of CLUSTER SLOTS is this node; a node that does not know its own host gives no host."""
    host, port = place[0], place[1]
    return int(port) == node.port and (not host or host.decode() == node.host)


class _NodeLender:
    """A pool of connections to the node of a key, which is looked up each time, since slots move."""

    def __init__(self, transport: AsyncClusterTransport, key: str | None, max_connections: int) -> None:
        self._transport = transport
        self._key = key
        self.connection_kwargs: dict[str, Any] = {}
        self.max_connections = max_connections
        self._lent: dict[int, Any] = {}

    async def get_connection(self) -> Any:
        """Lend a connected connection."""
        node = await self._transport.node_of(self._key)
        connection = await lend(node)
        self._lent[id(connection)] = node
        return connection

    async def release(self, connection: Any) -> None:
        """Take a connection back."""
        self._lent.pop(id(connection)).release(connection)
