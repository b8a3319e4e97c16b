"""What is measured, how much of it, and the samples that come of it."""

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

__all__ = ["BURSTS", "COROUTINE_WAITS", "PACES", "SINGLY", "SIZES", "WAIT_S", "Extent", "Sample", "Samples"]

SIZES: Final = {100: 40_000, 1_000: 30_000, 10_000: 6_000, 100_000: 600}
"""How many tasks of which payload are put into Redis at once: 60 MB at most."""
SINGLY: Final = {100: 800, 10_000: 500}
WAIT_S: Final = 0.005
COROUTINE_WAITS: Final = {"quick coroutines": 0.005, "coroutines": 0.05}
"""Those that wait briefly keep the cores busy; those that wait longer end, and begin, all at once."""
BURSTS: Final = {"50us": (50e-6, 0.4), "1ms": (1e-3, 0.7)}
"""What short handlers compute, and for how many seconds they are run."""
PACES: Final = {"slow": 250.0, "quick": 2_500.0}
_ROUND_S: Final = 15.0
_BYTES: Final = 80_000_000


class Sample(NamedTuple):
    """What a stretch of work used, divided by its tasks, except ``rate``, ``calls_a_s`` and ``others_cores``.

    ``rate`` is tasks a second after the first ones have finished; seconds are CPU seconds, bytes are Redis' network
    traffic and memory.
    """

    tasks: int
    rate: float
    client_s: float
    main_s: float
    child_s: float
    redis_s: float
    received: float
    sent: float
    memory: float
    calls_a_s: float
    others_cores: float


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured: the number of rounds, and their size."""

    rounds: int
    scale: float

    @classmethod
    def of(cls, seconds: float) -> "Extent":
        """Return what takes about so long."""
        rounds = max(2, round(seconds / _ROUND_S))
        return cls(rounds, min(1.0, seconds / (_ROUND_S * rounds)))

    @property
    def bytes(self) -> int:
        """Return how many are in Redis at once, at most."""
        return round(_BYTES * max(self.scale, 0.05))

    @property
    def megabytes(self) -> int:
        """Return the same in MB."""
        return math.ceil(self.bytes / 2**20)

    @property
    def seconds(self) -> float:
        """Return about how long it takes."""
        return self.rounds * self.scale * _ROUND_S

    def count(self, number: float, least: int = 40) -> int:
        """Return how many tasks stand for so many."""
        return max(least, round(number * self.scale))


@dataclass(slots=True)
class Samples:
    """The samples of each trial, one round after the other, and what is measured once."""

    by_trial: dict[str, list[Sample]] = field(default_factory=dict)
    loop_s: float = 0.0
    main_memory: int = 0
    child_memory: int = 0

    def add(self, trial: str, sample: Sample) -> Sample:
        """Keep a sample."""
        self.by_trial.setdefault(trial, []).append(sample)
        return sample
