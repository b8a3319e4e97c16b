"""A contender: how it is started, what it promises, and how to see in Redis that nothing is left of its tasks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from benchmarks.compare.conditions import Store, servers

APPS = "benchmarks.compare.apps"
LAUNCH = "benchmarks.compare.launch"


class Kind(StrEnum):
    """The tasks of which a queue is drained; the value is what producers and handlers are told."""

    NOOP = "noop"
    SHORT = "short"
    MS = "ms"
    FAIL = "fail"
    KEEP = "keep"
    WAIT = "wait"


KINDS: Final[Mapping[Kind, str]] = {
    Kind.NOOP: "no-op tasks",
    Kind.SHORT: "0.2 ms of CPU",
    Kind.MS: "1 ms of CPU",
    Kind.FAIL: "failing, not retried",
    Kind.KEEP: "result of 100 bytes kept",
    Kind.WAIT: "waiting 10 ms",
}
"""What each kind is called in the tables."""


class Guarantee(StrEnum):
    """What becomes of a task whose worker dies while it has it."""

    LEAST = "at least once"
    MOST = "at most once"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a contender's processes run: its interpreter, or its own binary, and its Redis."""

    program: Path
    port: int

    scheme: str = "redis"

    @property
    def url(self) -> str:
        """Return the address of Redis, over loopback TCP for all; a certificate has the name, not the number."""
        host = "localhost" if self.scheme == "rediss" else "127.0.0.1"
        return f"{self.scheme}://{host}:{self.port}/0"


@dataclass(frozen=True, slots=True)
class Rates:
    """Tasks a second; the first guess, by which the first round is sized. Zero: not measured."""

    each: float
    many: float
    noop: float


Command = Sequence[str | Path]


@dataclass(frozen=True, slots=True, eq=False)
class Contender:
    """One row of the comparison."""

    name: str
    title: str
    guarantee: Guarantee
    detail: str  # what the guarantee hangs on, as configured
    settings: str
    guess: Rates
    produce: Callable[[Place], Command]
    work: Callable[[Place], Sequence[Command]]
    left: Callable[[Any], int]  # tasks that are not acknowledged
    environment: str = "own"  # the file of pinned requirements, or "own" for that of this process, or "go"
    package: str = "fastq"  # whose version is told
    kinds: frozenset[Kind] = frozenset(Kind)
    work_waiting: Callable[[Place], Sequence[Command]] | None = None  # for handlers that wait, if set up otherwise
    settings_waiting: str = ""
    latency: bool = True
    handlers: int = 2  # processes that run tasks
    variables: Mapping[str, str] = field(default_factory=dict)
    put_off: Callable[[Any], int] = lambda db: 0  # tasks that are not among those left, since they run later
    store: Store = servers  # what runs its Redis, or what it has in place of it


def module(app: str, *arguments: str) -> Callable[[Place], Command]:
    """Return a command that runs an app's ``main``."""
    return lambda place: [place.program, "-m", LAUNCH, f"{APPS}.{app}", *arguments]


def beside(place: Place, name: str, *arguments: str) -> Command:
    """Return a command that runs a program which the library installed beside its interpreter."""
    return [place.program.parent / name, *arguments]
