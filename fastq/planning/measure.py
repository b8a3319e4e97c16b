"""The measurement: each round runs every trial on a testbed, so that a disturbance affects all trials alike."""

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Unpack

from fastq._version import __version__
from fastq.common.cpus import available_cpus, whole_cpus
from fastq.errors import FastqError
from fastq.options import EnqueueOptions
from fastq.planning import handlers, probe
from fastq.planning.costs import costs_of, crowding_of, others_of, server_of
from fastq.planning.profile import VERSION, Machine, Profile, RedisFacts
from fastq.planning.samples import BURSTS, COROUTINE_WAITS, PACES, SINGLY, SIZES, WAIT_S, Extent, Samples
from fastq.planning.testbed import Testbed
from fastq.task import Task

_SPIN_S: Final = 0.15
_FIRST_LOOPS: Final = 200_000
_MOST_CHILDREN: Final = 64


def check_memory(limit_bytes: int, used_bytes: int, extent: Extent) -> None:
    """Refuse a Redis whose maxmemory is too small for the measurement."""
    if limit_bytes and limit_bytes - used_bytes < 2 * extent.bytes:
        raise FastqError(
            f"Redis has {max(0, limit_bytes - used_bytes) >> 20} MB left below its maxmemory, and the measurement puts "
            f"up to {extent.megabytes} MB into it; measure with fewer --seconds, or another Redis"
        )


def default_children() -> int:
    """Return the number of children of the measurement: one per core, up to a limit."""
    return max(1, min(_MOST_CHILDREN, whole_cpus()))


def measure_profile(
    url: str, extent: Extent, children: int | None, check: Callable[[], None], say: Callable[[str], None]
) -> Profile:
    """Measure, and return the profile; ``check`` raises to stop early, ``say`` is called with each step."""
    children = children or default_children()
    start_s = time.monotonic()
    with Testbed(url, children, check) as testbed:
        info = testbed.info()
        where = RedisFacts(
            version=testbed.version(),
            is_here=testbed.is_here(),
            round_trip_s=statistics.median(testbed.round_trips(extent.count(2_000))),
            limit_bytes=int(info.get("maxmemory", 0)),
            used_bytes=int(info["used_memory"]),
        )
        samples = _run(testbed, extent, say)
    say("")
    costs = costs_of(samples)
    return Profile(
        version=VERSION,
        fastq=__version__,
        python=platform.python_version(),
        measured_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=time.monotonic() - start_s,
        children=children,
        loop_s=statistics.median(sample.child_s for sample in samples.by_trial["alone"]),
        machine=Machine(
            host=platform.node(),
            cores=available_cpus(),
            memory_bytes=probe.memory_bytes(),
            crowding=crowding_of(samples),
            others_cores=others_of(samples),
        ),
        redis=where,
        costs=costs,
        server=server_of(samples, costs, children),
    )


def _run(testbed: Testbed, extent: Extent, say: Callable[[str], None]) -> Samples:
    """Take all samples, and announce each trial; on a slow machine do fewer rounds, but at least two."""
    samples = Samples()
    end_s = time.monotonic() + extent.seconds
    testbed.pause()
    samples.loop_s = _loop_s(testbed)
    for number in range(1, extent.rounds + 1):
        for name, trial in _TRIALS.items():
            say(f"round {number} of {extent.rounds}: {name}")
            trial(testbed, extent, samples)
            testbed.clear()
        if number == 1:
            samples.main_memory, samples.child_memory = testbed.memory()
        elif time.monotonic() > end_s:
            break
    return samples


@dataclass(frozen=True, slots=True)
class _Work:
    kind: str
    size: int = 100
    loops: int = 0
    wait_s: float = 0.0

    def tasks(self, testbed: Testbed, count: int, **options: Unpack[EnqueueOptions]) -> list[Task]:
        payload = handlers.order(self.size, self.loops, round(self.wait_s * 1e6))
        options["queue"] = testbed.queue
        return [Task(self.kind, payload, **options) for _ in range(count)]


def _loop_s(testbed: Testbed) -> float:
    """Measure roughly how long one loop of the handlers takes alone."""
    testbed.enqueue(_Work(handlers.PLAIN, loops=_FIRST_LOOPS).tasks(testbed, 2))
    return testbed.drain().child_s / _FIRST_LOOPS


def _sizes(testbed: Testbed, extent: Extent, samples: Samples) -> None:
    for size, count in SIZES.items():
        samples.add(f"enqueue {size}", testbed.enqueue(_Work(handlers.NOOP, size).tasks(testbed, extent.count(count))))
        samples.add(f"process {size}", testbed.drain())


def _singly(testbed: Testbed, extent: Extent, samples: Samples) -> None:
    for size, count in SINGLY.items():
        samples.add(
            f"single {size}", testbed.enqueue_singly(_Work(handlers.NOOP, size).tasks(testbed, extent.count(count)))
        )
    testbed.drain()


def _completed(testbed: Testbed, extent: Extent, samples: Samples) -> None:
    """Measure the additional cost of tasks with a retention over tasks that are deleted at once."""
    count = extent.count(SIZES[100] / 4)
    before = float(testbed.info()["used_memory"])
    testbed.enqueue(_Work(handlers.NOOP).tasks(testbed, count, retention=3_600))
    sample = testbed.drain()
    kept = (float(testbed.info()["used_memory"]) - before) / count
    samples.add("completed", sample._replace(memory=kept))


def _short(testbed: Testbed, extent: Extent, samples: Samples) -> None:
    for name, (compute_s, seconds) in BURSTS.items():
        count = extent.count(testbed.children * seconds / compute_s)
        testbed.enqueue(_Work(handlers.PLAIN, loops=round(compute_s / samples.loop_s)).tasks(testbed, count))
        samples.add(name, testbed.drain())


def _waits(testbed: Testbed, extent: Extent, samples: Samples) -> None:
    count = extent.count(testbed.children * 1.0 / WAIT_S)
    testbed.enqueue(_Work(handlers.PLAIN, wait_s=WAIT_S).tasks(testbed, count))
    samples.add("waits", testbed.drain())
    at_once = testbed.children * 100
    for name, wait_s in COROUTINE_WAITS.items():
        count = extent.count(at_once * 0.7 / wait_s, 3 * at_once)
        testbed.enqueue(_Work(handlers.ASYNC, wait_s=wait_s).tasks(testbed, count))
        samples.add(name, testbed.drain())


def _paced(testbed: Testbed, extent: Extent, samples: Samples) -> None:
    for name, rate in PACES.items():
        samples.add(name, testbed.pace(rate, _Work(handlers.NOOP).tasks(testbed, extent.count(1.5 * rate))))


def _crowd(testbed: Testbed, extent: Extent, samples: Samples) -> None:
    """Measure a computation in one child, then in all children at once."""
    loops = round(_SPIN_S * max(extent.scale, 0.2) / samples.loop_s)
    for name, count in (("alone", 1), ("together", 2 * testbed.children)):
        testbed.enqueue(_Work(handlers.PLAIN, loops=loops).tasks(testbed, count))
        sample = testbed.drain()
        samples.add(name, sample._replace(child_s=sample.child_s / loops))


def _idle(testbed: Testbed, extent: Extent, samples: Samples) -> None:
    samples.add("idle", testbed.idle(max(0.5, 2.0 * extent.scale)))


_TRIALS: Final[dict[str, Callable[[Testbed, Extent, Samples], None]]] = {
    "payloads of 100 B to 100 kB": _sizes,
    "one task per call": _singly,
    "completed tasks": _completed,
    "short handlers": _short,
    "handlers that wait": _waits,
    "a steady trickle": _paced,
    "all cores busy": _crowd,
    "an idle server": _idle,
}
