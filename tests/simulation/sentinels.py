"""A master and a replica that sentinels watch, and fail-overs that lose what the replica had not got.

Both servers are real. The simulation is the replica's link: it asks the master for its stream of writes, as a replica
does, keeps it for the lag that the seed has drawn, and carries it out at the other server, which is told to follow a
master that cannot be reached, so that it refuses everybody else's writes. The sentinels are peers of the simulation:
each has its own opinion of who the master is, and learns of a switch late.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

import hiredis

from tests.simulation.faults import REDIS, Fault
from tests.simulation.happenings import Undone
from tests.simulation.judge import History, RolledBack
from tests.simulation.loop import Machine
from tests.simulation.network import Network
from tests.simulation.sites import NOWHERE, Peer, Server, Site, draw_between
from tests.simulation.store import Line, Store

MASTER: Final = "mymaster"
COUNT: Final = 3
DOWN_AFTER_S: Final = 2.0
FOLLOWED_S: Final = 5.0
"""Within so long after all sentinels have named the new master nobody talks to the former one."""
_ID: Final = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|t\d{4}|[bgl]\d{3}|[ak]\d")
_CHECKPOINT: Final = re.compile(rb'fastq-checkpoint\x12.("[^"]+")', re.DOTALL)
"""A checkpoint among the headers of a message; its data names the run and is written once."""

Unit = list[tuple[bytes, ...]]
"""What a master has replicated as one: a command, or those of a script."""


class Pair(Site):
    """The site."""

    name = "sentinel"
    url = f"redis-sentinel://{','.join(f'sentinel-{number + 1}' for number in range(COUNT))}?master={MASTER}"
    names = ("redis-1", "redis-2")
    kinds: ClassVar = {
        "fail-over": (3.0, 60.0),
        "sentinel": (1.0, 60.0),
        "loading": (0.1, 15.0),
        "busy": (0.1, 8.0),
        "stall": (0.1, 12.0),
    }

    own = "fail-over"
    counts = (1, 2, 3, 5, 8)

    def __init__(self, directory: Path, shim: Path) -> None:
        super().__init__(directory, shim)
        for store in self.stores.values():
            make_backlog(store)

    def options(self, at: int) -> Sequence[str]:
        del at
        words = "--repl-backlog-ttl 0 --repl-timeout 2000000000 --repl-ping-replica-period 2000000000"
        return f"{words} --repl-diskless-sync no".split()

    def begin(self, network: Network, history: History) -> None:
        for store in self.stores.values():
            store.ask("REPLICAOF", "NO", "ONE")
        super().begin(network, history)
        self.master = self.stores[self.names[0]]
        self.sentinels = {f"sentinel-{number + 1}": Sentinel(self, number + 1) for number in range(COUNT)}
        self._epoch = 0
        """How many masters were promoted."""
        self._lag_s = 0.001
        self._streams = {self.master.name: Stream(self.master)}
        self._coming: list[tuple[float, Unit]] = []
        """What the replica has not got, and since when."""
        self._saved: set[str] = set()
        """The checkpoints that no fail-over can lose any more."""
        self._former: Store | None = None
        self._dead: set[str] = set()
        self._is_switching = False
        """Whether the master is being replaced, and no other is it yet."""
        self._cut_off_s = 0.0
        """Until when the replica has all, of a master that is out of its reach."""
        self._known_s = float("inf")
        """When the last sentinel has named the new master, while the former one is not yet its replica."""
        self._follow(self._replica)

    @property
    def _replica(self) -> Store:
        return next(store for store in self.stores.values() if store is not self.master)

    # What network and run ask for ---------------------------------------------------------------------------------

    def server_at(self, host: str, port: int) -> Server | None:
        del port
        is_down = host in self._dead or self.network.fault(host, "sentinel")
        return None if is_down else self.sentinels.get(host) or self.stores.get(host)

    def store_of(self, key: str) -> Store:
        del key
        return self.master

    def carry_out(
        self, server: Any, line: Peer, commands: Sequence[Sequence[bytes]], machine: Machine, packed: bytes
    ) -> bytes:
        if server is self._former and self.now_s > self._known_s + FOLLOWED_S:
            self._note_stale(machine, commands, self._known_s)
        if server is self._replica and self._former is None and not self._is_switching:
            self._catch_up(self._lag_s)
        return super().carry_out(server, line, commands, machine, packed)

    def _note_stale(self, machine: Machine, commands: Sequence[Sequence[bytes]], since_s: float) -> None:
        names = {bytes(command[0]).upper() for command in commands}
        if names & {b"EVALSHA", b"EVAL"} and not self.history.is_struck(machine.name, since_s, self.now_s):
            self.history.stale.append(f"{machine} talks to {self._former} at {self.now_s:.3f}, known {since_s:.3f}")

    def wrote(self, server: Server) -> None:
        """Read what a master has replicated."""
        if (stream := self._streams.get(server.name)) is None:
            return
        for unit in stream.read():
            if server is self.master:
                self._coming.append((self.now_s, unit))
                if self._former is not None:
                    self._saved.update(checkpoints_in(unit))  # it has no replica that could take its place
            else:
                self._roll_back(unit)

    # Replication --------------------------------------------------------------------------------------------------

    def _follow(self, store: Store) -> None:
        """Make a server the replica of the master, with a copy of all it has."""
        self.set_clock(store)
        self.set_clock(self.master)
        if (stream := self._streams.pop(store.name, None)) is not None:
            stream.close()
        store.ask("REPLICAOF", *NOWHERE)
        store.ask("CONFIG", "SET", "replica-read-only", "no")
        store.ask("FLUSHALL")
        for key in sorted(self.master.raw((b"KEYS", b"*"))[0]):
            data, ttl_ms = self.master.raw((b"DUMP", key), (b"PTTL", key))
            if data is not None:
                store.raw((b"RESTORE", key, b"%d" % max(ttl_ms, 0), data))
        store.ask("CONFIG", "SET", "replica-read-only", "yes")
        self.wrote(self.master)
        self._coming.clear()
        self.network.hand_on(store)

    def _catch_up(self, lag_s: float) -> None:
        """Carry out at the replica what has been under way for as long as the lag."""
        due = [unit for at_s, unit in self._coming if at_s <= self.now_s - lag_s]
        if due:
            del self._coming[: len(due)]
            replica = self._replica
            self.set_clock(replica)
            replica.ask("CONFIG", "SET", "replica-read-only", "no")
            for unit in due:
                replica.raw(*unit)
                self._saved.update(checkpoints_in(unit))
            replica.ask("CONFIG", "SET", "replica-read-only", "yes")
            self.network.hand_on(replica)

    def _roll_back(self, unit: Unit) -> None:
        # Later writes about a task repeat its checkpoint: that of one which the new master has is not lost with them.
        self.history.others += [Undone(self.now_s, data) for data in checkpoints_in(unit) if data not in self._saved]
        for command in unit:
            for word in command:
                for found in {id.decode() for id in _ID.findall(word)}:
                    for name in [found, *(name for name in self.history.sent if name.startswith(f"{found}#"))]:
                        self.history.note(RolledBack(self.now_s, name))

    # Faults -------------------------------------------------------------------------------------------------------

    def may_strike(self, fault: Fault) -> bool:
        if fault.kind == "fail-over":
            return self._former is None and not self._is_switching
        return super().may_strike(fault)

    def struck_by(self, fault: Fault) -> str:
        return "sentinels" if fault.kind == "sentinel" else REDIS if fault.who in self.names else fault.who

    def strike(self, fault: Fault) -> None:
        match fault.kind:
            case "fail-over":
                self._fail_over(fault, Random(f"{self.network.seed} fail-over {fault.begins_s}"))
            case "sentinel":
                self.network.cut(self.sentinels[fault.who])
            case _:
                super().strike(fault)

    def heal(self, fault: Fault) -> None:
        match fault.kind:
            case "fail-over":
                self._rejoin(fault)
            case "sentinel":
                pass
            case _:
                super().heal(fault)

    def draw_faults(self, seed: int, within_s: float) -> list[Fault]:
        random = Random(f"{seed} sentinels")
        return [
            fault._replace(who=f"sentinel-{random.randint(1, COUNT)}") if fault.kind == "sentinel" else fault
            for fault in super().draw_faults(seed, within_s)
        ]

    def _fail_over(self, fault: Fault, random: Random) -> None:
        """Begin: the master dies, is cut off from all but clients, or is replaced for no reason."""
        how = random.choice(("killed", "split", "planned"))
        self._is_switching = True
        self._lag_s = 0.0 if random.random() < 0.3 else random.uniform(0.0, 2.0)
        self._cut_off_s = self.now_s - self._lag_s
        self.network.tell("fail-over", self.master.name, how, self._lag_s)
        promoted_s = random.uniform(0.0, 0.2) if how == "planned" else min(DOWN_AFTER_S, fault.lasts_s / 2)
        if how == "killed":
            self._dead.add(self.master.name)
            self.network.cut(self.master, silently=random.random() < 0.3)
        for sentinel in self.sentinels.values():
            sentinel.sees_down = how != "planned" and random.random() < 0.7
        self.later(promoted_s, self._promote, fault, random, how)

    def _promote(self, fault: Fault, random: Random, how: str) -> None:
        former, promoted = self.master, self._replica
        self.set_clock(promoted)
        self._catch_up(self._lag_s if how == "planned" else self.now_s - self._cut_off_s)
        lost, self._coming = [unit for _, unit in self._coming], []
        for unit in lost:
            self._roll_back(unit)
        promoted.ask("REPLICAOF", "NO", "ONE")
        self._streams[promoted.name] = Stream(promoted)
        self.master, self._former, self._is_switching = promoted, former, False
        self._epoch += 1
        self.network.tell("promoted", promoted.name, len(lost))
        self.network.hand_on(promoted)
        rest_s = fault.ends_s - self.now_s
        delays_s = [min(draw_between(random, 0.01, 20.0), rest_s * 0.9) for _ in self.sentinels]
        if how == "split" and random.random() < 0.5:
            delays_s[random.randrange(COUNT)] = rest_s - 0.01  # beside the former master, on its side
        for delay_s, sentinel in zip(delays_s, self.sentinels.values(), strict=True):
            self.later(delay_s, sentinel.hear_of, promoted.name, self._epoch)
        self._known_s = self.now_s + max(delays_s)
        if how == "planned":
            self.later(min(draw_between(random, 0.05, 10.0), rest_s * 0.9), self._demote, former, random.random() < 0.8)

    def _demote(self, former: Store, ends_connections: bool) -> None:
        if self._former is former:
            self._former, self._known_s = None, float("inf")
            self._dead.discard(former.name)
            self.network.tell("demoted", former.name, ends_connections)
            self._follow(former)
            if ends_connections:
                self.network.cut(former)

    def _rejoin(self, fault: Fault) -> None:
        if self._former is not None:
            self._demote(self._former, fault.amount < 0.8)
        self._lag_s = 0.001


def checkpoints_in(unit: Unit) -> list[str]:
    """Return the checkpoints of the messages that a master has replicated."""
    return [data.decode() for command in unit for word in command for data in _CHECKPOINT.findall(word)]


class Sentinel:
    """A sentinel: what it takes for the master, and since which switch; it tells its subscribers of a new one."""

    def __init__(self, site: Pair, number: int) -> None:
        self.name, self._site = f"sentinel-{number}", site
        self.address, self.epoch, self.sees_down = site.master.name, 0, False
        self._lines: list[SentinelLine] = []

    def __repr__(self) -> str:
        return self.name

    def open(self) -> "SentinelLine":
        self._lines.append(SentinelLine(self))
        return self._lines[-1]

    def close(self, line: "SentinelLine") -> None:
        self._lines.remove(line)

    def hear_of(self, address: str, epoch: int) -> None:
        """Take another server for the master, and tell; news of a switch that has been followed by another is none."""
        if epoch <= self.epoch:
            return
        former, self.address, self.sees_down = self.address, address, False
        self.epoch = epoch
        text = f"{MASTER} {former} 6379 {address} 6379"
        for line in self._lines:
            line.tell("+switch-master", text)
        self._site.network.tell("sentinel", self.name, text)
        self._site.network.hand_on(self)

    def answer(self, words: Sequence[str], *, maps: bool) -> bytes:
        match [word.upper() for word in words[:2]]:
            case ["SENTINEL", "MASTER"]:
                flags = "s_down,o_down,master" if self.sees_down else "master"
                fields = {"name": MASTER, "ip": self.address, "port": "6379", "flags": flags}
                fields |= {"config-epoch": str(self.epoch), "num-slaves": "1", "quorum": "2"}
                return (b"%%%d\r\n" % len(fields) if maps else b"*%d\r\n" % (2 * len(fields))) + b"".join(
                    bulk(part) for pair in fields.items() for part in pair
                )
            case ["SENTINEL", "GET-MASTER-ADDR-BY-NAME"]:
                return b"*2\r\n" + bulk(self.address) + bulk("6379")
            case ["HELLO", "3"]:
                return b"%2\r\n" + bulk("mode") + bulk("sentinel") + bulk("proto") + b":3\r\n"
            case ["PING", *_]:
                return b"+PONG\r\n"
            case ["CLIENT", *_]:
                return b"+OK\r\n"
        return b"-ERR unknown command\r\n"


class SentinelLine:
    """A connection to a sentinel."""

    fileno = -1

    def __init__(self, sentinel: Sentinel) -> None:
        self._sentinel = sentinel
        self._channels: list[str] = []
        self._told = b""
        self._has_maps = False
        """Whether it speaks RESP3."""

    def carry_out(self, commands: Sequence[Sequence[bytes]], packed: bytes = b"") -> bytes:
        del packed
        return b"".join(self._answer([word.decode() for word in command]) for command in commands)

    def _answer(self, words: Sequence[str]) -> bytes:
        if words[0].upper() not in ("SUBSCRIBE", "UNSUBSCRIBE"):
            self._has_maps = self._has_maps or words[0].upper() == "HELLO"
            return self._sentinel.answer(words, maps=self._has_maps)
        replies = []
        for channel in words[1:]:
            if words[0].upper() == "SUBSCRIBE":
                self._channels.append(channel)
            replies.append(self._push + bulk(words[0].lower()) + bulk(channel) + b":%d\r\n" % len(self._channels))
        return b"".join(replies)

    @property
    def _push(self) -> bytes:
        return b">3\r\n" if self._has_maps else b"*3\r\n"

    def tell(self, channel: str, text: str) -> None:
        if channel in self._channels:
            self._told += self._push + bulk("message") + bulk(channel) + bulk(text)

    def pushed(self) -> bytes:
        told, self._told = self._told, b""
        return told


class Stream:
    """What a master replicates from now on; the reader is a replica that never asks for more."""

    def __init__(self, master: Store) -> None:
        said = dict(row.split(":") for row in master.ask("INFO", "replication").split("\r\n") if ":" in row)
        self._master, self._line = master, master.open()
        self._line.send(b"PSYNC", said["master_replid"].encode(), b"%d" % (int(said["master_repl_offset"]) + 1))
        self._reader = hiredis.Reader()
        master.raw()
        self._reader.feed(self._line.pushed())
        answer = self._reader.gets()
        assert answer == b"CONTINUE", answer

    def read(self) -> Iterator[Unit]:
        """Yield what has been replicated since the last call."""
        self._reader.feed(self._line.pushed())
        unit: Unit | None = None
        while (words := self._reader.gets()) is not False:
            match words[0].upper():
                case b"SELECT" | b"PING" | b"REPLCONF":
                    pass
                case b"MULTI":
                    unit = []
                case b"EXEC":
                    yield unit or []
                    unit = None
                case _ if unit is None:
                    yield [tuple(words)]
                case _:
                    unit.append(tuple(words))
        assert unit is None, "half of a transaction"

    def close(self) -> None:
        self._master.close(self._line)


def make_backlog(store: Store) -> None:
    """Have a replica ask for all once: only then the server keeps what others can go on from."""
    line: Line = store.open()
    line.send(b"PSYNC", b"?", b"-1")
    for ms in range(0, 60_000, 100):
        store.page.set(1_699_999_900 * 10**9 + ms * 10**6, 10**9 + ms * 10**6)
        if "rdb_bgsave_in_progress:0" in store.ask("INFO", "persistence"):
            break
    store.close(line)


def bulk(text: str) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text.encode()), text.encode())
