"""The wait of tasks for a free slot: Erlang's formula for many servers, corrected for the spread of durations.

It assumes independent arrivals, and one queue for all slots.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from fastq.planning.load import Load

_RARE: Final = 0.01


class Range(NamedTuple):
    """The least and the most seconds that a figure of a run may be."""

    least_s: float
    most_s: float


class Waiting(NamedTuple):
    """The probability that a task waits, the mean wait of all tasks in seconds, and the 99th percentile.

    These are the formula's, for one queue. A server picks up a task in up to 2 ms, mostly, and gives children work
    ahead: the ranges hold for its tasks.
    """

    probability: float
    mean_s: float
    p99_s: float

    @property
    def mean_range(self) -> Range:
        """Return the range of the mean wait."""
        return Range(0.85 * self.mean_s, 1.6 * self.mean_s + 0.002)

    @property
    def p99_range(self) -> Range:
        """Return the range of the 99th percentile."""
        return Range(0.7 * self.p99_s, 2 * self.p99_s + 0.004)


def busy_probability(slots: int, offered: float) -> float:
    """Return Erlang C: the probability that all slots are busy, given the mean number of handlers; 1 if overloaded."""
    if offered >= slots:
        return 1.0
    inverse = 1.0  # the inverse of Erlang's B, by recursion over the slots
    for count in range(1, slots + 1):
        inverse = 1 + inverse * count / offered if offered else math.inf
        if inverse > 1e300:
            return 0.0
    blocked = 1 / inverse
    return blocked / (1 - offered / slots * (1 - blocked))


def spread(loads: Sequence[Load]) -> float:
    """Return the squared coefficient of variation of a mix's durations, if all tasks of a load take equally long."""
    rate = sum(load.rate for load in loads)
    mean = sum(load.rate * load.duration for load in loads) / rate if rate else 0.0
    if not mean:
        return 0.0
    return max(0.0, sum(load.rate * (load.duration / mean) ** 2 for load in loads) / rate - 1)


def waiting(slots: int, offered: float, mean_s: float, squared_variation: float) -> Waiting:
    """Estimate the wait for a free slot; ``offered`` is the average number of handlers that run at once.

    This is Erlang's result for random durations, corrected for their actual spread (Allen and Cunneen).
    """
    probability = busy_probability(slots, offered)
    if offered >= slots:
        return Waiting(1.0, math.inf, math.inf)
    correction = (1 + squared_variation) / 2
    scale_s = mean_s / (slots - offered) * correction
    p99_s = scale_s * math.log(probability / _RARE) if probability > _RARE else 0.0
    return Waiting(probability, probability * scale_s, p99_s)
