"""Actors on a real Redis and a clock that the test moves, with tasks held as after a dequeue."""

import gc
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operation import Operation
from fastq.broker.scripts import SCRIPTS
from fastq.broker.transport.open import open_async_broker
from fastq.broker.transport.wait import TaskWatch
from fastq.common.clock import Clock
from fastq.errors import BrokerConnectionError
from fastq.server.actors.lost_tasks import LostTaskRules, LostTasks
from fastq.server.actors.recoverer import Reclaim, Recoverer
from fastq.server.base.commands import Commands
from fastq.server.base.config import MAX_LOST
from fastq.server.base.timing import STANDARD, Timing
from fastq.server.inflight.ack_writer import AckWriter
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.stall import StallWatch
from fastq.server.inflight.tally import Tally
from fastq.server.inflight.task_log import TaskLog
from fastq.server.inflight.tasks import InFlightTask
from fastq.wire import keys
from fastq.wire.codec import view_task_message
from tests.broker.harness import NOW_S, OURS, QUEUE, THEIRS, QueueBench, message, queue_bench, run
from tests.faulty_proxy import Act, Fault, Words
from tests.manual_clock import ManualClock
from tests.waiting import until

TRUSTING = replace(STANDARD, settle_s=0.0)
"""The times of a recoverer that takes what it finds at its first look."""


def in_flight_of(clock: Clock) -> InFlight:
    """Return what a server with nothing in flight has of it."""
    return InFlight.of(OURS, StallWatch(clock), clock, STANDARD)


class Bench:
    """What actors share: Redis, the command connection, tasks in flight, an owner's mark, a clock that stands still.

    ``queue`` bypasses the code under test.
    """

    def __init__(self, queue: QueueBench, url: str) -> None:
        self.queue = queue
        self.db: Any = queue.db
        self.clock = ManualClock(NOW_S)
        self.broker = open_async_broker(url)
        self.watch = TaskWatch(self.broker.transport)
        self.commands = Commands(self.broker, self.broker.transport.node_name_of)
        self.owner = OURS
        self.stall = StallWatch(self.clock)
        self.in_flight = InFlight.of(self.owner, self.stall, self.clock, STANDARD)
        self.tasks = self.in_flight.tasks
        self.stats, self.outage = self.in_flight.stats, self.in_flight.stats.outage
        self.ends = self.in_flight.ends
        """What the syncer is to write again."""
        self.writer = AckWriter(self.commands, self.in_flight, TaskLog(None, "", self.clock))

    def hold(self, *task_ids: str, **fields: Any) -> list[InFlightTask]:
        """Let tasks be active, leased to us and held, as after a dequeue."""
        self.queue.activate(*task_ids, **fields)
        return [self.add(task_id, **fields) for task_id in task_ids]

    def add(self, task_id: str, queue: str = QUEUE, **fields: Any) -> InFlightTask:
        """Add a task in flight, whatever Redis knows of it."""
        view = view_task_message(message(task_id, queue=queue, **fields))
        return self.tasks.add(queue, view, self.clock.monotonic_s())

    def in_flight_ids(self) -> list[str]:
        return [task.id for _, tasks in self.tasks.by_queue() for task in tasks]

    def take_away(self, task_id: str) -> None:
        """Let a task's lease be another server's."""
        self.db.zadd(keys.lease(QUEUE), {task_id: NOW_S + 60 + THEIRS.fraction})

    def wipe_mark(self, task_id: str) -> None:
        """Let an asynq server that has just ended a task extend its lease once more, as ExtendLease does."""
        self.db.zadd(keys.lease(QUEUE), {task_id: self.clock.unix_ns() // 10**9 + 30}, xx=True)


def lose_replies(broker: Any, name: str) -> None:
    """Let the replies to one script be lost."""
    run_many = broker.run_many

    async def run(operations: Sequence[Operation[Any]]) -> list[Any]:
        if operations[0].name == name:
            return [BrokerConnectionError("no reply", maybe_applied=True) for _ in operations]
        replies: list[Any] = await run_many(operations)
        return replies

    broker.run_many = run


RULES = LostTaskRules(lambda retried: 100.0 + retried, MAX_LOST, None, Tally)


def recoverer(
    bench: Bench,
    *queues: str,
    timing: Timing = TRUSTING,
    commands: Commands | None = None,
    rules: LostTaskRules = RULES,
    reclaim: Reclaim | None = None,
) -> Recoverer:
    """Return a recoverer of some queues, else of the bench's."""
    in_flight = replace(bench.in_flight, timing=timing)
    commands = commands or bench.commands
    lost = LostTasks(commands, rules, bench.clock, bench.stats)
    return Recoverer(commands, queues or (QUEUE,), in_flight, lost, reclaim)


def no_news() -> None:
    """Do nothing: stands in for what is told that a long look gets on."""


Test = Callable[[Bench], Coroutine[Any, Any, None]]


def on_bench(db: Redis, url: str, test: Test, *, through: str | None = None) -> None:
    """Run a test on a bench; ``through`` is the URL of a proxy that the code under test is to use."""

    async def running() -> None:
        with queue_bench(db, url) as queue:
            async with _bench(queue, through or url) as bench:
                await test(bench)

    run(running)
    gc.collect()  # what the test left behind is to be its own fault, not the next one's


@asynccontextmanager
async def _bench(queue: QueueBench, url: str) -> AsyncIterator[Bench]:
    bench = Bench(queue, url)
    try:
        yield bench
    finally:
        # What was sent for a caller that was cancelled is still under way.
        await until(lambda: not under_way(bench.commands))
        await bench.watch.close()
        await bench.broker.close()


def under_way(commands: Commands) -> int:
    """Return how many pipelines are under way, or about to start."""
    return sum(node._under_way + node._starting for node in commands._nodes.values())


class ScriptFault(Fault):
    """Fail at one script alone."""

    def __init__(self, script: str, act: Act, **how: Any) -> None:
        super().__init__("EVALSHA", act, **how)
        self.text = SCRIPTS[script].text
        self.sha = SCRIPTS[script].sha.encode()

    def strikes(self, words: Words) -> bool:
        return len(words) > 1 and words[1] == self.sha and super().strikes(words)


def logged(caplog: pytest.LogCaptureFixture, least: int = logging.WARNING) -> list[str]:
    """Return the lines that were logged from a level on."""
    return [record.getMessage() for record in caplog.records if record.levelno >= least]
