"""What a server leaves in Redis is what Go's server left there (golden/keyspace.json), key by key, byte by byte.

Tasks go through the real actors; what the pool would say of them is said here, with the texts of Go's errors.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from fastq import AsyncClient, Task
from fastq._prioritizer import Prioritizer
from fastq.broker.operations.aggregate import GroupRule
from fastq.broker.operations.lease import Leased, LeasedTask, Owner
from fastq.broker.operations.presence import ServerIdentity, clear_server_state, write_result
from fastq.broker.transport.open import open_async_broker
from fastq.common.clock import SystemClock
from fastq.pool.main.protocol import PoolCensus, Running, Submission
from fastq.pool.shared.event_kind import EventKind
from fastq.running import GroupedTask
from fastq.server.actors.acker import Acker
from fastq.server.actors.aggregator import Aggregator
from fastq.server.actors.fetcher import Fetcher
from fastq.server.actors.forwarder import Forwarder
from fastq.server.actors.heartbeater import Heartbeater
from fastq.server.actors.lost_tasks import LostTaskRules, LostTasks
from fastq.server.actors.recoverer import Recoverer
from fastq.server.base.commands import Commands
from fastq.server.base.config import MAX_LOST, ServerConfig
from fastq.server.base.timing import STANDARD
from fastq.server.inflight.ack_writer import AckWriter
from fastq.server.inflight.dispositions import disposition_of
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.stall import StallWatch
from fastq.server.inflight.tally import Tally
from fastq.server.inflight.task_log import TaskLog
from fastq.server.inflight.tasks import InFlightTask
from fastq.server.wiring.presence import ServerPresence, ServerStatus
from fastq.wire import keys
from fastq.wire.codec import decode_task_message, view_task_message
from fastq.wire.notice import ServerNotice
from fastq.wire.records import decode_server_info, decode_worker_info
from fastq.worker.shared.report import FailureReport
from tests.broker.harness import QUEUE, run
from tests.keyspace import (
    RANKS,
    Cells,
    Difference,
    GoldenStep,
    IntendedDifferences,
    Moment,
    Place,
    Window,
    differences_between,
    golden,
    snapshot,
)
from tests.manual_clock import ManualClock
from tests.server.actors.groups import NoChild, config_of, in_process
from tests.server.harness import TRUSTING, no_news

HOUR = timedelta(hours=1)
PAYLOAD = b'{"id":1}'
US = Owner(1 / 2**20)
"""A small mark: the golden scores are whole seconds."""
NO_CHILDREN = PoolCensus({}, 0, 0, (0, 0), {}, (0, 0), ())
ME = ServerIdentity("vm", 2245, "f509e65d-9189-4f28-bab3-35cf6f70219c")


class Stage:
    """A server without a pool, on a real Redis, and the client that gives it work."""

    def __init__(self, db: Redis, url: str) -> None:
        self.db: Any = db
        self.client = AsyncClient(url)
        self.broker = open_async_broker(url)
        self.commands = Commands(self.broker)
        clock = SystemClock()
        self.in_flight = InFlight.of(US, StallWatch(clock), clock, STANDARD)
        self.tasks = self.in_flight.tasks
        writer = AckWriter(self.commands, self.in_flight, TaskLog(None, "", self.in_flight.clock))
        self.acker = Acker(writer, self.in_flight, lambda: True, no_news, no_news)
        self.config = ServerConfig(concurrency=2)
        self.in_handlers: list[InFlightTask] = []
        self.room = 100
        self.aggregator: Aggregator
        self.aggregating: asyncio.Task[float]
        self.may_aggregate: asyncio.Event

    async def aclose(self) -> None:
        await self.client.close()
        await self.broker.close()

    async def enqueue(self, task_id: str, type: str = "email:send", payload: Any = PAYLOAD, **options: Any) -> None:
        await self.client.enqueue(type, payload, task_id=task_id, **options)

    async def fetch(self, room: int = 100) -> None:
        self.room = room
        await Fetcher(self.commands, Prioritizer(self.config.queues), self.in_flight, self, {}, 1.0).tick()

    def idle(self, *, only_async: bool) -> int:
        return self.room

    def are_coroutines(self, messages: Iterable[bytes]) -> bool:
        return False

    def accept(self, queue: str, leased: Leased, asked_s: float = 0.0) -> None:
        for task in leased.tasks:
            self.tasks.add(queue, view_task_message(task.message), time.monotonic())

    async def end(self, kind: EventKind, data: bytes = b"", *, is_failure: bool = True) -> None:
        """Let the only task end; a failure with its text is tried again in an hour, as in the golden runs."""
        ((_, (task,)),) = self.tasks.by_queue()
        if kind > EventKind.RESULT and kind < EventKind.CRASHED:
            data = FailureReport(data.decode(errors="replace"), is_failure, 3600.0).encode()
        task.disposition = disposition_of(task, kind, data, int(time.time()), lambda retried: 3600.0)
        self.acker.add([task])
        await self.acker.tick()

    def heartbeater(self, status: ServerStatus = ServerStatus.ACTIVE) -> Heartbeater:
        started_ns = time.monotonic_ns()
        running = [
            Running(Submission(task, b""), 1, started_ns, started_ns + task.view.timeout * 10**9)
            for task in self.in_handlers
        ]
        presence = ServerPresence(ME, self.config, lambda: running, lambda: NO_CHILDREN, self.in_flight.clock)
        presence.status = status
        return Heartbeater(self.broker, ME, presence, self.in_flight, self.tasks.drop)


Step = Callable[[Stage], Awaitable[None]]


def ends(kind: EventKind, data: bytes = b"", *, is_failure: bool = True, **options: Any) -> list[Step]:
    """Make the case of one task that is enqueued, fetched and ends."""

    async def step(stage: Stage) -> None:
        await stage.enqueue("id-1", **options)
        await stage.fetch()
        await stage.end(kind, data, is_failure=is_failure)

    return [step]


# Cases of more than that ------------------------------------------------------------------------------------------


async def dequeue(stage: Stage) -> None:
    await stage.enqueue("id-1")
    await stage.fetch()


async def extend(stage: Stage) -> None:
    stage.accept(QUEUE, Leased.of([LeasedTask("dangling", view_of("dangling"))]))
    assert await stage.heartbeater()._extend(time.monotonic()) == []
    assert [task.id for _, tasks in stage.tasks.by_queue() for task in tasks] == ["id-1"]


def view_of(task_id: str) -> bytes:
    return b"\x0a\x01t\x1a" + bytes([len(task_id)]) + task_id.encode()


async def give_back(stage: Stage) -> None:
    await stage.end(EventKind.RETURNED)


async def shut_down(stage: Stage) -> None:
    await stage.enqueue("id-1")
    await stage.enqueue("id-2")
    await stage.fetch(room=1)
    await stage.end(EventKind.ABORTED)


async def lease_long_ago(stage: Stage) -> None:
    await stage.enqueue("id-1")
    await stage.enqueue("id-2", "last", None, max_retry=0)
    await stage.fetch()
    past_s = int(time.time()) - 31
    stage.db.zadd(keys.lease(QUEUE), {"id-1": past_s, "id-2": past_s})


async def recover(stage: Stage) -> None:
    clock, rules = stage.in_flight.clock, LostTaskRules(lambda retried: 3600.0, MAX_LOST, None, Tally)
    in_flight = InFlight.of(US, StallWatch(clock), clock, TRUSTING)  # another server's: it holds none of them
    lost = LostTasks(stage.commands, rules, clock, in_flight.stats)
    await Recoverer(stage.commands, [QUEUE], in_flight, lost, None).tick()


async def forward(stage: Stage) -> None:
    await stage.enqueue("id-1", process_in=HOUR)
    await stage.enqueue("id-2", process_in=2 * HOUR)
    stage.db.zadd(keys.scheduled(QUEUE), {"id-1": int(time.time()) - 1})
    await Forwarder(
        stage.commands, [QUEUE], 5.0, stage.in_flight.clock, stage.in_flight.stats, lambda queue: None
    ).tick()


async def fetch_while_paused(stage: Stage) -> None:
    await stage.enqueue("id-1")
    stage.db.set(keys.paused(QUEUE), int(time.time()))
    await stage.fetch()


async def unpause(stage: Stage) -> None:
    stage.db.delete(keys.paused(QUEUE))


async def pause_another(stage: Stage) -> None:
    stage.db.set(keys.paused("nosuch"), int(time.time()))
    await stage.fetch(room=0)


async def write_mid_run(stage: Stage) -> None:
    await stage.heartbeater().tick()
    await stage.enqueue("id-1")
    await stage.fetch()
    assert await stage.broker.run(write_result(QUEUE, "id-1", US, b"partial"))


async def start(stage: Stage) -> None:
    stage.config = ServerConfig(concurrency=2, queues={"critical": 6, "default": 3, "low": 1})
    await stage.heartbeater().tick()
    await stage.enqueue("id-1", timeout=600)
    await stage.fetch()
    ((_, stage.in_handlers),) = stage.tasks.by_queue()


async def beat(stage: Stage) -> None:
    await stage.heartbeater().tick()


async def stop(stage: Stage) -> None:
    await stage.heartbeater(ServerStatus.QUIET).tick()


async def leave(stage: Stage) -> None:
    await stage.end(EventKind.DONE)
    for operation in clear_server_state(ME):
        await stage.broker.run(operation)


def put_together(group: str, tasks: Sequence[GroupedTask]) -> Task:
    payloads = [task.payload for task in tasks]
    return Task("whole", b"+".join(payloads), task_id=f"agg-{b''.join(payloads).decode()}", retention=HOUR)


async def group_three(stage: Stage) -> None:
    for number in "123":
        await stage.enqueue(f"id-{number}", "part", number.encode(), group="g1")


async def take_two(stage: Stage) -> None:
    """Stop where Go's user is asked: the set is taken, and nothing has come of it yet."""
    await stage.heartbeater().tick()
    asked, stage.may_aggregate = asyncio.Event(), asyncio.Event()
    inner = in_process(put_together)

    async def combine(queue: str, group: str, messages: Sequence[bytes]) -> Any:
        asked.set()
        await stage.may_aggregate.wait()
        return await inner(queue, group, messages)

    clock, config = ManualClock(time.time()), config_of([QUEUE], GroupRule(1, max_size=2))
    stage.aggregator = Aggregator(stage.commands, config, NoChild(combine), clock, STANDARD, stage.in_flight.stats)
    stage.aggregating = asyncio.create_task(stage.aggregator.tick())
    await asked.wait()


async def aggregate_all(stage: Stage) -> None:
    stage.may_aggregate.set()
    await stage.aggregating
    await stage.fetch()
    await stage.end(EventKind.DONE)
    stage.aggregator._clock.advance(1)  # type: ignore[attr-defined]  # a manual one
    await stage.aggregator.tick()
    await stage.fetch()
    await stage.end(EventKind.DONE)
    for operation in clear_server_state(ME):
        await stage.broker.run(operation)


def error_of(case: str) -> bytes:
    """Return the error text of a golden case, for those that have a path of the machine in it."""
    (message,) = [value for place, value in golden(case).cells.items() if place.part == "msg"]
    return decode_task_message(bytes.fromhex(str(message))).error_msg.encode()


BOOM = "boom ✗".encode()
CASES: dict[str, list[Step]] = {
    "dequeue_active": [dequeue, extend, give_back],
    "done": ends(EventKind.DONE),
    "done_unique": ends(EventKind.DONE, unique=HOUR),
    "completed_with_result": ends(EventKind.RESULT, b"result \x00\xff data", retention=2 * HOUR),
    "result_without_retention_mid_run": [write_mid_run],
    "retry_first_failure": ends(EventKind.FAILED, BOOM),
    "retry_not_failure": ends(EventKind.FAILED, BOOM, is_failure=False),
    "archived_max_retry_0": ends(EventKind.FAILED, BOOM, max_retry=0),
    "archived_skip_retry": ends(EventKind.SKIP_RETRY, b"bad input: skip retry for the task"),
    "revoke_task": ends(EventKind.REVOKED, b"revoked", retention=HOUR),
    "timeout_exceeded": ends(EventKind.TIMEOUT, b"context deadline exceeded", timeout=1),
    "panic": ends(EventKind.FAILED, error_of("panic")),
    "panic_runtime": ends(EventKind.FAILED, error_of("panic_runtime")),
    "retry_invalid_utf8_error": ends(EventKind.FAILED, b"bad \xff bytes"),
    "error_handler_order": ends(EventKind.FAILED, BOOM, max_retry=0),
    "mux_not_found": ends(EventKind.NOT_FOUND, b'handler not found for task "email:send"'),
    "shutdown_requeue": [shut_down],
    "lease_expired_recovered": [lease_long_ago, recover],
    "scheduled_forwarded": [forward],
    "pause_queue": [fetch_while_paused, unpause, pause_another],
    "running_server": [start, beat, stop, leave],
    "cancel": ends(EventKind.CANCELED, b"context canceled"),
    "aggregation": [group_three, take_two, aggregate_all],
}
"""The golden cases, or their first steps, that a server makes."""


# Comparing --------------------------------------------------------------------------------------------------------


def opened(cells: Cells) -> Cells:
    """Take ServerInfo, WorkerInfo and notice apart, of which process and time are as they happen to be."""
    found: Cells = {}
    for place, value in cells.items():
        if place.key.startswith("asynq:servers:{") and place.part == "string":
            info = decode_server_info(_bytes(value))
            for name in ("concurrency", "strict_priority", "status", "active_worker_count"):
                found[Place(place.key, name)] = str(getattr(info, name))
            found[Place(place.key, "queues")] = str(sorted(info.queues.items()))
            assert info.start_time is not None
            assert (info.host, info.pid) == ("vm", 2245)
        elif place.key.startswith("asynq:fastq:{") and place.part == "string":
            found[Place(place.key, "queues")] = str(sorted(ServerNotice.decode(_bytes(value)).queues))
        elif place.key.startswith("asynq:workers:{") and place.part != "ttl":
            worker = decode_worker_info(_bytes(value))
            for name in ("task_id", "task_type", "task_payload", "queue"):
                found[Place(place.key, f"{place.part}.{name}")] = str(getattr(worker, name))
            assert worker.start_time is not None
            assert worker.deadline is not None
            found[Place(place.key, f"{place.part}.seconds")] = str(
                round((worker.deadline - worker.start_time).total_seconds())
            )
        else:
            found[place] = value
    return found


def _bytes(value: object) -> bytes:
    assert isinstance(value, str)
    return bytes.fromhex(value[4:]) if value.startswith("hex:") else value.encode()


def replay(case: str, db: Redis, url: str, intended: IntendedDifferences) -> dict[str, Difference]:
    """Make a case's steps; return what differs from Go and is not intended."""
    found: dict[str, Difference] = {}

    async def steps() -> None:
        windows: list[Window] = []
        async with aclosing(Stage(db, url)) as stage:
            for number, step in enumerate(CASES[case]):
                start_s = time.time()
                await step(stage)
                windows.append(Window(start_s, time.time()))
                expected = golden(case, number)
                object.__setattr__(expected, "cells", opened(expected.cells))
                differences = differences_between(expected, opened(snapshot(db)), windows)
                left = intended.unexplained(expected, differences, windows)
                found.update({f"step {number}: {place.key} {place.part}": value for place, value in left.items()})

    run(steps)
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_keyspace_is_as_go_leaves_it(case: str, db: Redis, url: str) -> None:
    assert replay(case, db, url, IntendedDifferences()) == {}


def test_every_intended_difference_is_needed(db: Redis, url: str) -> None:
    intended = IntendedDifferences()
    for case in CASES:
        replay(case, db, url, intended)
        db.flushall()
    assert intended.unused(CASES) == []


@pytest.mark.parametrize(
    ("case", "wrong", "place"),
    [
        ("done", "INCR asynq:{default}:processed", Place("asynq:{default}:processed", "string")),
        ("done", "SET asynq:{default}:failed 0", Place("asynq:{default}:failed", "string")),
        (
            "retry_first_failure",
            "ZINCRBY asynq:{default}:retry 60 id-1",
            Place("asynq:{default}:retry", "score of id-1"),
        ),
        ("dequeue_active", "ZADD asynq:{default}:lease XX 1 id-1", Place("asynq:{default}:lease", "score of id-1")),
        ("completed_with_result", "HDEL asynq:{default}:t:id-1 result", Place("asynq:{default}:t:id-1", "result")),
        ("running_server", "DEL asynq:servers", Place("asynq:servers", "members by rank")),
    ],
)
def test_the_comparison_sees_a_wrong_cell(case: str, wrong: str, place: Place, db: Any, url: str) -> None:
    async def steps() -> None:
        async with aclosing(Stage(db, url)) as stage:
            start_s = time.time()
            await CASES[case][0](stage)
            db.execute_command(*wrong.split())
            windows = [Window(start_s, time.time())]
            assert place in differences_between(golden(case), snapshot(db), windows)

    run(steps)


@pytest.mark.parametrize(("scores", "is_seen"), [((100, 100.5), False), ((100, 160), True)])
def test_the_comparison_sees_members_in_another_order_unless_a_second_more_or_less_decides_it(
    scores: tuple[float, float], is_seen: bool
) -> None:
    cells: Cells = {Place("zset", f"score of {name}"): Moment(score) for name, score in zip("ab", scores, strict=True)}
    window = Window(100, 101)
    expected = GoldenStep("case", 0, "", {**cells, Place("zset", RANKS): ("a", "b")}, (), (window,))
    found = {**cells, Place("zset", RANKS): ("b", "a")}
    assert (Place("zset", RANKS) in differences_between(expected, found, [window])) is is_seen
