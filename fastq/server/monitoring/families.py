"""The metrics of a server: the name, the help text and the source of each.

Reading them asks Redis nothing. Names and labels are stable: dashboards and alerts are built on them.
"""

import os
import platform
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from fastq._version import __version__
from fastq.pool.main.protocol import EventKind
from fastq.server.inflight.stats import RepairKind
from fastq.server.inflight.tally import Histogram, Tally
from fastq.server.monitoring.exposition import Family, labels
from fastq.server.wiring.process import ServerProcess

_Samples: TypeAlias = Iterator[tuple[str, float | Histogram]]

_CHILD_STATES: Final = ("starting", "idle", "busy", "leaving")
_STARTED_UNIX_S: Final = time.time()
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def families(process: ServerProcess) -> Iterator[Family]:
    """Yield the metrics of a server; their samples are read one by one, as they are asked for."""
    yield from _by_type(list(process.stats.tallies.values()))
    yield from _of_tasks(process)
    yield from _of_pool(process)
    yield from _of_redis(process)
    yield from _of_the_process(process)


def _by_type(tallies: list[Tally]) -> Iterator[Family]:
    yield Family(
        "fastq_tasks",
        "counter",
        "Runs whose end was written to Redis, by what became of the task.",
        _by_tally(tallies, "outcome", lambda tally: tally.outcomes),
    )
    yield Family(
        "fastq_task_failures",
        "counter",
        "Runs that ended in another way than success, by cause.",
        _by_tally(tallies, "reason", lambda tally: {_reason(kind): n for kind, n in tally.failures.items()}),
    )
    yield Family(
        "fastq_task_run_seconds",
        "histogram",
        "How long handlers ran, whatever the end.",
        ((labels(queue=tally.queue, type=tally.type), tally.run_s) for tally in tallies),
    )
    yield Family(
        "fastq_task_wait_seconds",
        "histogram",
        "How long tasks had been pending when the server took them.",
        ((labels(queue=tally.queue, type=tally.type), tally.wait_s) for tally in tallies),
    )
    yield Family(
        "fastq_task_attempts",
        "histogram",
        "The last attempts of tasks that were not retried, by their numbers.",
        ((labels(queue=tally.queue, type=tally.type), tally.attempts) for tally in tallies),
    )
    yield from _of_batches(tallies)
    yield Family(
        "fastq_tasks_lost",
        "counter",
        "Tasks that were brought back from dead servers.",
        ((labels(queue=tally.queue, type=tally.type), tally.lost) for tally in tallies),
    )


def _of_batches(tallies: list[Tally]) -> Iterator[Family]:
    calls = [(labels(queue=one.queue, type=one.type), one.call_tasks, one.call_wait_s) for one in tallies]
    sizes = [(of, tasks) for of, tasks, _ in calls if tasks is not None]
    waits = [(of, wait_s) for of, _, wait_s in calls if wait_s is not None]
    if sizes:
        yield Family("fastq_batch_tasks", "histogram", "How many tasks the calls of batch handlers had.", sizes)
        text = "How long the first task of a call waited for the others and for a child."
        yield Family("fastq_batch_wait_seconds", "histogram", text, waits)


def _of_tasks(process: ServerProcess) -> Iterator[Family]:
    stats = process.stats
    yield _gauge("fastq_tasks_in_flight", "Tasks that are leased to this server.", stats.in_flight)
    yield _gauge(
        "fastq_unwritten_results",
        "Ends of tasks that Redis did not take yet and that are written again.",
        len(process.in_flight.ends.waiting),
    )
    yield _gauge(
        "fastq_unwritten_oldest_seconds",
        "Time since the first failed write of the oldest of them; 0 if there is none.",
        process.in_flight.ends.oldest_s,
    )
    yield Family(
        "fastq_task_log_dropped", "counter", "Lines that the task log has lost.", _one(process.task_log.dropped)
    )
    yield Family(
        "fastq_aggregated_sets", "counter", "Sets of grouped tasks that became one task.", _one(stats.aggregated)
    )
    yield Family(
        "fastq_repairs",
        "counter",
        "Corrections of ids, leases and tasks in Redis, by kind.",
        ((labels(kind=kind.name.lower()), stats.repairs[kind]) for kind in RepairKind),
    )
    yield Family("fastq_leases_lost", "counter", "Tasks in flight that another server got.", _one(stats.leases_lost))
    yield Family(
        "fastq_lease_margin_seconds",
        "histogram",
        "What was left of the lease nearest to its end, each time that leases were extended.",
        _one(stats.lease_margins_s),
    )


def _of_pool(process: ServerProcess) -> Iterator[Family]:
    census = process.pool.census()
    yield _gauge("fastq_pool_slots", "Tasks that may run at once.", process.presence.slots)
    yield Family(
        "fastq_pool_children",
        "gauge",
        "Child processes, by what they do.",
        ((labels(state=state), census.children.get(state, 0)) for state in _CHILD_STATES),
    )
    yield Family(
        "fastq_pool_tasks",
        "gauge",
        "Tasks in the pool: in a handler, or waiting for a child.",
        iter(((labels(state="running"), census.running), (labels(state="waiting"), census.waiting))),
    )
    busy_s, alive_s = census.worked_s
    yield Family(
        "fastq_pool_busy_seconds", "counter", "Time for which children had tasks, of all children.", _one(busy_s)
    )
    yield Family(
        "fastq_pool_child_seconds",
        "counter",
        "Time for which children could take tasks, of all children.",
        _one(alive_s),
    )
    yield Family(
        "fastq_pool_children_ended",
        "counter",
        "Child processes that ended, by reason.",
        ((labels(reason=reason), n) for reason, n in sorted(census.ended.items())),
    )
    largest, total = census.rss_bytes
    yield Family(
        "fastq_pool_child_rss_bytes",
        "gauge",
        "Resident memory of the largest child, and of all children; shared pages count in each.",
        iter(((labels(stat="max"), largest), (labels(stat="sum"), total))),
    )
    yield _gauge(
        "fastq_app_load_seconds", "Time from the start of the pool until all children were ready.", process.load_s
    )


def _of_redis(process: ServerProcess) -> Iterator[Family]:
    stats = process.stats
    yield Family(
        "fastq_redis_round_trip_seconds",
        "histogram",
        "Round trips to Redis, by purpose; waits for the connection included.",
        ((labels(purpose=trip.value), histogram) for trip, histogram in stats.round_trips_s.items()),
    )
    yield Family(
        "fastq_fetch_tasks", "histogram", "Tasks that one fetch brought; empty ones do not count.", _one(stats.fetched)
    )
    yield Family("fastq_ack_tasks", "histogram", "Ends of tasks in one write to Redis.", _one(stats.acked))
    yield Family(
        "fastq_redis_errors",
        "counter",
        "Failed requests of the server's actors to Redis, by class of error.",
        ((labels(error=name), n) for name, n in sorted(stats.outage.errors.items())),
    )
    yield Family("fastq_redis_outages", "counter", "Outages of Redis that began.", _one(stats.outage.begun))
    yield _gauge("fastq_redis_up", "1 while Redis answers, 0 during an outage.", int(not stats.outage))


def _of_the_process(process: ServerProcess) -> Iterator[Family]:
    stats = process.stats
    yield Family(
        "fastq_loop_lag_seconds", "histogram", "Delays of the event loop, measured once a second.", _one(stats.lags_s)
    )
    ticks: Counter[str] = Counter()
    for actor in process.actors:
        ticks[actor.name] += actor.ticks
    yield Family(
        "fastq_actor_ticks",
        "counter",
        "Rounds of the server's actors.",
        ((labels(actor=name), n) for name, n in ticks.items()),
    )
    yield Family(
        "fastq_actor_restarts",
        "counter",
        "Restarts of actors by the watchdog.",
        ((labels(actor=name), stats.restarts[name]) for name in ticks),
    )
    about = labels(version=__version__, python=platform.python_version())
    yield Family("fastq_build_info", "gauge", "Versions; the value is 1.", iter(((about, 1),)))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield Family(
        "process_cpu_seconds", "counter", "CPU time of the main process.", _one(usage.ru_utime + usage.ru_stime)
    )
    yield _gauge("process_start_time_seconds", "Start of the process, in Unix seconds.", _STARTED_UNIX_S)
    yield Family("process_resident_memory_bytes", "gauge", "Resident memory of the main process.", _resident_bytes())


def _by_tally(tallies: list[Tally], label: str, counts: Callable[[Tally], dict[str, int]]) -> _Samples:
    for tally in tallies:
        for value, number in counts(tally).items():
            yield labels(queue=tally.queue, type=tally.type, **{label: value}), number


def _reason(kind: EventKind) -> str:
    return "error" if kind is EventKind.FAILED else kind.name.lower()


def _gauge(name: str, help: str, value: float) -> Family:
    return Family(name, "gauge", help, _one(value))


def _one(value: float | Histogram) -> _Samples:
    yield "", value


def _resident_bytes() -> _Samples:
    try:
        with open("/proc/self/statm", "rb") as file:
            yield "", int(file.read().split()[1]) * _PAGE
    except OSError:
        return  # without /proc, only the peak is known
