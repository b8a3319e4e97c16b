"""How long tasks of 1 ms wait where two workers are busy for half or most of the time, in fastq and in huey.

``python -m benchmarks.bench_half_load [--rounds 5] [--seconds 4] [--conditions plain,rtt0.5]``. Each round first takes
huey's rate from a full queue, then fastq's. Then tasks come at random times: to both at 50 and 70 % of huey's rate, and
to fastq at 70 % of its own. Producers, Redis and workers share the machine, so a producer may be behind its own times.
A wait counts from the time that was drawn; the column "producer" has the part of it before the enqueue call returned.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.compare.conditions import CONDITIONS, Condition
from benchmarks.compare.contender import Kind, Place
from benchmarks.compare.contenders import CONTENDERS
from benchmarks.compare.environment import programs_of
from benchmarks.compare.family import Family
from benchmarks.compare.meter import Meter
from benchmarks.compare.producer import Producer
from benchmarks.compare.surroundings import Surroundings, variables
from tests.waiting import wait_until

LIMIT_S: Final = 60.0
PRODUCERS: Final = 2
"""With 0.5 ms of round trip, one that enqueues task by task cannot keep the pace of fastq's workers."""
FULL: Final = 2_000
WARM: Final = 50
SHARES: Final = (0.5, 0.7)


@dataclass(slots=True)
class Waits:
    """The tasks of all rounds at one rate: the rates, how long each task waited, and how much of that was before."""

    rates: list[float] = field(default_factory=list)
    waited_ms: list[float] = field(default_factory=list)
    produced_ms: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        rate = f"{statistics.median(self.rates):.0f}/s"
        before = f"{percentile(self.produced_ms, 0.5):.2f}, {percentile(self.produced_ms, 0.99):.1f}"
        return f"{rate:>8} | {percentile(self.waited_ms, 0.5):.2f}, {percentile(self.waited_ms, 0.99):.1f} | {before}"


def percentile(values: list[float], share: float) -> float:
    """Return the value that this share of all does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


class Running:
    """A contender's workers and producers on a Redis of its own."""

    def __init__(self, name: str, condition: Condition, stack: ExitStack) -> None:
        (contender,) = (one for one in CONTENDERS if one.name == name)
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._meter = Meter.create(directory / "meter")
        there = stack.enter_context(contender.store(condition))
        place = Place(programs_of([contender])[contender], there.port, there.scheme)
        log = stack.enter_context((directory / "log").open("wb"))
        own = {**contender.variables, **there.variables}
        around = Surroundings(variables(directory / "meter", place.url, own), directory, log)
        self._left, self._db = contender.left, stack.enter_context(there.server.client())
        self._family = Family(contender.work(place), around)
        stack.callback(self._family.stop)
        self._producers = [
            stack.enter_context(Producer(contender.produce(place), around, LIMIT_S)) for _ in range(PRODUCERS)
        ]
        self._given = 0
        for producer in self._producers:
            producer.wait_until_ready()
            producer.each("noop", WARM)
            self._wait_for(WARM)

    def rate(self) -> float:
        """Return how many tasks of 1 ms it handles in a second from a full queue."""
        self._family.freeze()
        self._producers[0].many(Kind.MS, FULL)
        began_s = time.perf_counter()
        self._family.thaw()
        self._wait_for(FULL)
        return FULL / (time.perf_counter() - began_s)

    def pace(self, rate: float, seconds: float, waits: Waits) -> None:
        """Let tasks come at random times for some seconds, and add what they waited."""
        count = round(rate * seconds / PRODUCERS)
        known = len(self._meter.late_ms())
        with ThreadPoolExecutor() as threads:
            sent = list(threads.map(lambda one: one.paced("at", count, rate / PRODUCERS), self._producers))
        self._wait_for(count * PRODUCERS)
        waits.rates.append(rate)
        waits.waited_ms += self._meter.late_ms()[known:]
        waits.produced_ms += [late_ns / 1e6 for one in sent for late_ns in one.late_ns]

    def _wait_for(self, count: int) -> None:
        self._given += count
        wait_until(lambda: self._meter.count() >= self._given and not self._left(self._db), LIMIT_S)


def main() -> None:
    """Take the rounds of each condition, and print a table."""
    parser = argparse.ArgumentParser("benchmarks.bench_half_load", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each rate in each round")
    parser.add_argument("--conditions", default="plain,rtt0.5", help=f"of {', '.join(CONDITIONS)}")
    options = parser.parse_args()
    print(
        "| condition | queue | load | tasks | waited p50, p99, ms | producer p50, p99, ms |\n|---|---|---|---|---|---|"
    )
    for condition in options.conditions.split(","):
        found: defaultdict[tuple[str, str], Waits] = defaultdict(Waits)
        for _ in range(options.rounds):
            with ExitStack() as stack:
                huey, fastq = (Running(name, CONDITIONS[condition], stack) for name in ("huey", "fastq"))
                rate, own = huey.rate(), fastq.rate()
                for share in SHARES:
                    load = f"{share:.0%} of huey's"
                    huey.pace(share * rate, options.seconds, found["huey", load])
                    fastq.pace(share * rate, options.seconds, found["fastq", load])
                fastq.pace(SHARES[-1] * own, options.seconds, found["fastq", f"{SHARES[-1]:.0%} of its own"])
        for (name, load), waits in found.items():
            print(f"| {condition} | {name} | {load} | {waits} |", flush=True)


if __name__ == "__main__":
    main()
