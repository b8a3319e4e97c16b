"""The journal: every fault that struck, whom, and from when to when; what the injector knows and nobody else.

Times are CLOCK_MONOTONIC nanoseconds, as in the ledger.
"""

import time
from dataclasses import dataclass, field

from tests.chaos.plan import Fault, Kind


@dataclass
class Strike:
    """A fault that was carried out.

    ``server`` is -1 for the producer, ``generation`` -1 where the fault is not one of processes, ``pids`` are the
    children struck, empty where it was the whole server.
    """

    number: int
    kind: Kind
    server: int
    generation: int = -1
    pids: tuple[int, ...] = ()
    began_ns: int = field(default_factory=time.monotonic_ns)
    ended_ns: int = 0

    def end(self) -> None:
        self.ended_ns = time.monotonic_ns()


class Journal:
    """Keep the strikes, and the faults that found nobody to strike."""

    def __init__(self) -> None:
        self.strikes: list[Strike] = []
        self.missed: list[Fault] = []

    def strike(self, fault: Fault, generation: int = -1, pids: tuple[int, ...] = ()) -> Strike:
        """Write down a fault that strikes now; note its time before anything is done."""
        strike = Strike(fault.number, fault.kind, fault.server, generation, pids)
        self.strikes.append(strike)
        return strike

    def miss(self, fault: Fault) -> None:
        self.missed.append(fault)
