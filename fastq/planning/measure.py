"""The measurement: rounds of trials on a site, in turn, so that a disturbance affects all of them alike."""

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
from fastq.planning.profile import VERSION, Machine, Profile, RedisFacts
from fastq.planning.reckon import costs_of, crowding_of, others_of, server_of
from fastq.planning.samples import BURSTS, COROUTINE_WAITS, PACES, SINGLY, SIZES, WAIT_S, Extent, Samples
from fastq.planning.site import Site
from fastq.task import Task

__all__ = ["check_room", "default_children", "measure_profile"]

_SPIN_S: Final = 0.15
_FIRST_LOOPS: Final = 200_000
_MOST_CHILDREN: Final = 64


def check_room(limit_bytes: int, used_bytes: int, extent: Extent) -> None:
    """Refuse a Redis whose maxmemory is too small for the measurement."""
    if limit_bytes and limit_bytes - used_bytes < 2 * extent.bytes:
        raise FastqError(
            f"Redis has {max(0, limit_bytes - used_bytes) >> 20} MB left below its maxmemory, and the measurement puts "
            f"up to {extent.megabytes} MB into it; measure with fewer --seconds, or another Redis"
        )


def default_children() -> int:
    """Return the number of children of the measurement: one per core."""
    return max(1, min(_MOST_CHILDREN, whole_cpus()))


def measure_profile(
    url: str, extent: Extent, children: int | None, check: Callable[[], None], say: Callable[[str], None]
) -> Profile:
    """Measure, and return the profile; ``check`` raises to stop early, ``say`` is called with each step."""
    children = children or default_children()
    start_s = time.monotonic()
    with Site(url, children, check) as site:
        info = site.info()
        where = RedisFacts(
            version=site.version(),
            is_here=site.is_here(),
            round_trip_s=statistics.median(site.round_trips(extent.count(2_000))),
            limit_bytes=int(info.get("maxmemory", 0)),
            used_bytes=int(info["used_memory"]),
        )
        samples = _run(site, extent, say)
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


def _run(site: Site, extent: Extent, say: Callable[[str], None]) -> Samples:
    """Take all samples, and announce each trial; a slow machine gets fewer rounds, at least two."""
    samples = Samples()
    end_s = time.monotonic() + extent.seconds
    site.pause()
    samples.loop_s = _loop_s(site)
    for number in range(1, extent.rounds + 1):
        for name, trial in _TRIALS.items():
            say(f"round {number} of {extent.rounds}: {name}")
            trial(site, extent, samples)
            site.clear()
        if number == 1:
            samples.main_memory, samples.child_memory = site.memory()
        elif time.monotonic() > end_s:
            break
    return samples


@dataclass(frozen=True, slots=True)
class _Work:
    kind: str
    size: int = 100
    loops: int = 0
    wait_s: float = 0.0

    def tasks(self, site: Site, count: int, **options: Unpack[EnqueueOptions]) -> list[Task]:
        payload = handlers.order(self.size, self.loops, round(self.wait_s * 1e6))
        options["queue"] = site.queue
        return [Task(self.kind, payload, **options) for _ in range(count)]


def _loop_s(site: Site) -> float:
    """Measure roughly how long one loop of the handlers takes alone."""
    site.enqueue(_Work(handlers.PLAIN, loops=_FIRST_LOOPS).tasks(site, 2))
    return site.drain().child_s / _FIRST_LOOPS


def _sizes(site: Site, extent: Extent, samples: Samples) -> None:
    for size, count in SIZES.items():
        samples.add(f"enqueue {size}", site.enqueue(_Work(handlers.NOOP, size).tasks(site, extent.count(count))))
        samples.add(f"process {size}", site.drain())


def _singly(site: Site, extent: Extent, samples: Samples) -> None:
    for size, count in SINGLY.items():
        samples.add(f"single {size}", site.enqueue_singly(_Work(handlers.NOOP, size).tasks(site, extent.count(count))))
    site.drain()


def _completed(site: Site, extent: Extent, samples: Samples) -> None:
    """Measure the additional cost of tasks with a retention over tasks that are deleted at once."""
    count = extent.count(SIZES[100] / 4)
    before = float(site.info()["used_memory"])
    site.enqueue(_Work(handlers.NOOP).tasks(site, count, retention=3_600))
    sample = site.drain()
    kept = (float(site.info()["used_memory"]) - before) / count
    samples.add("completed", sample._replace(memory=kept))


def _short(site: Site, extent: Extent, samples: Samples) -> None:
    for name, (compute_s, seconds) in BURSTS.items():
        count = extent.count(site.children * seconds / compute_s)
        site.enqueue(_Work(handlers.PLAIN, loops=round(compute_s / samples.loop_s)).tasks(site, count))
        samples.add(name, site.drain())


def _waits(site: Site, extent: Extent, samples: Samples) -> None:
    count = extent.count(site.children * 1.0 / WAIT_S)
    site.enqueue(_Work(handlers.PLAIN, wait_s=WAIT_S).tasks(site, count))
    samples.add("waits", site.drain())
    at_once = site.children * 100
    for name, wait_s in COROUTINE_WAITS.items():
        count = extent.count(at_once * 0.7 / wait_s, 3 * at_once)
        site.enqueue(_Work(handlers.ASYNC, wait_s=wait_s).tasks(site, count))
        samples.add(name, site.drain())


def _paced(site: Site, extent: Extent, samples: Samples) -> None:
    for name, rate in PACES.items():
        samples.add(name, site.pace(rate, _Work(handlers.NOOP).tasks(site, extent.count(1.5 * rate))))


def _crowd(site: Site, extent: Extent, samples: Samples) -> None:
    """Compute in one child, then in all at once."""
    loops = round(_SPIN_S * max(extent.scale, 0.2) / samples.loop_s)
    for name, count in (("alone", 1), ("together", 2 * site.children)):
        site.enqueue(_Work(handlers.PLAIN, loops=loops).tasks(site, count))
        sample = site.drain()
        samples.add(name, sample._replace(child_s=sample.child_s / loops))


def _idle(site: Site, extent: Extent, samples: Samples) -> None:
    samples.add("idle", site.idle(max(0.5, 2.0 * extent.scale)))


_TRIALS: Final[dict[str, Callable[[Site, Extent, Samples], None]]] = {
    "payloads of 100 B to 100 kB": _sizes,
    "one task per call": _singly,
    "completed tasks": _completed,
    "short handlers": _short,
    "handlers that wait": _waits,
    "a steady trickle": _paced,
    "all cores busy": _crowd,
    "an idle server": _idle,
}
