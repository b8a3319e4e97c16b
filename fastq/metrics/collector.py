"""``QueueCollector``: the queues of Redis as metrics of prometheus_client, with the names of asynq's exporter."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fastq.broker.operations.schedulers import TickOutcome
from fastq.errors import FastqError, QueueNotFoundError
from fastq.inspector import Inspector, PoolInfo, QueueInfo, ServerInfo
from fastq.inspector.fields import QUEUE
from fastq.inspector.json_records import queue_record
from fastq.metrics.pace import Pace
from fastq.wire.messages import SchedulerEntry

T = TypeVar("T")

KEPT_S: Final = 5.0
KEPT_READS: Final = 20.0
"""A reading is reused for this many times its duration, so that readings take at most a twentieth of the time."""
MOST_S: Final = 8.0
"""After this time, no further queues are read, since Prometheus waits only 10 s for the whole answer."""
STATES: Final = ("active", "pending", "scheduled", "retry", "archived", "completed", "aggregating")

_log = logging.getLogger("fastq.metrics")


class _Reading(NamedTuple):
    """What Redis held at one time; a field is None if its data could not be read."""

    is_up: bool = False
    queues: Sequence[QueueInfo] = ()
    pools: Sequence[PoolInfo] = ()
    unread: Sequence[str] = ()
    servers: Sequence[ServerInfo] | None = None
    entries: Sequence[SchedulerEntry] | None = None
    ticks: Mapping[str, Mapping[str, int]] | None = None
    began: datetime = datetime.min.replace(tzinfo=UTC)
    took_s: float = 0.0


class QueueCollector(Collector):
    """The queues of Redis as metrics, for a registry of prometheus_client.

    The names and values are those of asynq's ``metrics_exporter``; further metrics begin with ``fastq_``. Redis is
    asked at most every 5 s, and less often if there is much to read; the number of scrapes makes no difference. A queue
    that cannot be read is left out and counted; the others are shown.
    """

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._turn = threading.Lock()
        self._reading = _Reading()
        self._read_s: float | None = None
        self._failures = 0
        self._failed: set[str] = set()
        self._paces: dict[str, Pace] = {}

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values, and without asking Redis."""
        return self._metrics(_Reading(servers=(), entries=(), ticks={}))

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the last reading of Redis, or of a new one if the last is too old."""
        with self._turn:
            kept_s = max(KEPT_S, KEPT_READS * self._reading.took_s)
            if self._read_s is None or time.monotonic() - self._read_s >= kept_s:
                self._reading = self._read()
                self._read_s = time.monotonic()
                self._note_paces(self._reading, self._read_s)
            return self._metrics(self._reading)

    def _read(self) -> _Reading:
        began, began_s = datetime.now(UTC), time.monotonic()
        names = self._try("the queues", self._inspector.queues)
        if names is None:
            return _Reading()
        servers = self._try("the servers", self._inspector.servers)
        entries = self._try("the schedulers", self._inspector.scheduler_entries)
        ticks = self._try("the ticks of schedulers", self._inspector.scheduler_ticks)
        queues: list[QueueInfo] = []
        pools: list[PoolInfo] = []
        unread: list[str] = []
        for name in sorted(names, key=lambda name: f"queue {name}" in self._failed):
            try:
                info = self._try(f"queue {name}", partial(self._info, name, began_s))
            except QueueNotFoundError:
                continue  # the queue was removed meanwhile
            if info is None:
                unread.append(_written(name))
            else:
                queues.append(info)
                pools += self._try(f"the lanes of queue {name}", partial(self._inspector.pools, name)) or ()
        return _Reading(True, queues, pools, unread, servers, entries, ticks, began, time.monotonic() - began_s)

    def _info(self, queue: str, began_s: float) -> QueueInfo:
        if time.monotonic() - began_s > MOST_S:
            raise FastqError(f"reading the queues before it has taken {MOST_S:g} s")
        return self._inspector.get_queue_info(queue)

    def _try(self, what: str, read: Callable[[], T]) -> T | None:
        """Return the result of a read, or None if it fails; failures are counted, and the first in a row is logged."""
        try:
            found = read()
        except QueueNotFoundError:
            raise
        except (FastqError, ValueError) as error:  # ValueError: a counter is not a number
            self._failures += 1
            if what not in self._failed:
                _log.warning("cannot read %s, whose metrics are left out: %s", _written(what), _written(str(error)))
            self._failed.add(what)
            return None
        self._failed.discard(what)
        return found

    def _note_paces(self, reading: _Reading, now_s: float) -> None:
        """Update the mean run times from the queues and servers in a reading, and forget deleted queues."""
        if reading.servers is None:
            return
        running = [worker.queue for server in reading.servers for worker in server.active_workers]
        for info in reading.queues:
            self._paces.setdefault(info.queue, Pace()).note(running.count(info.queue), info.processed_total, now_s)
        for gone in self._paces.keys() - {info.queue for info in reading.queues} - {*reading.unread}:
            del self._paces[gone]

    def _metrics(self, reading: _Reading) -> list[Metric]:
        found = [*_of_queues(reading.queues), *_of_pools(reading.pools)]
        if reading.servers is not None:
            found += self._of_servers(reading.queues, reading.servers)
        if reading.entries is not None:
            found += _of_schedulers(reading.entries, reading.began)
        if reading.ticks is not None:
            found.append(_ticks(reading.ticks, reading.entries or ()))
        unreadable = _by_queue("fastq_queue_unreadable", "1 if the queue cannot be read, else 0.")
        for name, value in (*((info.queue, 0) for info in reading.queues), *((name, 1) for name in reading.unread)):
            unreadable.add_metric([name], value)
        failures = CounterMetricFamily("fastq_exporter_failures", "Reads of Redis or of a queue that failed.")
        failures.add_metric([], self._failures)
        up = _single("fastq_exporter_redis_up", "1 if Redis answered the last time, else 0.", reading.is_up)
        took = _single("fastq_exporter_read_seconds", "How long the last reading of Redis took.", reading.took_s)
        return [*found, unreadable, failures, up, took]

    def _of_servers(self, queues: Iterable[QueueInfo], servers: Sequence[ServerInfo]) -> list[Metric]:
        serving = _by_queue("fastq_queue_servers", "Servers of Go and fastq that take tasks of the queue.")
        backlog = _by_queue("fastq_queue_backlog_seconds", "Pending tasks x mean run time / slots of these servers.")
        for info in queues:
            slots = [
                server.concurrency for server in servers if server.status == "active" and info.queue in server.queues
            ]
            serving.add_metric([info.queue], len(slots))
            pace = self._paces.get(info.queue)
            mean_s = None if pace is None else pace.mean_s
            if mean_s is None:
                backlog.add_metric([info.queue], info.latency.total_seconds())
            else:
                backlog.add_metric([info.queue], info.pending * mean_s / max(1, sum(slots)))
        return [serving, backlog]


def _written(name: str) -> str:
    """Return a name as Unicode text, which a scrape requires; asynq takes any bytes as the name of a queue."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _of_queues(queues: Sequence[QueueInfo]) -> Iterator[Metric]:
    """Yield asynq's gauge of states, and the metrics in the table of fields.

    Some gauges end in ``_total``, as in asynq.
    """
    tasks = GaugeMetricFamily(
        "asynq_tasks_enqueued_total", "Tasks of a queue in each state.", labels=["queue", "state"]
    )
    for info in queues:
        for state in STATES:
            tasks.add_metric([info.queue, state], getattr(info, state))
    yield tasks
    records = [queue_record(info) for info in queues]
    for field in QUEUE:
        if field.metric is not None:
            kind = CounterMetricFamily if field.metric.counts else GaugeMetricFamily
            family = kind(field.metric.name, field.metric.help, labels=["queue"])
            for record in records:
                if record[field.json_key] is not None:
                    family.add_metric([record["queue"]], record[field.json_key])
            yield family


def _of_pools(pools: Iterable[PoolInfo]) -> Sequence[Metric]:
    """Return the numbers of tasks in lanes, summed by pool, because a queue may have any number of lanes."""
    labels = ["queue", "pool"]
    waiting = GaugeMetricFamily("fastq_lane_tasks_waiting", "Tasks that wait in the lanes of a pool.", labels=labels)
    running = GaugeMetricFamily("fastq_lane_tasks_running", "Tasks that have the places of a pool.", labels=labels)
    for info in pools:
        name = [info.queue, _written(info.pool)]
        waiting.add_metric(name, info.waiting)
        if info.running is not None:
            running.add_metric(name, info.running)
    return waiting, running


def _of_schedulers(entries: Sequence[SchedulerEntry], now: datetime) -> list[Metric]:
    due = [entry.next_enqueue_time for entry in entries if entry.next_enqueue_time is not None]
    late_s = [max(0.0, (now - moment).total_seconds()) for moment in due]
    text = "For how long the most overdue entry of the running schedulers has been due."
    ticks = GaugeMetricFamily(
        "fastq_scheduler_last_tick_timestamp_seconds",
        "When a scheduler last enqueued the task of an entry, in Unix seconds.",
        labels=["type", "spec"],
    )
    ticked: dict[tuple[str, str], float] = {}
    for entry in entries:
        if entry.prev_enqueue_time is not None:
            name = entry.task_type, entry.spec
            ticked[name] = max(entry.prev_enqueue_time.timestamp(), ticked.get(name, 0.0))
    for name, moment_unix in ticked.items():
        ticks.add_metric(name, moment_unix)
    return [
        ticks,
        _single("fastq_scheduler_entries", "Entries of the running schedulers.", len(entries)),
        _single("fastq_scheduler_late_seconds", text, max(late_s, default=0.0)),
    ]


def _ticks(counts: Mapping[str, Mapping[str, int]], entries: Sequence[SchedulerEntry]) -> CounterMetricFamily:
    """Return the counters of ticks.

    Each type of a running scheduler's entries has a value, 0 without ticks; so a first tick shows as an increase.
    """
    ticks = CounterMetricFamily(
        "fastq_scheduler_ticks",
        "Ticks of periodic tasks that were enqueued, duplicate, failed or missed.",
        labels=["type", "outcome"],
    )
    for task_type in sorted({*counts, *(entry.task_type for entry in entries)}):
        for outcome in TickOutcome:
            ticks.add_metric([task_type, outcome.value], counts.get(task_type, {}).get(outcome.value, 0))
    return ticks


def _by_queue(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["queue"])


def _single(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
