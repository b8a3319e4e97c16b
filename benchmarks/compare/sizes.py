"""How many tasks a turn takes: so many that each measurement lasts about as long for all."""

import statistics
from dataclasses import dataclass

from benchmarks.compare.contender import Rates
from benchmarks.compare.turn import Figures, Plan

__all__ = ["LEAST", "QUICK", "THOROUGH", "Seconds", "fixed", "plan"]


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long each measurement is to last."""

    each: float
    many: float
    noop: float
    ms: float
    latencies: int
    latency_limit: float


THOROUGH = Seconds(each=0.7, many=0.7, noop=1.8, ms=1.2, latencies=60, latency_limit=2.5)
QUICK = Seconds(each=0.2, many=0.2, noop=0.6, ms=0.4, latencies=20, latency_limit=1.0)

LEAST, MOST = 30, 400_000


def plan(guess: Rates, earlier: list[Figures], seconds: Seconds) -> Plan:
    """Size a turn by the contender's earlier turns, or by the guess if there are none."""

    def count(name: str, seconds: float) -> int:
        measured = [getattr(figures, name) for figures in earlier]
        rate: float = statistics.median(measured) if measured else getattr(guess, name)
        return min(MOST, max(LEAST, round(rate * seconds))) if getattr(guess, name) else 0

    return Plan(
        each=count("each", seconds.each),
        many=count("many", seconds.many),
        noop=count("noop", seconds.noop),
        ms=count("ms", seconds.ms),
        latency=seconds.latencies,
        latency_limit_s=seconds.latency_limit,
    )


def fixed(guess: Rates, tasks: int) -> Plan:
    """Size a turn by the number of no-op tasks, whoever runs it."""
    few = max(1, tasks // 10)
    return Plan(each=few, many=tasks, noop=tasks, ms=few if guess.ms else 0, latency=min(few, 60))
