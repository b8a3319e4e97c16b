"""What is written down outside Redis while a site is under fire; all times are Unix seconds."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

_REFUSED: Final = re.compile(
    r"asynq: pid=\d+ (\S+ \S+) WARN: Could not remove task id=(\S+) .* err: (.*); Will retry syncing"
)


class Ack(NamedTuple):
    """An enqueue that returned."""

    id: str
    queue: str
    who: str
    at: float

    def line(self) -> str:
        return f"{self.id} {self.queue} {self.who} {self.at:.6f}\n"


class Run(NamedTuple):
    """A run of a handler; ``ended`` is 0 if it did not end."""

    id: str
    who: str
    began: float
    ended: float


class Passage(NamedTuple):
    """The first bytes with a task's id that passed from a client to a node after others had them, or nobody."""

    at: float
    node: str


class Move(NamedTuple):
    """A queue's slot, all of which another node has from then on."""

    queue: str
    node: str
    at: float


class Refusal(NamedTuple):
    """The moment when a server of Go asynq wrote into its log that Redis had refused the ack of a run, and why."""

    id: str
    at: float
    why: str


class Sample(NamedTuple):
    """What INFO said of a master's replication: its history, how much it has written of it, and where that began.

    ``before`` is the history that it continued when it was promoted, and ``branch`` the first offset that it does not
    share with it.
    """

    at: float
    history: str
    offset: int
    before: str
    branch: int


@dataclass
class Fault:
    """A fault, from its beginning until the site was whole again; ``promoted`` is 0 if no replica took over."""

    kind: str
    node: str
    queues: Sequence[str]
    repeats: bool
    began: float
    promoted: float = 0.0
    ended: float = 0.0


@dataclass(frozen=True)
class Books:
    """All that is known at the end: ``left`` has the states of the tasks that are still in Redis."""

    acks: Sequence[Ack]
    runs: Sequence[Run]
    tried: frozenset[str]  # ids that somebody tried to enqueue
    passages: Mapping[str, Sequence[Passage]]
    samples: Mapping[str, Sequence[Sample]]  # by node
    moves: Sequence[Move]
    faults: Sequence[Fault]
    left: Mapping[str, str]
    wait_replicas: int
    refusals: Sequence[Refusal] = ()


def read_acks(path: Path) -> list[Ack]:
    """Read a ledger of producers."""
    rows = (line.split() for line in path.read_text().splitlines())
    return [Ack(id, queue, who, float(at)) for id, queue, who, at in rows]


def read_runs(path: Path, who: str) -> list[Run]:
    """Read a ledger of handlers: a line when a run begins, and one when it ends."""
    begun: dict[tuple[str, str], float] = {}
    runs = []
    for line in path.read_text().splitlines() if path.exists() else ():
        what, id, run, at = line.split()
        if what == "began":
            begun[id, run] = float(at)
        else:
            runs.append(Run(id, who, begun.pop((id, run)), float(at)))
    return [*runs, *(Run(id, who, began, 0.0) for (id, _), began in begun.items())]


def read_refusals(log: str) -> list[Refusal]:
    """Read the log of Go asynq's servers; its times are UTC."""
    rows = (match.groups() for match in _REFUSED.finditer(log))
    return [
        Refusal(id, datetime.strptime(f"{at}+0000", "%Y/%m/%d %H:%M:%S.%f%z").timestamp(), why) for at, id, why in rows
    ]
