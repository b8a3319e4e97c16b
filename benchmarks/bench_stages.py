"""Where the main process' microseconds go: each stage of a task's way through it, alone, in batches of 500.

A stage alone has its data in the caches, and no process beside it; what a whole worker uses beyond the sum is the event
loop, the sockets, and what four processes on two cores cost each other.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hiredis import Reader

from fastq._ids import new_task_ids
from fastq.broker.operation import Operation
from fastq.broker.operations.finish import FinishOutcome
from fastq.broker.operations.lease import Leased, Owner, parse_leased
from fastq.broker.transport.open import open_async_broker
from fastq.broker.transport.packing import pack_command
from fastq.pool.main.protocol import Event, EventKind
from fastq.server.base.commands import Commands
from fastq.server.inflight._processor import SubmissionMaker, split_done, submissions_of
from fastq.server.inflight.ack_planner import plan_acks
from fastq.server.inflight.tally import Tally
from fastq.server.inflight.tasks import InFlightTasks, count_ends, live
from fastq.wire.codec import TaskMessage, encode_task_message
from tests.redis_servers import RedisServer

COUNT = 500
REPEATS = 200
QUEUE = "default"


def reply() -> list[Any]:
    """Return what the dequeue script answers: dangling ids, then ids and messages by turns."""
    words: list[Any] = [0]
    for task_id in new_task_ids(COUNT):
        message = TaskMessage(type="bench:noop", payload=bytes(100), id=task_id, queue=QUEUE, retry=25, timeout=1800)
        words += (task_id.encode(), encode_task_message(message))
    return words


def as_resp(words: list[Any]) -> bytes:
    """Return a reply as Redis sends it."""
    parts = [b"*%d\r\n:%d\r\n" % (len(words), words[0])]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words[1:]]
    return b"".join(parts)


class Stages:
    """Time stages, each the least of many repeats, in microseconds a task."""

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self.found: dict[str, float] = {}

    def time(self, name: str, stage: Callable[..., Any], setup: Callable[[], tuple[Any, ...]] = lambda: ()) -> Any:
        """Time one, and return what it returned last."""
        least = float("inf")
        for _ in range(self._repeats):
            given = setup()
            began_ns = time.perf_counter_ns()
            result = stage(*given)
            least = min(least, time.perf_counter_ns() - began_ns)
        self.found[name] = least / 1000 / COUNT
        return result


@pytest.fixture
def quiet_collector() -> Iterator[None]:
    """Collect garbage as rarely as a server does."""
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 50)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def round_trip_us(server: RedisServer, repeats: int) -> float:
    """Return the CPU microseconds of one pipeline of a single small command, the least of some hundreds on average."""

    async def measure() -> float:
        broker = open_async_broker(server.tcp_url)
        commands = Commands(broker)
        get: Operation[Any] = Operation("GET", ("none",), (), idempotent=True)
        least = float("inf")
        for _ in range(repeats // 10):
            began_s = time.process_time()
            for _ in range(200):
                await commands.run_many((get,))
            least = min(least, (time.process_time() - began_s) / 200)
        await broker.close()
        return 1e6 * least

    return asyncio.run(measure())


@pytest.mark.usefixtures("quiet_collector")
def test_stages(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config) -> None:
    repeats = 20 if pytestconfig.getoption("benchmark_disable") else REPEATS
    stages = Stages(repeats)
    words = reply()
    resp = as_resp(words)

    def read() -> Any:
        reader = Reader()
        reader.feed(resp)
        return reader.gets()

    read_words = stages.time("read the reply of a dequeue (hiredis)", read)
    leased: Leased = stages.time("ids and messages apart", lambda: parse_leased(read_words))

    def empty() -> tuple[InFlightTasks, SubmissionMaker]:
        in_flight = InFlightTasks()
        return in_flight, SubmissionMaker(in_flight, lambda queue, one: (False, Tally(queue, one), None, None))

    def take(in_flight: InFlightTasks, maker: SubmissionMaker) -> Any:
        return in_flight, maker.take(QUEUE, leased.ids, leased.messages, 1.0)[0]

    in_flight, tasks = stages.time("view the message, hold the task, make its submission", take, empty)
    submissions = stages.time("gather the submissions", lambda: submissions_of(tasks))
    events = [Event(EventKind.DONE, submission, b"", 5000) for submission in submissions]
    ended = stages.time("events to ends", lambda: split_done(events, 0)[0])
    owner = Owner.draw()
    calls = stages.time(
        "group, sort, and find the way to them",
        lambda: plan_acks(live(ended), in_flight, owner, time.time_ns(), checks_done=False),
    )
    packed = [call.operation.words() for call in calls]
    stages.time("pack the call of done", lambda: [pack_command(call) for call in packed])
    outcomes = calls[0].operation.parse(1)
    stages.time("see that all went well", lambda: outcomes.count(FinishOutcome.OK))

    def dropped() -> tuple[Any, ...]:
        in_flight, tasks = take(*empty())
        done, _ = split_done([Event(EventKind.DONE, submission, b"") for submission in submissions_of(tasks)], 0)
        return in_flight, done

    stages.time("count the ends", lambda: count_ends(ended))
    stages.time("let go of the tasks", lambda in_flight, done: in_flight.drop_all(done), dropped)
    trip_us = round_trip_us(tcp_server, repeats)
    with capsys.disabled():
        print(f"\n| stage, batches of {COUNT}, the least of {repeats} | µs a task |\n|---|---|")
        for name, us in stages.found.items():
            print(f"| {name} | {us:.3f} |")
        print(f"| two round trips (dequeue, done), {trip_us:.0f} µs each | {2 * trip_us / COUNT:.3f} |")
        print(f"| sum | {sum(stages.found.values()) + 2 * trip_us / COUNT:.2f} |")
