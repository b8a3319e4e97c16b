"""What Redis is in a run: one server here; ``sentinels.py`` and ``cluster.py`` have sites of two.

A site knows its servers by their addresses, carries out what wires bring, and strikes by the faults that are its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from tests.simulation.faults import REDIS, Fault
from tests.simulation.store import Store

if TYPE_CHECKING:
    from tests.simulation.judge import History
    from tests.simulation.loop import Machine
    from tests.simulation.network import Network

URL: Final = "redis://redis:6379"
REFUSALS: Final = {
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "busy": b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
}
"""What a server says while it answers nothing else. In the real one neither lasts for an instant of simulated time."""
_ANSWERED: Final = {b"HELLO", b"AUTH", b"CLIENT", b"SUBSCRIBE", b"UNSUBSCRIBE", b"INFO"}
"""What is carried out all the same."""
NOWHERE: Final = ("127.0.0.1", "1")
"""A master that cannot be reached: its replica refuses writes, as all do."""


class Peer(Protocol):
    """The line of a wire to what is at its other end."""

    fileno: int
    """Of its socket; -1 without one."""

    def carry_out(self, commands: Sequence[Sequence[bytes]], packed: bytes = b"") -> bytes:
        """Carry out commands and return their replies; ``packed`` are their bytes, where these are known."""

    def pushed(self) -> bytes:
        """Return what was sent beside replies."""


class Server(Protocol):
    """What wires lead to: a Redis, or a sentinel."""

    name: str

    def open(self) -> Any:
        """Return a new line."""

    def close(self, line: Any) -> None:
        """Forget a line."""


def draw_between(random: Random, least: float, most: float) -> float:
    """Draw so that each order of magnitude is as likely."""
    return float(least * (most / least) ** random.random())


class Site:
    """One Redis, and what all sites do alike."""

    name = "single"
    url = URL
    names: tuple[str, ...] = ("redis",)
    kinds: ClassVar[Mapping[str, tuple[float, float]]] = {
        "loading": (0.1, 15.0),
        "busy": (0.1, 8.0),
        "read only": (0.1, 15.0),
    }
    """The faults beside those of all sites: for how many seconds each lasts."""
    own = ""
    """The kind that is drawn most often."""
    counts: tuple[int, ...] = (0, 0, 1, 2, 3, 5)
    """How many of them are drawn."""
    has_lanes = False
    network: Network
    history: History

    def __init__(self, directory: Path, shim: Path) -> None:
        self.stores = {name: Store(directory, shim, name, self.options(at)) for at, name in enumerate(self.names)}
        self._refusing: dict[str, str] = {}

    def options(self, at: int) -> Sequence[str]:
        """Return the options of a server's command line."""
        del at
        return ()

    def begin(self, network: Network, history: History) -> None:
        """Be as after a start, on the clock of a run that begins."""
        self.network, self.history = network, history
        for store in self.stores.values():
            self.set_clock(store)
            store.begin()

    def stop(self) -> None:
        for store in self.stores.values():
            store.stop()

    @property
    def now_s(self) -> float:
        return self.network.loop.elapsed_s

    def set_clock(self, store: Store) -> None:
        loop = self.network.loop
        store.page.set(loop.wall_ns(), loop.now_ns)

    def later(self, after_s: float, what: Any, *args: Any) -> None:
        """Call something after a while, on no machine."""
        from tests.simulation.loop import OUTSIDE

        self.network.loop.call_later(after_s, what, *args, context=OUTSIDE)

    # What the network asks for ------------------------------------------------------------------------------------

    def server_at(self, host: str, port: int) -> Server | None:
        """Return what listens at an address, None if nothing does."""
        del host, port
        return self.stores["redis"]

    def carry_out(
        self, server: Any, line: Peer, commands: Sequence[Sequence[bytes]], machine: Machine, packed: bytes
    ) -> bytes:
        """Carry out what a machine has sent to a server, at this instant; ``packed`` are the bytes of the commands."""
        del machine
        if not isinstance(server, Store):
            return line.carry_out(commands)
        self.set_clock(server)
        refusal = REFUSALS.get(self._refusing.get(server.name, ""))
        if refusal is None:
            return line.carry_out(commands, packed)
        return b"".join(line.carry_out([one]) if one[0].upper() in _ANSWERED else refusal for one in commands)

    def wrote(self, server: Server) -> None:
        """Take notice: what was carried out at a server may have changed something."""

    # What the run asks for ----------------------------------------------------------------------------------------

    def ask(self, *words: str) -> Any:
        """Ask the server that has a key; it takes no simulated time."""
        return self.ask_all([words])[0]

    def ask_all(self, commands: Iterable[Sequence[str]]) -> list[Any]:
        """Ask several things, each as ``ask``."""
        return self.store_of("").ask_all(commands)

    def store_of(self, key: str) -> Store:
        """Return the server that has a key."""
        del key
        return self.stores["redis"]

    def replies_of(self, key: str, packed: bytes) -> bytes:
        """Return the bytes of the replies to commands about keys of one slot; they are given as bytes, too."""
        return self.store_of(key).replies_to(packed)

    def ask_each(self, *words: str) -> None:
        """Have each server carry out a command."""
        for store in self.stores.values():
            self.set_clock(store)
            store.ask(*words)
            self.wrote(store)

    # Faults -------------------------------------------------------------------------------------------------------

    def draw_faults(self, seed: int, within_s: float) -> list[Fault]:
        """Draw the faults that are this site's own."""
        random = Random(f"{seed} faults of the site")
        found = []
        for _ in range(random.choice(self.counts)):
            kind = self.own if self.own and random.random() < 0.5 else random.choice(list(self.kinds))
            lasts_s, begins_s = draw_between(random, *self.kinds[kind]), random.uniform(1, within_s)
            found.append(Fault(begins_s, kind, random.choice(self.names), lasts_s, random.random()))
        return found

    def may_strike(self, fault: Fault) -> bool:
        """Return whether a fault makes sense now."""
        return not (fault.kind in REFUSALS and self._refusing.get(fault.who))

    def struck_by(self, fault: Fault) -> str:
        """Return whom the judge is to take for struck."""
        return REDIS if fault.who in self.names else fault.who

    def strike(self, fault: Fault) -> None:
        """Begin a fault of the site's own."""
        match fault.kind:
            case "loading":
                self.network.cut(self.stores[fault.who])
                self.stores[fault.who].ask("SCRIPT", "FLUSH")
                self._refusing[fault.who] = "loading"
            case "busy":
                self._refusing[fault.who] = "busy"
            case "read only":
                self.set_clock(self.stores[fault.who])
                self.stores[fault.who].ask("REPLICAOF", *NOWHERE)
                self.network.hand_on(self.stores[fault.who])

    def heal(self, fault: Fault) -> None:
        """End a fault of the site's own."""
        match fault.kind:
            case "loading" | "busy":
                self._refusing.pop(fault.who, None)
            case "read only":
                self.set_clock(self.stores[fault.who])
                self.stores[fault.who].ask("REPLICAOF", "NO", "ONE")
