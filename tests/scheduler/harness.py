"""A scheduler's engine on a real Redis and a clock that stands still, to be turned by hand."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from redis import Redis

from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.open import open_broker
from fastq.cron import parse
from fastq.info import TaskInfo
from fastq.scheduler.engine import Engine, EngineOptions
from fastq.scheduler.entry import Entry, check_registration
from fastq.scheduler.hooks import EnqueueHooks
from fastq.task import Task
from fastq.wire import keys
from fastq.wire.codec import decode_task_message
from fastq.wire.messages import SchedulerEnqueueEvent, SchedulerEntry, TaskMessage
from fastq.wire.records import decode_scheduler_enqueue_event, decode_scheduler_entry
from tests.manual_clock import ManualClock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
"""A Monday."""


def unix(moment: datetime) -> int:
    return int(moment.timestamp())


class Heard:
    """Note what ``post_enqueue`` hears."""

    def __init__(self) -> None:
        self.infos: list[TaskInfo] = []
        self.errors: list[Exception] = []

    def __call__(self, info: TaskInfo | None, error: Exception | None) -> None:
        assert (info is None) is (error is not None)
        if info is not None:
            self.infos.append(info)
        if error is not None:
            self.errors.append(error)


def entry_of(
    spec: str,
    task: Task | str = "t",
    *,
    name: str | None = None,
    missed: str = "skip",
    now: datetime = NOON,
    **options: Any,
) -> Entry:
    return Entry(check_registration(parse(spec), task, options, name, missed), now)


class Bench:
    """One scheduler; several may share a clock."""

    def __init__(self, url: str, clock: ManualClock, scheduler_id: str, **how: Any) -> None:
        self.clock = clock
        self.heard = Heard()
        self.broker: BlockingBroker = open_broker(url)
        hooks = EnqueueHooks(how.get("pre_enqueue"), how.get("post_enqueue", self.heard))
        self.engine = Engine(self.broker, EngineOptions(scheduler_id, how.get("heartbeat_s", 10.0), hooks), clock)

    def add(self, spec: str, task: Task | str = "t", **how: Any) -> Entry:
        entry = entry_of(spec, task, now=self.engine.now(), **how)
        self.engine.add(entry)
        return entry

    def turn(self, *, after: float = 0.0) -> float:
        self.clock.advance(after)
        return self.engine.turn()

    def close(self) -> None:
        self.broker.close()


@contextmanager
def bench_on(url: str, count: int = 1, now: datetime = NOON, **how: Any) -> Iterator[Sequence[Bench]]:
    """Open so many schedulers that share a clock."""
    clock = ManualClock(now.timestamp())
    benches = [Bench(url, clock, f"host:1:{number}", **how) for number in range(count)]
    try:
        yield benches
    finally:
        for bench in benches:
            bench.close()


def pending(db: Redis, queue: str = "default") -> list[TaskMessage]:
    """Return the messages of pending tasks, oldest first."""
    ids: Any = db.lrange(keys.pending(queue), 0, -1)
    read: Callable[[str, str], Any] = db.hget
    return [decode_task_message(read(keys.task(queue, task_id.decode()), "msg")) for task_id in reversed(ids)]


def listed(db: Redis, scheduler_id: str = "host:1:0") -> list[SchedulerEntry]:
    """Return what a scheduler has published, in the order of the list."""
    found: Any = db.lrange(keys.scheduler_entries(scheduler_id), 0, -1)
    return [decode_scheduler_entry(data) for data in found]


def tick_counts(db: Redis) -> dict[str, int]:
    """Return the counters of ticks by their fields, ``outcome:type``."""
    found: Any = db.hgetall(keys.scheduler_ticks())
    return {field.decode(): int(count) for field, count in found.items()}


def history(db: Redis, entry: Entry) -> list[tuple[SchedulerEnqueueEvent, float]]:
    found: Any = db.zrange(keys.scheduler_history(entry.id), 0, -1, withscores=True)
    return [(decode_scheduler_enqueue_event(data), score) for data, score in found]
