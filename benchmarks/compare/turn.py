"""One contender's turn: on a Redis of its own, enqueue one by one and in bulk, latency, and a full queue of each kind.

The queue is filled while the workers, warm, are stopped by signal; the time runs from the signal that lets them go on
to the moment when all tasks are counted and none is left unacknowledged in Redis.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.compare.conditions import PLAIN, Condition
from benchmarks.compare.contender import Command, Contender, Kind, Place
from benchmarks.compare.family import Family
from benchmarks.compare.meter import Meter
from benchmarks.compare.producer import Producer, TurnError
from benchmarks.compare.surroundings import Surroundings, variables

PATIENCE_S = 60.0  # for anything that should take seconds
WARM_UP_S = 3.0
FILL_S = 2.0  # who is frozen for longer finds its connections timed out
POLL_S = 0.002
LOAD = 0.7


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of each is done in a turn; zero leaves a measurement out."""

    each: int
    many: int
    latency: int
    drained: Mapping[Kind, int]
    latency_limit_s: float = 3.0
    loaded_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Drained:
    """What it took to empty a full queue: tasks a second, µs of CPU a task."""

    rate: float
    worker_us: float
    redis_us: float


@dataclass(slots=True)
class Figures:
    """What a turn gave: tasks a second, µs of CPU a task, milliseconds, megabytes; zero for what was left out."""

    each: float = 0.0
    many: float = 0.0
    each_producer_us: float = 0.0
    each_redis_us: float = 0.0
    many_producer_us: float = 0.0
    many_redis_us: float = 0.0
    pss_mb: float = 0.0
    latency_ms: list[float] = field(default_factory=list)
    loaded_ms: list[float] = field(default_factory=list)
    drained: dict[Kind, Drained] = field(default_factory=dict)

    @classmethod
    def of_json(cls, raw: dict[str, Any]) -> "Figures":
        """Return the figures that ``as_json`` returned."""
        drained = {Kind(kind): Drained(**each) for kind, each in raw["drained"].items()}
        return cls(**{**raw, "drained": drained})

    def as_json(self) -> dict[str, Any]:
        """Return the figures as they are kept."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn needs: whose it is, with which program, how much of it, and where its output goes."""

    contender: Contender
    program: Path
    plan: Plan
    directory: Path
    condition: Condition = PLAIN


def take_turn(turn: Turn) -> Figures:
    """Measure a contender once. Raises TurnError if it does not do what it should; its output is in the log."""
    path = turn.directory / f"{turn.contender.name}.meter"
    meter = Meter.create(path)
    log = (turn.directory / f"{turn.contender.name}.log").open("wb")
    try:
        with log, turn.contender.store(turn.condition) as there, there.server.client() as db:
            place = Place(turn.program, there.port, there.scheme)
            own = {**turn.contender.variables, **there.variables}
            around = Surroundings(variables(path, place.url, own), turn.directory, log)
            return _Measuring(turn, place, around, db, meter).run()
    finally:
        path.unlink()
        meter.late_path.unlink(missing_ok=True)
        meter.ledger_path.unlink(missing_ok=True)


class _Measuring:
    """The parts of a turn that is under way."""

    def __init__(self, turn: Turn, place: Place, around: Surroundings, db: Any, meter: Meter) -> None:
        self._contender, self._plan = turn.contender, turn.plan
        self._place, self._around = place, around
        self._db, self._meter = db, meter
        self._figures = Figures()

    def run(self) -> Figures:
        command = self._contender.produce(self._place)
        with Producer(command, self._around, PATIENCE_S) as producer:
            producer.wait_until_ready()
            self._enqueue(producer)
            with self._workers(self._contender.work) as family:
                self._warm_up(producer, family)
                self._latency(producer, family)
                for kind, count in self._plan.drained.items():
                    if kind is not Kind.WAIT:
                        self._drain(producer, family, kind, count)
                    if kind is Kind.NOOP:
                        self._figures.pss_mb = family.pss_mb()
                self._loaded(producer, family)
                if Kind.WAIT in self._plan.drained and self._contender.work_waiting is None:
                    self._drain(producer, family, Kind.WAIT, self._plan.drained[Kind.WAIT])
            if Kind.WAIT in self._plan.drained and self._contender.work_waiting is not None:
                with self._workers(self._contender.work_waiting) as family:
                    self._warm_up(producer, family)
                    self._drain(producer, family, Kind.WAIT, self._plan.drained[Kind.WAIT])
        return self._figures

    def _enqueue(self, producer: Producer) -> None:
        """Enqueue with no worker there."""
        producer.many("noop", 20)  # connects, and loads scripts
        producer.each("noop", 20)
        figures, plan = self._figures, self._plan
        self._db.flushall()
        before_s = self._redis_cpu_s()
        sent = producer.each("noop", plan.each)
        figures.each_redis_us = 1e6 * (self._redis_cpu_s() - before_s) / plan.each
        figures.each, figures.each_producer_us = plan.each / sent.seconds, sent.cpu_ns / 1e3 / plan.each
        self._db.flushall()
        before_s = self._redis_cpu_s()
        sent = producer.many("noop", plan.many)
        figures.many_redis_us = 1e6 * (self._redis_cpu_s() - before_s) / plan.many
        figures.many, figures.many_producer_us = plan.many / sent.seconds, sent.cpu_ns / 1e3 / plan.many
        self._db.flushall()

    @contextmanager
    def _workers(self, work: Callable[[Place], Sequence[Command]]) -> Iterator[Family]:
        family = Family(work(self._place), self._around)
        try:
            yield family
        finally:
            family.stop()

    def _warm_up(self, producer: Producer, family: Family) -> None:
        """Give tasks until all processes have had some, or for a while; then wait for rest."""
        end_s = time.monotonic() + WARM_UP_S
        while True:
            done = self._meter.count()
            producer.each("noop", 10)
            self._wait_for(family, done + 10)
            if self._meter.processes() >= self._contender.handlers or time.monotonic() > end_s:
                break

    def _latency(self, producer: Producer, family: Family) -> None:
        """Enqueue one task at a time at random moments; from before the call to the handler's first line."""
        end_s = time.monotonic() + self._plan.latency_limit_s
        for _ in range(self._plan.latency):
            time.sleep(random.uniform(0.005, 0.025))
            done = self._meter.count()
            sent = producer.each("when", 1)
            self._wait_for(family, done + 1)
            self._figures.latency_ms.append((self._meter.last_began_ns() - sent.began_ns) / 1e6)
            if time.monotonic() > end_s:
                break

    def _drain(self, producer: Producer, family: Family, kind: Kind, most: int) -> None:
        """Fill the queue while the workers are stopped; measure from their release to the last acknowledgement."""
        count = min(most, max(1, int(self._figures.many * FILL_S)))
        family.freeze()
        producer.many(kind, count)
        before = self._meter.count()
        worker_s, redis_s = family.cpu_s(), self._redis_cpu_s()
        began_s = time.perf_counter()
        family.thaw()
        self._wait_for(family, before + count)
        seconds = time.perf_counter() - began_s
        if kind is Kind.FAIL and self._meter.count() > before + count:
            raise TurnError(f"{count} failing tasks ran {self._meter.count() - before} times")
        self._figures.drained[kind] = Drained(
            count / seconds, 1e6 * (family.cpu_s() - worker_s) / count, 1e6 * (self._redis_cpu_s() - redis_s) / count
        )

    def _loaded(self, producer: Producer, family: Family) -> None:
        """Enqueue 1 ms tasks at random times, at 70 % of the rate just measured; from when each was due."""
        if not self._plan.loaded_s:
            return
        rate = LOAD * self._figures.drained[Kind.MS].rate
        count = max(20, round(rate * self._plan.loaded_s))
        before = self._meter.count()
        producer.paced("at", count, rate)
        self._wait_for(family, before + count)
        self._figures.loaded_ms = self._meter.late_ms()

    def _wait_for(self, family: Family, target: int) -> None:
        """Wait until so many tasks are counted and none is left."""
        self._wait(family, lambda: self._meter.count() >= target, f"{target} tasks")
        self._wait(family, lambda: not self._contender.left(self._db), "the last acknowledgement")

    def _wait(self, family: Family, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            time.sleep(POLL_S)
            if time.monotonic() > deadline_s:
                found = f"{self._meter.count()} counted, {self._contender.left(self._db)} left"
                raise TurnError(f"{what} did not come within {PATIENCE_S:.0f} s ({found})")
            if family.has_ended():
                raise TurnError("a worker ended")

    def _redis_cpu_s(self) -> float:
        info = self._db.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])
