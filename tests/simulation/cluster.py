"""A Cluster of two nodes whose slots move, key by key, while servers work.

The nodes are real and know each other from a file. Their bus leads nowhere: the simulation moves slots as an operator
does, and carries what is published from node to node.
"""

import socket
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

import hiredis
from redis.crc import key_slot

from tests.simulation.faults import Fault
from tests.simulation.judge import OF_SLOTS, History
from tests.simulation.network import Network
from tests.simulation.sites import Server, Site
from tests.simulation.store import Line, Store

HOSTS: Final = {"node-1": "127.0.0.2", "node-2": "127.0.0.3"}
IDS: Final = {"node-1": "a" * 40, "node-2": "b" * 40}
HALF: Final = 8192
MOVABLE: Final = ("asynq:{default}:x", "asynq:{low}:x", "asynq:queues", "asynq:servers", "asynq:workers")
"""Keys whose slots move."""
AGAIN_S: Final = 0.5
"""When a move goes on that was to be over, and whose target takes no writes."""
LATEST: Final = 6
"""Of so many tasks that came last, one is moved mostly: these are in flight."""
NO_BUS: Final = "1"
"""A port of the loopback where nothing listens."""


class Cluster(Site):
    """The site; ``owners`` has who serves each slot that moves."""

    name = "cluster"
    url = f"redis-cluster://{','.join(HOSTS.values())}"
    names = tuple(HOSTS)
    kinds: ClassVar = {
        "move": (0.1, 40.0),
        "loading": (0.1, 15.0),
        "busy": (0.1, 8.0),
        "stall": (0.1, 12.0),
        "restart": (0.1, 10.0),
    }

    own = "move"
    counts = (1, 2, 3, 5, 8)

    def __init__(self, directory: Path, shim: Path) -> None:
        self._directory = directory
        super().__init__(directory, shim)
        for store in self.stores.values():
            self._join(store)

    def options(self, at: int) -> Sequence[str]:
        name = self.names[at]
        rows = []
        for number, one in enumerate(self.names):
            me, slots = "myself," if one == name else "", f"{number * HALF}-{(number + 1) * HALF - 1}"
            rows.append(f"{IDS[one]} {HOSTS[one]}:6379@{NO_BUS} {me}master - 0 0 {number + 1} connected {slots}")
        file = self._directory / f"{name}.nodes"
        file.write_text("\n".join([*rows, "vars currentEpoch 2 lastVoteEpoch 0\n"]))
        with socket.create_server((HOSTS[name], 0)) as free:
            port = str(free.getsockname()[1])
        words = f"--cluster-enabled yes --cluster-config-file {file.name} --bind {HOSTS[name]} --cluster-port {port} "
        words += f"--cluster-announce-ip {HOSTS[name]} --cluster-announce-port 6379 "
        words += f"--cluster-announce-bus-port {NO_BUS} --cluster-node-timeout 2000000000"
        return words.split()

    def _join(self, store: Store) -> None:
        """Let time pass until the node says that its cluster is well."""
        for ms in range(0, 60_000, 100):
            store.page.set(1_699_999_900 * 10**9 + ms * 10**6, 10**9 + ms * 10**6)
            if b"cluster_state:ok" in store.raw((b"CLUSTER", b"INFO"))[0]:
                return
        raise TimeoutError("the cluster is not well")

    def begin(self, network: Network, history: History) -> None:
        super().begin(network, history)
        self.owners = {slot: self._first_owner(slot) for slot in map(slot_of, MOVABLE)}
        self._moving: dict[int, str] = {}
        for slot, owner in self.owners.items():
            for store in self.stores.values():
                store.ask("CLUSTER", "SETSLOT", str(slot), "STABLE")
                store.ask("CLUSTER", "SETSLOT", str(slot), "NODE", IDS[owner])
        self._heard: dict[str, Line] = {}
        for name, store in self.stores.items():
            line = self._heard[name] = store.open()
            line.carry_out([(b"PSUBSCRIBE", b"*")])

    def _first_owner(self, slot: int) -> str:
        return self.names[slot // HALF]

    def owner_of(self, key: str) -> str:
        slot = slot_of(key)
        return self.owners.get(slot) or self._first_owner(slot)

    def other(self, name: str) -> str:
        return next(one for one in self.names if one != name)

    # What network and run ask for ---------------------------------------------------------------------------------

    def server_at(self, host: str, port: int) -> Server | None:
        del port
        return next((store for name, store in self.stores.items() if HOSTS[name] == host), None)

    def wrote(self, server: Server) -> None:
        """Publish on the other node what was published on this one, as the bus does."""
        data = self._heard[server.name].pushed()
        if not data:
            return
        other = self.stores[self.other(server.name)]
        reader = hiredis.Reader()
        reader.feed(data)
        self.set_clock(other)
        while (message := reader.gets()) is not False:
            other.raw((b"PUBLISH", message[2], message[3]))
        self._heard[other.name].pushed()  # its own echo
        self.network.hand_on(other)

    def store_of(self, key: str) -> Store:
        return self.stores[self.owner_of(key)]

    def ask_all(self, commands: Iterable[Sequence[str]]) -> list[Any]:
        asked = list(commands)
        answers: dict[int, Any] = {}
        for name, store in self.stores.items():
            here = [at for at, words in enumerate(asked) if words[0] != "KEYS" and self.owner_of(words[1]) == name]
            answers |= zip(here, store.ask_all([asked[at] for at in here]) if here else (), strict=True)
        return [self._of_both(words, answers.get(at)) for at, words in enumerate(asked)]

    def _of_both(self, words: Sequence[str], answer: Any) -> Any:
        """Return an answer of a key's owner, or that of the other node if it lies with that."""
        if words[0] == "KEYS":
            return [key for store in self.stores.values() for key in store.ask(*words)]
        if isinstance(answer, hiredis.ReplyError):  # ASK: the key has moved already, or is nowhere
            other = self.stores[self.other(self.owner_of(words[1]))]
            return text_of(other.raw((b"ASKING",), [word.encode() for word in words])[1])
        return answer

    # Faults -------------------------------------------------------------------------------------------------------

    def may_strike(self, fault: Fault) -> bool:
        if fault.kind == "move":
            return slot_of(key_for(fault)) not in self._moving
        return super().may_strike(fault)

    def struck_by(self, fault: Fault) -> str:
        # Slots that move are no reason to run a task again.
        return OF_SLOTS if fault.kind == "move" else super().struck_by(fault)

    def strike(self, fault: Fault) -> None:
        match fault.kind:
            case "move":
                self._move(slot_of(key_for(fault)), fault.lasts_s, Random(f"{self.network.seed} move {fault.begins_s}"))
            case "restart":
                self.network.cut(self.stores[fault.who])
                self.stores[fault.who].ask("SCRIPT", "FLUSH")
            case _:
                super().strike(fault)

    def heal(self, fault: Fault) -> None:
        match fault.kind:
            case "move":
                self._end_move(slot_of(key_for(fault)))
            case _:
                super().heal(fault)

    def _move(self, slot: int, lasts_s: float, random: Random) -> None:
        """Begin to move a slot; its keys go one by one, at moments that are drawn."""
        source = self.owners[slot]
        target = self._moving[slot] = self.other(source)
        self.network.tell("move", slot, source, target)
        self.stores[target].ask("CLUSTER", "SETSLOT", str(slot), "IMPORTING", IDS[source])
        self.stores[source].ask("CLUSTER", "SETSLOT", str(slot), "MIGRATING", IDS[target])
        for at_s in sorted(random.uniform(0, lasts_s) for _ in range(random.randint(0, 60))):
            self.later(at_s, self._move_one, slot, random)

    def _move_one(self, slot: int, random: Random) -> None:
        if slot in self._moving and (keys := self._keys_in(slot)):
            of_tasks = [key for key in keys if b":t:" in key][-LATEST:]
            self._move_keys(slot, [random.choice(of_tasks if of_tasks and random.random() < 0.7 else keys)])

    def _keys_in(self, slot: int) -> list[bytes]:
        source = self.stores[self.owners[slot]]
        return sorted(source.raw((b"CLUSTER", b"GETKEYSINSLOT", b"%d" % slot, b"1000000"))[0])

    def _move_keys(self, slot: int, keys: Sequence[bytes]) -> None:
        """Move keys, each at once on both nodes, as MIGRATE does."""
        source, target = self.stores[self.owners[slot]], self.stores[self._moving[slot]]
        for store in (source, target):
            self.set_clock(store)
        for key in keys:
            data, ttl_ms = source.raw((b"DUMP", key), (b"PTTL", key))
            if data is not None:
                ttl = b"%d" % max(ttl_ms, 0)
                answers = target.raw((b"ASKING",), (b"RESTORE", key, ttl, data, b"REPLACE"))
                if answers[1] == b"OK":  # else the target takes no writes
                    source.raw((b"DEL", key))
        self.network.tell("moved", slot, *keys)
        for store in (source, target):
            self.network.hand_on(store)

    def _end_move(self, slot: int) -> None:
        self._move_keys(slot, self._keys_in(slot))
        if self._keys_in(slot):
            return self.later(AGAIN_S, self._end_move, slot)
        source, target = self.owners[slot], self._moving.pop(slot)
        for name in (target, source):
            answer = self.stores[name].ask("CLUSTER", "SETSLOT", str(slot), "NODE", IDS[target])
            assert answer == "OK", answer
        self.owners[slot] = target


def key_for(fault: Fault) -> str:
    """Return a key whose slot a fault is about: mostly that of a queue."""
    return MOVABLE[int(fault.amount * 2.5)] if fault.amount < 0.8 else MOVABLE[2 + int((fault.amount - 0.8) * 15)]


@cache
def slot_of(key: str) -> int:
    return int(key_slot(key.encode()))


def text_of(answer: Any) -> Any:
    """Return an answer as ``Store.ask`` gives it."""
    if isinstance(answer, list):
        return [text_of(one) for one in answer]
    return answer.decode(errors="surrogateescape") if isinstance(answer, bytes) else answer
