"""How many tasks a turn takes: so many that each measurement lasts about as long for all."""

import statistics
from dataclasses import dataclass

from benchmarks.compare.contender import Contender, Kind
from benchmarks.compare.turn import Figures, Plan


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long each measurement is to last."""

    each: float
    many: float
    noop: float
    others: float  # each other kind
    loaded: float
    latencies: int
    latency_limit: float


THOROUGH = Seconds(each=0.7, many=0.7, noop=1.8, others=1.2, loaded=2.0, latencies=60, latency_limit=2.5)
QUICK = Seconds(each=0.2, many=0.2, noop=0.6, others=0.4, loaded=0.4, latencies=20, latency_limit=1.0)

LEAST, MOST = 30, 400_000


def plan(contender: Contender, earlier: list[Figures], seconds: Seconds) -> Plan:
    """Size a turn by the contender's earlier turns, or by the guess if there are none."""
    guess = contender.guess

    def count(measured: list[float], guessed: float, seconds: float) -> int:
        rate = statistics.median(measured) if measured else guessed
        return min(MOST, max(LEAST, round(rate * seconds)))

    drained = {
        kind: count(
            [figures.drained[kind].rate for figures in earlier if kind in figures.drained],
            _guessed(kind, guess.noop),
            seconds.noop if kind is Kind.NOOP else seconds.others,
        )
        for kind in Kind
        if kind in contender.kinds
    }
    return Plan(
        each=count([figures.each for figures in earlier], guess.each, seconds.each),
        many=count([figures.many for figures in earlier], guess.many, seconds.many),
        drained=drained,
        latency=seconds.latencies if contender.latency else 0,
        latency_limit_s=seconds.latency_limit,
        loaded_s=seconds.loaded if contender.latency and Kind.MS in drained else 0.0,
    )


def fixed(contender: Contender, tasks: int) -> Plan:
    """Size a turn by the number of no-op tasks, whoever runs it."""
    few = max(1, tasks // 10)
    drained = {kind: tasks if kind is Kind.NOOP else few for kind in Kind if kind in contender.kinds}
    latency = min(few, 60) if contender.latency else 0
    return Plan(each=few, many=tasks, drained=drained, latency=latency)


def _guessed(kind: Kind, noop: float) -> float:
    """Return a rate for the first round, from that of no-ops."""
    if kind in (Kind.FAIL, Kind.KEEP):
        return noop / 4
    cores = 2
    waits_s = {Kind.SHORT: 0.0002, Kind.MS: 0.001, Kind.WAIT: 0.001}
    return 1 / (1 / noop + waits_s.get(kind, 0.0) / cores)
