"""``fastq plan`` against runs: mixes are predicted from a measurement just made, then worked off from a full queue.

One server with as many children as cores shares them with Redis. What others take of the cores meanwhile is taken off
those of the prediction; where that is more than a tenth, a run says little. At the end a trickle: what it keeps busy.
"""

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from fastq import Task
from fastq.planning import handlers
from fastq.planning.load import Load, scaled, total_rate
from fastq.planning.measure import default_children, measure_profile
from fastq.planning.model import Fleet, Use, capacity, use
from fastq.planning.profile import Profile
from fastq.planning.samples import Extent, Sample
from fastq.planning.testbed import Testbed
from tests.redis_servers import RedisServer

MEASURED_S = 60.0
RUN_S = 1.2
ROUNDS = 4
AT_MOST_S = 75.0
"""After which no further round is begun: a busy machine takes its time."""
MOST_BYTES = 50_000_000
WANTED = 0.15
QUIET = 0.1


@dataclass(frozen=True)
class Mix:
    """Name a mix; the rates of its loads are shares."""

    name: str
    loads: tuple[Load, ...]

    @property
    def total(self) -> float:
        """Return the sum of the shares."""
        return total_rate(self.loads)

    @property
    def payload(self) -> float:
        """Return the mean payload."""
        return sum(load.rate * load.payload for load in self.loads) / self.total

    def tasks(self, queue: str, count: int, loop_s: float) -> list[Task]:
        """Make tasks in random order."""
        rng = random.Random(1)
        drawn = rng.choices(self.loads, [load.rate for load in self.loads], k=count)
        return [Task(kind_of(load), order_of(load, loop_s), queue=queue) for load in drawn]


def kind_of(load: Load) -> str:
    return handlers.ASYNC if load.is_async else handlers.PLAIN if load.duration else handlers.NOOP


def order_of(load: Load, loop_s: float) -> bytes:
    return handlers.order(load.payload, round(load.cpu_s / loop_s), round(load.wait_s * 1e6))


def noop(share: float, payload: int = 100) -> Load:
    return Load(share, 0.0, payload)


def computing(share: float, seconds: float, payload: int = 100) -> Load:
    return Load(share, seconds, payload)


def waiting(share: float, seconds: float, payload: int = 100, cpu: float = 0.0) -> Load:
    return Load(share, seconds, payload, cpu=cpu)


def coroutine(share: float, seconds: float, payload: int = 100, cpu: float = 0.0) -> Load:
    return Load(share, seconds, payload, cpu=cpu, is_async=True)


MIXES = (
    Mix("no-ops of 100 B", (noop(1),)),
    Mix("no-ops of 100 B, 2 kB, 20 kB (7:2:1)", (noop(7), noop(2, 2_000), noop(1, 20_000))),
    Mix("no-op; 100 us of 5 kB (1:1)", (noop(1), computing(1, 100e-6, 5_000))),
    Mix("no-op; 1 ms CPU (7:3), 1 kB", (noop(7, 1_000), computing(3, 1e-3, 1_000))),
    Mix("1 ms; 5 ms CPU (4:1), 2 kB", (computing(4, 1e-3, 2_000), computing(1, 5e-3, 2_000))),
    Mix("1 ms CPU; 5 ms waiting (1:1)", (computing(1, 1e-3), waiting(1, 5e-3))),
    Mix("4 ms, 1 ms of it CPU, 10 kB", (waiting(1, 4e-3, 10_000, cpu=1e-3),)),
    Mix("async 5 ms; 20 ms (4:1), 1 kB", (coroutine(4, 5e-3, 1_000), coroutine(1, 20e-3, 1_000))),
    Mix("async 5 ms, 200 us of it CPU", (coroutine(1, 5e-3, cpu=200e-6),)),
    Mix("no-op; 1 ms CPU; async 5 ms (6:3:1)", (noop(6), computing(3, 1e-3), coroutine(1, 5e-3))),
)
TRICKLE = Mix("no-op; 1 ms CPU (7:3)", (noop(7), computing(3, 1e-3)))
PACES = (100.0, 400.0, 1_200.0)


def predicted(profile: Profile, mix: Mix, children: int, others: float = 0.0) -> float:
    """Return tasks a second from a full queue, on the cores that others leave."""
    fleet = Fleet(1, max(0.1, profile.machine.cores - others), children, shares_redis=True)
    return capacity(profile, mix.loads, fleet, backlog=True) * mix.total


def run(site: Testbed, profile: Profile, mix: Mix) -> Sample:
    """Work off what is predicted to take RUN_S."""
    count = min(predicted(profile, mix, site.children) * RUN_S, MOST_BYTES / mix.payload)
    site.enqueue(mix.tasks(site.queue, max(20, round(count)), profile.loop_s))
    return site.drain()


def used(profile: Profile, mix: Mix, rate: float, children: int, *, backlog: bool) -> Use:
    """Return what the model takes a mix to use at a rate."""
    fleet = Fleet(1, profile.machine.cores, children, shares_redis=True)
    return use(profile, scaled(mix.loads, rate / mix.total), fleet, backlog=backlog)


def nothing(text: str = "") -> None:
    """Neither stop nor say anything."""


def test_mixes_from_a_full_queue_and_a_trickle(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    children = default_children()
    profile = measure_profile(tcp_server.tcp_url, Extent.of(MEASURED_S), children, nothing, nothing)
    drained: dict[str, list[Sample]] = {mix.name: [] for mix in MIXES}
    paced: dict[float, list[Sample]] = {rate: [] for rate in PACES}
    with Testbed(tcp_server.tcp_url, children, nothing) as site:
        site.pause()
        end_s = time.monotonic() + AT_MOST_S
        for _ in range(ROUNDS):
            if time.monotonic() > end_s:
                break
            for mix in MIXES:
                drained[mix.name].append(run(site, profile, mix))
            for rate in PACES:
                tasks = TRICKLE.tasks(site.queue, round(rate), profile.loop_s)
                paced[rate].append(site.pace(rate, tasks))
    with capsys.disabled():
        print(
            "\n".join(
                [
                    *heading(profile, len(drained[MIXES[0].name])),
                    *capacities(profile, children, drained),
                    *trickles(profile, children, paced),
                ]
            )
        )


def heading(profile: Profile, rounds: int) -> Iterator[str]:
    server, machine = profile.server, profile.machine
    yield f"\nfastq plan against runs: {profile.children} children; {rounds} rounds of each mix, by turns"
    yield (
        f"  measured in {profile.seconds:.0f} s: no-op rate {server.no_op_rate:,.0f}/s, overlap {server.overlap:.0%}, "
        f"crowding {machine.crowding:.2f}; others used {machine.others_cores:.2f} cores"
    )


def capacities(profile: Profile, children: int, samples: dict[str, list[Sample]]) -> Iterator[str]:
    """Yield how fast a full queue was worked off, and what each process used a task, beside the prediction."""
    title = f"{'predicted/s':>12}{'run/s':>10}{'ratio':>7}  {'(range)':<13}{'others':>7}"
    yield f"  {'from a full queue':<38}{title}  CPU a task, us: predicted, run"
    within = 0
    for mix in MIXES:
        found = samples[mix.name]
        ratios = [sample.rate / predicted(profile, mix, children, sample.others_cores) for sample in found]
        ratio, rate = statistics.median(ratios), statistics.median(sample.rate for sample in found)
        within += abs(ratio - 1) <= WANTED
        others = statistics.median(sample.others_cores for sample in found)
        spread = f"({min(ratios):.2f}-{max(ratios):.2f})"
        yield (
            f"  {mix.name:<38}{rate / ratio:>12,.0f}{rate:>10,.0f}{ratio:>7.2f}  {spread:<13}{others:>7.2f}  "
            f"{by_process(profile, mix, children, found)}"
        )
    yield f"  {within} of {len(MIXES)} within {WANTED:.0%}"
    others = statistics.median(sample.others_cores for found in samples.values() for sample in found)
    if others > QUIET * profile.machine.cores:
        yield f"  others used {others:.1f} cores: this says little, as it does not behave as a quiet machine does"


def by_process(profile: Profile, mix: Mix, children: int, samples: Sequence[Sample]) -> str:
    rate = statistics.median(sample.rate for sample in samples)
    model = used(profile, mix, rate, children, backlog=True)
    sides = (
        ("main", model.main_cores, [sample.main_s for sample in samples]),
        ("Redis", model.redis_cores, [sample.redis_s for sample in samples]),
        ("children", model.child_cores + model.handler_cores, [sample.child_s for sample in samples]),
    )
    return "; ".join(
        f"{name} {1e6 * cores / rate:.0f}, {1e6 * statistics.median(seen):.0f}" for name, cores, seen in sides
    )


def trickles(profile: Profile, children: int, samples: dict[float, list[Sample]]) -> Iterator[str]:
    """Yield which part of a core the main process and Redis used at a rate, beside the prediction."""
    yield f"  {TRICKLE.name + ', one by one':<38}{'main process: predicted, run':>30}{'Redis: predicted, run':>24}"
    costs = profile.costs
    singly_s = costs.enqueue_one_redis.at(TRICKLE.payload) - costs.enqueue_many_redis.at(TRICKLE.payload)
    for pace, found in samples.items():
        rate = statistics.median(sample.rate for sample in found)
        model = used(profile, TRICKLE, rate, children, backlog=False)
        main, server = (
            rate * statistics.median(seen)
            for seen in ([sample.main_s for sample in found], [sample.redis_s for sample in found])
        )
        redis_cores = model.redis_cores + rate * singly_s
        yield f"  {f'{pace:,.0f}/s':<38}{model.main_cores:>23.1%}{main:>7.1%}{redis_cores:>17.1%}{server:>7.1%}"
