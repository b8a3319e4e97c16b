"""Typed no-ops against raw ones on one ``fastq-worker``, in turn: tasks a second, and the CPU of the children."""

import statistics
from collections.abc import Callable

import pytest
import redis

from benchmarks.bench_worker import cpu_s, descendants, fill, time_to_drain, worker
from benchmarks.interleave import interleaved
from fastq import App, Client, RunningTask
from tests.redis_servers import RedisServer

TASKS = 100_000
ROUNDS = 9

app = App()


@app.handler("raw")
def raw(task: RunningTask) -> None:
    """Do nothing."""


@app.handler("raw, read")
def raw_read(task: RunningTask) -> None:
    """Read the payload, and do nothing with it."""
    task.json()


@app.task("typed")
def typed(id: int) -> None:
    """Do nothing with an argument."""


def test_typed_no_ops(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    costs: dict[str, list[float]] = {name: [] for name in ("raw", "raw, read", "typed")}
    with (
        redis.Redis(port=tcp_server.port) as db,
        Client(tcp_server.tcp_url) as client,
        worker(tcp_server, "benchmarks.bench_typed:app") as process,
    ):

        def rate(name: str) -> float:
            fill(client, db, name, TASKS, payload=b'{"id":7}')
            children = descendants(process.pid)
            before = sum(map(cpu_s, children))
            seconds = time_to_drain(db, TASKS)
            costs[name].append(1e6 * (sum(map(cpu_s, children)) - before) / TASKS)
            return TASKS / seconds

        sides: dict[str, Callable[[], float]] = {name: lambda name=name: rate(name) for name in costs}  # type: ignore[misc]  # mypy infers no lambda with a default
        result = interleaved(sides, ROUNDS)
    with capsys.disabled():
        print(result.table("no-op tasks", "tasks/s", "raw"))
        for name, column in costs.items():
            print(f"  CPU of the children a task, {name}: {statistics.median(column):.2f} us")
