"""How many no-op tasks of 100 bytes pass the pool, at what CPU cost on both sides, and how fast an idle one wakes.

``pytest benchmarks/bench_pool.py --benchmark-enable -o addopts=""``; beside the pool, in the same run, a bare
``multiprocessing.Pipe`` echo with as many messages on their way. CPU is what the scheduler counted, per task; the
main process' share holds everything: making the submission, submit, dispatch, collect, event, event loop.
"""

import asyncio
import gc
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fastq.pool.main.child_queue import Event, Submission
from fastq.pool.main.config import PoolConfig
from fastq.pool.main.pool import ProcessPool
from fastq.pool.main.protocol import PoolListener
from fastq.pool.shared.runner import Answer, TaskContext
from fastq.server.run import GC_THRESHOLDS

TASKS = 100_000
WINDOW = 256
PAYLOAD = b"x" * 100


class NoopRunner:
    """Do nothing."""

    has_plain = True
    has_async = True
    description = ""
    child_start = ()
    child_stop = ()

    def run(self, data: bytes, context: TaskContext) -> Answer:
        """Do nothing."""
        return None

    async def _noop(self) -> Answer:
        return None

    def run_async(self, data: bytes, context: TaskContext) -> Awaitable[Answer]:
        """Return a coroutine that does nothing."""
        return self._noop()


def load(argument: str) -> NoopRunner:
    """Make the runner."""
    return NoopRunner()


class Driver(PoolListener):
    """Keep a pool full until so many tasks are done."""

    def __init__(self, processes: int) -> None:
        self.loop = asyncio.new_event_loop()
        config = PoolConfig(f"{__name__}:load", processes=processes)
        self.pool = ProcessPool(config)
        self.is_async = False
        self.unsent = self.unanswered = 0
        self.finished: asyncio.Future[None] | None = None
        self.loop.run_until_complete(self.pool.start(self))

    def on_failed(self, error: Exception) -> None:
        """Give up."""
        if self.finished is not None:
            self.finished.set_exception(error)

    def on_events(self, events: list[Event]) -> None:
        """Count, and send more."""
        self.unanswered -= len(events)
        if self.unanswered == 0 and self.finished is not None:
            self.finished.set_result(None)
        self.send()

    def send(self) -> None:
        """Send as much as there is room for."""
        count = min(self.pool.free, self.unsent)
        if count:
            self.unsent -= count
            self.pool.submit([Submission(None, PAYLOAD, "noop", is_async=self.is_async) for _ in range(count)])

    async def drive(self, tasks: int) -> None:
        """Run so many tasks."""
        self.finished = self.loop.create_future()
        self.unsent = self.unanswered = tasks
        self.send()
        async with asyncio.timeout(60):
            await self.finished

    def run(self, tasks: int = TASKS) -> None:
        """Run so many tasks."""
        self.loop.run_until_complete(self.drive(tasks))

    def child_cpu_ns(self) -> int:
        """Return the CPU time of all children."""
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in self.pool.child_states)


def rounds_of(
    benchmark: BenchmarkFixture, run: Callable[[], None], rounds: int, setup: Callable[[], None] | None = None
) -> None:
    """Measure so many rounds."""
    benchmark.pedantic(run, setup=setup, rounds=rounds)  # type: ignore[no-untyped-call]  # the plugin has no hints


@contextmanager
def driver(processes: int) -> Iterator[Driver]:
    """Start a pool and stop it."""
    made = Driver(processes)
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)  # as the server: else most of what a task costs here is the collector's
    try:
        yield made
    finally:
        gc.set_threshold(*before)
        made.loop.run_until_complete(made.pool.stop())
        made.loop.close()


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("processes", [1, 2])
def test_noop_tasks(benchmark: BenchmarkFixture, processes: int, kind: str) -> None:
    with driver(processes) as pool:
        pool.is_async = kind == "async"
        pool.run(10_000)
        rounds = 9
        main_ns, child_ns = time.process_time_ns(), pool.child_cpu_ns()
        rounds_of(benchmark, pool.run, rounds=rounds)
        total = rounds * TASKS
        benchmark.extra_info["main_us_per_task"] = round((time.process_time_ns() - main_ns) / total / 1000, 3)
        benchmark.extra_info["child_us_per_task"] = round((pool.child_cpu_ns() - child_ns) / total / 1000, 3)
        if benchmark.stats is not None:
            rate = TASKS / median(benchmark.stats.stats.data)
            benchmark.extra_info["tasks_per_s"] = round(rate)
            print(f"\n{processes} children, {kind}: {rate:,.0f} tasks/s", dict(benchmark.extra_info))


def test_idle_wakeup(benchmark: BenchmarkFixture) -> None:
    with driver(1) as pool:
        pool.run(1000)
        taken = []

        def one() -> None:
            start = time.perf_counter_ns()
            pool.run(1)
            taken.append(time.perf_counter_ns() - start)

        def rest() -> None:
            time.sleep(0.001)  # until both sides are asleep

        rounds_of(benchmark, one, setup=rest, rounds=1000)
        p99 = quantiles(taken, n=100)[98]
        print(f"\nidle submit to result: p50 {median(taken) / 1000:.0f} us, p99 {p99 / 1000:.0f} us")


def echo(connection: Connection) -> None:
    """Answer every message, until there are no more."""
    while data := connection.recv_bytes():
        connection.send_bytes(data[:8])


def test_bare_pipe(benchmark: BenchmarkFixture) -> None:
    near, far = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=echo, args=(far,))
    process.start()

    def run() -> None:
        for _ in range(WINDOW):
            near.send_bytes(PAYLOAD)
        for _ in range(TASKS - WINDOW):
            near.recv_bytes()
            near.send_bytes(PAYLOAD)
        for _ in range(WINDOW):
            near.recv_bytes()

    main_ns = time.process_time_ns()
    rounds_of(benchmark, run, rounds=3)
    benchmark.extra_info["main_us_per_task"] = round((time.process_time_ns() - main_ns) / TASKS / 3 / 1000, 3)
    near.send_bytes(b"")
    process.join()
    if benchmark.stats is not None:
        print(f"\nbare pipe: {TASKS / median(benchmark.stats.stats.data):,.0f} messages/s", dict(benchmark.extra_info))
