"""The trials, their extent, and their samples."""

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

SIZES: Final = {100: 40_000, 1_000: 30_000, 10_000: 6_000, 100_000: 600}
"""The number of tasks of each payload that are in Redis at once: at most 60 MB."""
SINGLY: Final = {100: 800, 10_000: 500}
WAIT_S: Final = 0.005
COROUTINE_WAITS: Final = {"quick coroutines": 0.005, "coroutines": 0.05}
"""The waits of coroutines in seconds. Short waits keep the cores busy; long waits let all begin and end together."""
BURSTS: Final = {"50us": (50e-6, 0.4), "1ms": (1e-3, 0.7)}
"""The CPU times of short handlers, and for how many seconds each is run."""
PACES: Final = {"slow": 250.0, "quick": 2_500.0}
_ROUND_S: Final = 15.0
_BYTES: Final = 80_000_000


class Sample(NamedTuple):
    """The resources that some work used; all but ``rate``, ``calls_a_s`` and ``others_cores`` are per task.

    ``rate`` is tasks per second, from the end of the first tasks on; seconds are CPU seconds, bytes are Redis' network
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
    """The extent of a measurement: the number of rounds, and their size."""

    rounds: int
    scale: float

    @classmethod
    def of(cls, seconds: float) -> "Extent":
        """Return the extent of a measurement that takes about this long."""
        rounds = max(2, round(seconds / _ROUND_S))
        return cls(rounds, min(1.0, seconds / (_ROUND_S * rounds)))

    @property
    def bytes(self) -> int:
        """Return the most bytes that the measurement keeps in Redis at a time."""
        return round(_BYTES * max(self.scale, 0.05))

    @property
    def megabytes(self) -> int:
        """Return ``bytes`` in MB, rounded up."""
        return math.ceil(self.bytes / 2**20)

    @property
    def seconds(self) -> float:
        """Return the approximate duration."""
        return self.rounds * self.scale * _ROUND_S

    def count(self, number: float, least: int = 40) -> int:
        """Return the scaled number of tasks."""
        return max(least, round(number * self.scale))


@dataclass(slots=True)
class Samples:
    """The samples of each trial, round by round, and the figures that are measured once."""

    by_trial: dict[str, list[Sample]] = field(default_factory=dict)
    loop_s: float = 0.0
    main_memory: int = 0
    child_memory: int = 0

    def add(self, trial: str, sample: Sample) -> Sample:
        """Keep a sample."""
        self.by_trial.setdefault(trial, []).append(sample)
        return sample
