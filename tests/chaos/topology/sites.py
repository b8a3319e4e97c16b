"""The two sites: a master, its replica and three sentinels; and a cluster of three masters with a replica each."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from redis import Redis
from redis.exceptions import RedisError

from tests.broker.clusters import slot_of
from tests.chaos.topology.network import Network
from tests.chaos.topology.node import BUS, Node, spawn
from tests.ports import free_port

SLOTS: Final = 16384
DOWN_AFTER_MS: Final = 2000
"""When a node that says nothing counts as gone, in both sites."""

_MOST_KEYS: Final = 10_000
_SOON: Final = ("INFO-PERIOD", "1000", "PUBLISH-PERIOD", "500")

Wait = Callable[[Callable[[], bool], str], None]
"""Waits until something is so; its second argument says what."""


class Shard(NamedTuple):
    """A master, its replica, and the queues that are there."""

    master: Node
    replica: Node
    queues: Sequence[str]


class Site(ABC):
    """Nodes on a network, and what producers and workers need to find them."""

    url: str
    go: dict[str, Any]  # what the Go peer's ``connect`` gets
    queues: Sequence[str]

    def __init__(self, program: str, place: Path, network: Network, count: int) -> None:
        self.program = program
        self.network = network
        self.nodes = [Node(f"node{n}", f"127.0.1.{n + 1}", place / f"node{n}") for n in range(count)]
        for node in self.nodes:
            network.name(node.name, node.address)
            self._give_address(node)

    @property
    def ends(self) -> list[str]:
        """Return the names of all that belong to the site."""
        return [node.name for node in self.nodes]

    def _give_address(self, node: Node) -> None:
        node.port = self.network.open(lambda: (node.name, node.inner))

    def shards(self) -> list[Shard]:
        """Return the pairs of master and replica; none while not each has its other."""
        found = {node: node.replication() for node in self.nodes}
        masters = [node for node, info in found.items() if info.get("role") == "master"]
        replicas = {info["master_port"]: node for node, info in found.items() if info.get("role") == "slave"}
        if {master.port for master in masters} != replicas.keys():
            return []
        return [Shard(master, replicas[master.port], self.queues_on(master)) for master in masters]

    def pairs_are_whole(self) -> bool:
        """Return whether each master has one replica that is up to date, at its present address."""
        found = [node.replication() for node in self.nodes]
        ports = sorted(node.port for node, info in zip(self.nodes, found, strict=True) if info.get("role") == "master")
        linked = sorted(info["master_port"] for info in found if info.get("master_link_status") == "up")
        online = [info for info in found if info.get("slave0", {}).get("state") == "online"]
        return ports == linked and len(online) == len(ports) == len(self.nodes) // 2

    @abstractmethod
    def start(self, wait: Wait) -> None:
        """Start all, and wait until the site is whole."""

    @abstractmethod
    def is_whole(self) -> bool:
        """Return whether every node is in its place, and all agree who is where."""

    @abstractmethod
    def queues_on(self, master: Node) -> list[str]:
        """Return the queues of a master."""

    @abstractmethod
    def revive(self, node: Node, master: Node) -> None:
        """Start a node that was killed, whose replica is the master now."""

    @abstractmethod
    def fail_over(self, shard: Shard) -> bool:
        """Order a planned fail-over; return whether the order was taken."""

    @abstractmethod
    def renew_addresses(self, wait: Wait) -> None:
        """Give every node another address, and shut the old ones."""

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()


class SentinelSite(Site):
    """A master, a replica, three sentinels."""

    def __init__(self, program: str, place: Path, network: Network) -> None:
        super().__init__(program, place, network, 2)
        self._place = place
        self._sentinels = {f"sentinel{n}": free_port() for n in range(3)}
        for number, name in enumerate(self._sentinels):
            network.name(name, f"127.0.2.{number + 1}")
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._sentinels.values())
        self.url = f"redis-sentinel://{hosts}/0?master=mymaster"
        self.go = {"uri": self.url}
        self.queues = ["alpha", "beta", "gamma"]
        self._processes: list[Any] = []

    @property
    def ends(self) -> list[str]:
        return [*super().ends, *self._sentinels]

    def _give_address(self, node: Node) -> None:
        super()._give_address(node)
        node.settings = {"replica-announce-ip": "127.0.0.1", "replica-announce-port": str(node.port)}

    def start(self, wait: Wait) -> None:
        first, second = self.nodes
        first.start(self.program)
        second.start(self.program, replicaof=f"127.0.0.1 {first.port}")
        wait(self.pairs_are_whole, "the replica follows its master")
        for number, (name, port) in enumerate(self._sentinels.items()):
            lines = [
                f"port {port}",
                "bind 127.0.0.1",
                "protected-mode no",
                f"bind-source-addr 127.0.2.{number + 1}",
                "sentinel announce-ip 127.0.0.1",
                f"sentinel announce-port {port}",
                f"sentinel monitor mymaster 127.0.0.1 {first.port} 2",
                f"sentinel down-after-milliseconds mymaster {DOWN_AFTER_MS}",
                "sentinel failover-timeout mymaster 4000",
                f'dir "{self._place}"',
            ]
            file = self._place / f"{name}.conf"
            file.write_text("\n".join([*lines, ""]))
            self._processes.append(spawn([self.program, str(file), "--sentinel"], self._place / f"{name}.log"))
            # They look as often as while they fail over, or a former master would be left alone for 8 s.
            wait(partial(self._tell, port, "DEBUG", *_SOON), f"{name} answers")
        wait(self.is_whole, "the sentinels know the site")

    def is_whole(self) -> bool:
        shards = self.shards() if self.pairs_are_whole() else []
        return bool(shards) and all(self._agrees(port, shards[0]) for port in self._sentinels.values())

    def _agrees(self, port: int, shard: Shard) -> bool:
        with contextlib.suppress(RedisError, OSError, KeyError), Redis(port=port, socket_timeout=2) as sentinel:
            master = sentinel.sentinel_master("mymaster")
            replicas = [one for one in sentinel.sentinel_slaves("mymaster") if one["port"] == shard.replica.port]
            return (
                (master["port"], master["flags"], master["num-other-sentinels"]) == (shard.master.port, "master", 2)
                and bool(replicas)
                and (replicas[0]["flags"], replicas[0]["master-link-status"]) == ("slave", "ok")
            )
        return False

    def queues_on(self, master: Node) -> list[str]:
        return list(self.queues)

    def revive(self, node: Node, master: Node) -> None:
        node.start(self.program, replicaof=f"127.0.0.1 {master.port}")

    def fail_over(self, shard: Shard) -> bool:
        return self._tell(next(iter(self._sentinels.values())), "FAILOVER", "mymaster")

    def _tell(self, port: int, *words: str) -> bool:
        with contextlib.suppress(RedisError, OSError), Redis(port=port, socket_timeout=2) as sentinel:
            execute: Any = sentinel.execute_command
            execute("SENTINEL", *words)
            return True
        return False

    def renew_addresses(self, wait: Wait) -> None:
        """Give the replica another address, promote it, and give the former master one."""
        (shard,) = self.shards()
        self._move(shard.replica, wait)
        wait(lambda: self.fail_over(shard), "the sentinels take the order")
        wait(lambda: shard.replica.replication().get("role") == "master", "the replica is promoted")
        wait(self.is_whole, "the sentinels know the former master as a replica")
        self._move(shard.master, wait)

    def _move(self, replica: Node, wait: Wait) -> None:
        old = replica.port
        self._give_address(replica)
        replica.ask("CONFIG", "SET", "replica-announce-port", replica.port)
        replica.ask("CLIENT", "KILL", "TYPE", "master")
        self.network.shut(old)
        wait(self.pairs_are_whole, "the master knows the new address of the replica")
        for port in self._sentinels.values():  # else they would go on asking at the old one
            self._tell(port, "RESET", "mymaster")
        wait(self.is_whole, "the sentinels know the new address of the replica")

    def stop(self) -> None:
        super().stop()
        for process in self._processes:
            process.kill()
            process.wait()


class Cluster(Site):
    """Three masters with a replica each; clients know a name of the cluster that outlives its nodes' addresses."""

    def __init__(self, program: str, place: Path, network: Network) -> None:
        self._buses: dict[Node, int] = {}
        super().__init__(program, place, network, 6)
        seed = network.open(self._any_node)
        self.url = f"redis-cluster://127.0.0.1:{seed}"
        self.go = {"cluster": [f"127.0.0.1:{seed}"]}
        bounds = [SLOTS * third // 3 for third in range(4)]
        self.queues = [queue for span in pairwise(bounds) for queue in _queues_in(*span)]

    def _any_node(self) -> tuple[str, int]:
        node = next((node for node in self.nodes if node.is_up), self.nodes[0])
        return node.name, node.inner

    def _give_address(self, node: Node) -> None:
        super()._give_address(node)
        self._buses[node] = self.network.open(lambda: (node.name, node.inner + BUS))
        node.settings = {
            "cluster-enabled": "yes",
            "cluster-announce-ip": "127.0.0.1",
            "cluster-announce-port": str(node.port),
            "cluster-announce-bus-port": str(self._buses[node]),
            "cluster-node-timeout": str(DOWN_AFTER_MS),
            "cluster-require-full-coverage": "no",
            "cluster-replica-validity-factor": "0",
            "cluster-allow-replica-migration": "no",
        }

    def start(self, wait: Wait) -> None:
        masters, replicas = self.nodes[:3], self.nodes[3:]
        for node in self.nodes:
            node.start(self.program)
        wait(lambda: all(node.replication() for node in self.nodes), "the nodes answer")
        for number, node in enumerate(masters):
            node.ask("CLUSTER", "ADDSLOTS", *range(SLOTS * number // 3, SLOTS * (number + 1) // 3))
        for number, node in enumerate(self.nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, self._buses[self.nodes[0]])
        wait(lambda: all(len(self._rows(node)) == 6 for node in self.nodes), "the nodes know each other")
        for master, replica in zip(masters, replicas, strict=True):
            wait(partial(self._follows, replica, master), "a replica knows its master")
        wait(self.is_whole, "the cluster is whole")

    def _follows(self, replica: Node, master: Node) -> bool:
        with contextlib.suppress(RedisError):
            replica.ask("CLUSTER", "REPLICATE", master.ask("CLUSTER", "MYID"))
            return True
        return False

    def _rows(self, node: Node) -> list[list[str]]:
        """Return what a node says of all: id, address, flags, master, …, slots."""
        with contextlib.suppress(RedisError, OSError), node.client() as client:
            client.response_callbacks.pop("CLUSTER NODES", None)
            execute: Any = client.execute_command
            return [row.split() for row in str(execute("CLUSTER NODES")).splitlines()]
        return []

    def is_whole(self) -> bool:
        ports = sorted(node.port for node in self.nodes)
        for node in self.nodes:
            rows = self._rows(node)
            flags = {flag for row in rows for flag in row[2].split(",")}
            there = sorted(int(row[1].split("@")[0].rpartition(":")[2]) for row in rows)
            if there != ports or not flags <= {"myself", "master", "slave"}:
                return False
        return self.pairs_are_whole()

    def queues_on(self, master: Node) -> list[str]:
        own = next((row for row in self._rows(master) if "myself" in row[2]), [])
        spans = [[int(end) for end in span.split("-")] for span in own[8:] if not span.startswith("[")]
        return [queue for queue in self.queues if any(span[0] <= slot_of(queue) <= span[-1] for span in spans)]

    def revive(self, node: Node, master: Node) -> None:
        node.start(self.program)

    def fail_over(self, shard: Shard) -> bool:
        with contextlib.suppress(RedisError, OSError):
            shard.replica.ask("CLUSTER", "FAILOVER")
            return True
        return False

    def renew_addresses(self, wait: Wait) -> None:
        """Give all nodes new ports at once, tell them, and shut the old ones together."""
        old = [*(node.port for node in self.nodes), *self._buses.values()]
        for node in self.nodes:
            self._give_address(node)
            node.ask(
                "CONFIG", "SET", "cluster-announce-port", node.port, "cluster-announce-bus-port", self._buses[node]
            )
        wait(self.is_whole, "the nodes know their new addresses")
        for port in old:
            self.network.shut(port)

    def move(self, queue: str, source: Node, target: Node, wait: Wait, piece: int = 20) -> None:
        """Move a queue's slot with all that is in it, as redis-cli does: some keys, a pause, and so on.

        Those of tasks come before the lists that they are in, so that scripts find the one without the other.
        """
        slot = slot_of(queue)
        ids = {node: node.ask("CLUSTER", "MYID") for node in (source, target)}
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        wait(lambda: not self._move_keys(slot, source, target, piece), "the slot's keys have moved")
        masters = [shard.master for shard in self.shards()]
        for node in [target, source, *(one for one in masters if one not in (source, target))]:
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[target])

    def _move_keys(self, slot: int, source: Node, target: Node, most: int) -> int:
        found = source.ask("CLUSTER", "GETKEYSINSLOT", slot, _MOST_KEYS)
        keys = sorted(found, key=lambda key: ":t:" not in str(key))[:most]
        if keys:
            source.ask("MIGRATE", "127.0.0.1", target.inner, "", 0, 5000, "KEYS", *keys)
        return len(keys)


def _queues_in(first: int, end: int) -> list[str]:
    names = (f"queue{n}" for n in range(10_000))
    return [name for name in names if first <= slot_of(name) < end][:2]
