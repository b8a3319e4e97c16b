"""A real cluster whose slots can be moved among its nodes."""

from collections.abc import Sequence
from typing import Any

from redis.asyncio import RedisCluster as AsyncRedisCluster
from redis.crc import key_slot

from tests.redis_servers import RedisServer
from tests.waiting import PATIENCE_S

SLOTS = 16384
SHORT_S = 0.2
"""How long is waited for a reply that does not come; those that come may take their time."""
MIGRATE_MS = int(PATIENCE_S * 1000)


class Cluster:
    """The nodes of a cluster; moves slots among them."""

    def __init__(self, nodes: Sequence[RedisServer]) -> None:
        self.nodes = list(nodes)
        self._taken = 0
        self._ids: dict[int, str] = {}

    @property
    def url(self) -> str:
        return "redis-cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def ask(self, node: RedisServer, *words: object) -> Any:
        with node.client() as client:
            execute: Any = client.execute_command
            return execute(*words)

    def id_of(self, node: RedisServer) -> str:
        if node.port not in self._ids:
            self._ids[node.port] = self.ask(node, "CLUSTER", "MYID").decode()
        return self._ids[node.port]

    def queues_on(self, node: RedisServer, count: int = 1) -> list[str]:
        """Return new names of queues, whose slots are a node's."""
        queues: list[str] = []
        while len(queues) < count:
            self._taken += 1
            if self.holds(node, f"queue-{self._taken}"):
                queues.append(f"queue-{self._taken}")
        return queues

    def holds(self, node: RedisServer, queue: str) -> bool:
        """Return whether a node has the slot of a queue at first."""
        first, last = self._slots_of(node)
        return first <= slot_of(queue) <= last

    def _slots_of(self, node: RedisServer) -> tuple[int, int]:
        index = self.nodes.index(node)
        return SLOTS * index // 3, SLOTS * (index + 1) // 3 - 1

    def keys_of(self, node: RedisServer, queue: str) -> list[str]:
        found: list[bytes] = self.ask(node, "CLUSTER", "GETKEYSINSLOT", slot_of(queue), 10_000)
        return sorted(key.decode() for key in found)

    def begin_move(self, queue: str, source: RedisServer, target: RedisServer) -> None:
        self.ask(target, "CLUSTER", "SETSLOT", slot_of(queue), "IMPORTING", self.id_of(source))
        self.ask(source, "CLUSTER", "SETSLOT", slot_of(queue), "MIGRATING", self.id_of(target))

    def move_keys(self, queue: str, source: RedisServer, target: RedisServer) -> None:
        if keys := self.keys_of(source, queue):
            self.ask(source, "MIGRATE", "127.0.0.1", target.port, "", 0, MIGRATE_MS, "KEYS", *keys)

    def end_move(self, queue: str, target: RedisServer) -> None:
        for node in [target, *self.nodes]:
            self.ask(node, "CLUSTER", "SETSLOT", slot_of(queue), "NODE", self.id_of(target))

    def redirections(self, kind: str) -> int:
        """Count the MOVED or ASK that the nodes have answered."""
        return sum(node_errors(node).get(f"errorstat_{kind}", {}).get("count", 0) for node in self.nodes)


def expect_no_reply(client: Any, node: RedisServer) -> None:
    """Let a client of redis-py's wait for the replies of this node no longer than ``SHORT_S``."""
    known = client.get_node("127.0.0.1", node.port)
    if isinstance(client, AsyncRedisCluster):
        known.connection_kwargs["socket_timeout"] = SHORT_S
        for connection in known._connections:
            connection.socket_timeout = SHORT_S
        return
    pool = client.get_redis_connection(known).connection_pool
    pool.connection_kwargs["socket_timeout"] = SHORT_S
    for connection in pool._available_connections:
        connection.socket_timeout = SHORT_S
        if connection._sock is not None:
            connection._sock.settimeout(SHORT_S)


def node_errors(node: RedisServer) -> dict[str, Any]:
    with node.client() as client:
        found: dict[str, Any] = client.info("errorstats")
        return found


def slot_of(queue: str) -> int:
    return int(key_slot(f"{{{queue}}}".encode()))
