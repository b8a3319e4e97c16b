"""The wires between machines and Redis, in place of sockets: redis-py and fastq's transport run on them as they are."""

import asyncio
import re
import select
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

import hiredis

from tests.simulation.faults import REDIS, Fault
from tests.simulation.loop import MACHINE, OUTSIDE, Loop, Machine
from tests.simulation.sites import Server, Site
from tests.simulation.store import Store, pack

LOST: Final = 0.25
"""The share of requests that a lossy wire spoils."""
_READS: Final = {b"PING", b"HELLO", b"CLIENT", b"SUBSCRIBE", b"UNSUBSCRIBE", b"EXISTS", b"ACL", b"INFO"}
_NOT_TOLD: Final = {b"CLIENT", b"INFO", b"HELLO", b"ACL", b"COMMAND"}
"""Their replies name memory, CPU, connections since Redis' start, or are in no order: left out of the trace."""

_OF_ONE_RUN: Final = re.compile(rb'"client_id":\d+,"run_id":"\w+"')
"""What a server tells of its connection, which Redis names anew in each run."""


class Network:
    """All wires, and the faults that are on now; ``tell`` writes the trace."""

    def __init__(self, seed: int, loop: Loop, site: Site, tell: Callable[..., None]) -> None:
        self.seed, self.loop, self.site, self.tell = seed, loop, site, tell
        self.wires: list[Wire] = []
        self.listeners: list[Wire] = []
        self._pushed = select.poll()
        self.faults: list[Fault] = []
        self.made = Counter[str]()
        self.requests = 0
        self.watch: Callable[[bytes], None] | None = None
        """Told of what was carried out."""
        loop.connect = self._connect

    def fault(self, who: str, *kinds: str) -> Fault | None:
        """Return a fault of such a kind that is on at a machine now."""
        if not self.faults:
            return None
        for fault in self.faults:
            if fault.kind in kinds and fault.who == who:
                return fault
        return None

    def fault_of(self, server: Server, kind: str) -> Fault | None:
        """Return a fault of such a kind that is on at a server, or at all."""
        return self.fault(REDIS, kind) or self.fault(server.name, kind)

    async def _connect(self, protocol_factory: Callable[[], Any], host: str, port: int) -> tuple["Wire", Any]:
        machine = MACHINE.get()
        assert machine is not None
        random = Random(f"{self.seed} wire {machine} {self.made[machine.name]}")
        self.made[machine.name] += 1
        await asyncio.sleep(delay_s(random.random))
        while self.fault(machine.name, "partition"):
            await asyncio.sleep(1.0)  # SYNs are lost
        server = self.site.server_at(host, port)
        if server is None or self.fault_of(server, "restart"):
            raise ConnectionRefusedError(f"{host}:{port} refuses connections")
        protocol = protocol_factory()
        wire = Wire(self, machine, server, protocol, random)
        protocol.connection_made(wire)
        return wire, protocol

    def carry_out(self, wire: "Wire", commands: list[Any], packed: bytes = b"") -> bytes:
        """Carry out commands at this instant, and hand on what that makes Redis push to others."""
        packed = packed or pack(commands)
        replies = self.site.carry_out(wire.server, wire.line, commands, wire.machine, packed)
        self.requests += 1
        names = {command[0].upper() for command in commands}
        if b"SUBSCRIBE" in names or (b"CLIENT" in names and any(command[1:2] == [b"TRACKING"] for command in commands)):
            self.listeners.append(wire)
            if wire.line.fileno >= 0:
                self._pushed.register(wire.line.fileno, select.POLLIN)
        if not names <= _READS:
            self.site.wrote(wire.server)
            self.hand_on(wire.server)
            if self.watch:
                self.watch(packed)
        told, is_of_one_run = commands, not names.isdisjoint(_NOT_TOLD) or _OF_ONE_RUN.search(packed) is not None
        if is_of_one_run:
            told = [
                [_OF_ONE_RUN.sub(b"", word) for word in words[: 2 if words[0] == b"CLIENT" else None]]
                for words in commands
            ]
        self.tell("request", wire.name, told, b"..." if is_of_one_run else replies)
        return replies

    def hand_on(self, server: Server) -> None:
        """Hand on what a server has sent by itself."""
        polled = self._pushed.poll(0)
        if not polled and isinstance(server, Store):
            return
        ready = {-1, *(fileno for fileno, _ in polled)}
        for listener in list(self.listeners):
            is_ready = listener.server is server and listener.line.fileno in ready
            if is_ready and (pushed := listener.line.pushed()):
                self.tell("push", listener.name, pushed)
                listener.answer(pushed)

    def forget(self, wire: "Wire") -> None:
        """Take off a wire that has ended."""
        self.wires.remove(wire)
        if wire in self.listeners:
            self.listeners.remove(wire)
            if wire.line.fileno >= 0:
                self._pushed.unregister(wire.line.fileno)
        wire.server.close(wire.line)

    def cut(self, who: Machine | Server | None, *, silently: bool = False) -> None:
        """Break the connections of a machine, those to a server, or all."""
        for wire in [wire for wire in self.wires if who in (None, wire.machine, wire.server)]:
            wire.break_off(silently=silently)


def delay_s(draw: Callable[[], float]) -> float:
    """Draw how long bytes travel: mostly up to a millisecond."""
    least, most = (0.0001, 0.001) if draw() < 0.99 else (0.001, 0.1)
    return least + (most - least) * draw()


def whole_transactions(commands: list[Any], count: int) -> int:
    """Return how many of the first commands have an effect: those of an open transaction have none."""
    names = [command[0].upper() for command in commands[:count]]
    last = max((at for at, name in enumerate(names) if name == b"MULTI"), default=count)
    return count if b"EXEC" in names[last:] else last


class Wire(asyncio.Transport):
    """A connection of a machine to Redis: the transport of its client, and a line to the server."""

    def __init__(self, network: Network, machine: Machine, server: Server, protocol: Any, random: Random) -> None:
        super().__init__()
        self.machine, self.server = machine, server
        self.line = server.open()
        self.name = f"{machine}#{network.made[machine.name]}"
        self._network, self._loop, self._protocol, self._random = network, network.loop, protocol, random
        self._draw = random.random
        self._reader = hiredis.Reader()
        self._arrives_s = self._returns_s = 0.0
        self._is_closing = False
        self._is_open = True
        network.wires.append(self)

    def __repr__(self) -> str:
        return self.name

    # The client's side --------------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._arrives_s = self._after(self._arrives_s)
            self._loop.call_at(self._arrives_s, self._arrive, bytes(data), context=OUTSIDE)

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)
            self._loop.call_later(delay_s(self._draw), self.break_off, context=OUTSIDE)

    abort = close

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    # The way ------------------------------------------------------------------------------------------------------

    def _after(self, earlier_s: float) -> float:
        """Draw when bytes arrive that are sent now: never before what was sent earlier."""
        slow = self._network.fault(self.machine.name, "slow")
        extra_s = self._random.uniform(0, 3) if slow else 0.0
        arrives_s = self._loop.time() + delay_s(self._draw) + extra_s
        return arrives_s if arrives_s > earlier_s else earlier_s

    def _waits(self, what: Callable[..., None], *args: Any) -> bool:
        """Return whether bytes cannot pass yet; they try again."""
        network = self._network
        if network.faults and (network.fault(self.machine.name, "partition") or network.fault_of(self.server, "stall")):
            self._loop.call_later(0.2, what, *args, context=OUTSIDE)
            return True
        return False

    def _arrive(self, data: bytes) -> None:
        if not self._is_open or self._waits(self._arrive, data):
            return
        reader = self._reader
        is_whole = not reader.has_data()
        reader.feed(data)
        commands = []
        while (words := reader.gets()) is not False:
            commands.append(words)
        if not commands:
            return
        lossy = self._network.fault(self.machine.name, "lossy")
        if lossy is None or self._draw() >= LOST:
            is_whole = is_whole and not reader.has_data()
            self.answer(self._network.carry_out(self, commands, data if is_whole else b""))
            return
        # Some of the pipeline is carried out, nothing is answered, and the client may not even learn of the end.
        count = whole_transactions(commands, self._random.randint(0, len(commands)))
        self._network.tell("lost", self, count, len(commands))
        if count:
            self._network.carry_out(self, commands[:count])
        self.break_off(silently=self._random.random() < 0.5)

    def answer(self, data: bytes) -> None:
        """Send bytes to the client."""
        if data and self._is_open:
            self._returns_s = self._after(self._returns_s)
            self._loop.call_at(self._returns_s, self._return, data, context=OUTSIDE)

    def _return(self, data: bytes) -> None:
        if self._is_open and not self._waits(self._return, data):
            machine = self.machine
            if machine.is_still or machine.is_dead:
                self._loop.call_soon(self._receive, data, context=machine.context)
            else:  # a step less
                self._loop.set_clock(machine)
                machine.context.run(self._receive, data)

    def _receive(self, data: bytes) -> None:
        if not self._is_closing:
            self._protocol.data_received(data)

    def break_off(self, *, silently: bool = False) -> None:
        """Break the connection; the client learns of it unless it happens silently."""
        if not self._is_open:
            return
        self._is_open = False
        self._network.forget(self)
        if not silently and not self._is_closing:
            self._loop.call_later(delay_s(self._draw), self._lose, context=self.machine.context)

    def _lose(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._protocol.connection_lost(ConnectionResetError("the connection was cut"))
