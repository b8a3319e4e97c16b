"""Handlers that wait 100 ms: 4 children of 50 threads beside 200 children, and what one that hangs costs the others.

The ideal is that 200 of them wait at any time. Memory is that of all processes of the worker after the run, pages that
they share by their share. HTTP server, PostgreSQL and Redis run on the same cores.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from benchmarks.bench_real_work import cpu_line
from benchmarks.bench_worker import ROOT
from benchmarks.fleet import Cost, Fleet, filled, running
from benchmarks.interleave import interleaved
from benchmarks.waiting_app import WAIT_S
from fastq import Task
from tests.postgres import postgres
from tests.redis_servers import RedisServer
from tests.waiting import wait_until

APP = "benchmarks.waiting_app:mux"
ROUNDS = 5
SECONDS = 5.0
IDEAL = "ideal"


@pytest.fixture
def http_port() -> Iterator[int]:
    """Run the HTTP server."""
    command = [sys.executable, "-m", "benchmarks.waiting_app"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


@pytest.fixture
def dsn() -> Iterator[str]:
    """Run a PostgreSQL."""
    with postgres(connections=500) as server:
        yield server.dsn


def warm_up(fleet: Fleet, task_type: str, count: int) -> None:
    """Let every thread have a task, and so its connection; then fill the queue while it is paused again."""
    fleet.drain_s(count)
    fleet.db.set("asynq:{default}:paused", int(time.time()))


@pytest.mark.parametrize("kind", ["http", "postgres"])
def test_handlers_that_wait(
    kind: str,
    tcp_server: RedisServer,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pytestconfig: pytest.Config,
) -> None:
    is_smoke = pytestconfig.getoption("benchmark_disable")
    children, threads, seconds, rounds = (2, 5, 0.3, 1) if is_smoke else (4, 50, SECONDS, ROUNDS)
    if kind == "http":
        monkeypatch.setenv("BENCH_HTTP_PORT", str(request.getfixturevalue("http_port")))
    else:
        monkeypatch.setenv("BENCH_DSN", request.getfixturevalue("dsn"))
    task_type, at_once = f"bench:{kind}", children * threads
    count = round(at_once * seconds / WAIT_S)
    sizes_mb: dict[str, list[float]] = {}
    costs: dict[str, list[Cost]] = {}

    def rate(name: str, children: int, threads: int) -> float:
        tasks = (Task(task_type) for _ in range(4 * at_once))
        worker = running(tcp_server, "--threads", str(threads), app=APP, children=children)
        with filled(tcp_server, tasks) as fleet, worker as (one,):
            warm_up(fleet, task_type, 4 * at_once)
            fleet.client.enqueue_many(Task(task_type) for _ in range(count))
            before = one.cost()
            took_s = fleet.drain_s(count)
            costs.setdefault(name, []).append(one.cost().since(before))
            sizes_mb.setdefault(name, []).append(sum(one.sizes_mb()))
            return count / took_s

    sides: dict[str, Callable[[], float]] = {IDEAL: lambda: at_once / WAIT_S}
    for name, shape in {
        f"{children} children of {threads} threads": (children, threads),
        f"{at_once} children": (at_once, 1),
    }.items():
        sides[name] = partial(rate, name, *shape)
    result = interleaved(sides, rounds)
    with capsys.disabled():
        print(result.table(f"handlers that wait 100 ms ({kind})", "tasks/s", IDEAL))
        for name, found in sizes_mb.items():
            print(f"  {name}: {statistics.median(found):.0f} MB; {cpu_line(costs[name], count)}")


def test_one_that_hangs(
    tcp_server: RedisServer,
    http_port: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pytestconfig: pytest.Config,
) -> None:
    """Let one handler hang among many that wait: it alone is charged, and they all end."""
    count = 100 if pytestconfig.getoption("benchmark_disable") else 5_000
    monkeypatch.setenv("BENCH_HTTP_PORT", str(http_port))
    tasks = [Task("bench:hang", timeout=1), *(Task("bench:http") for _ in range(count))]
    flags = ("--threads", "50", "--timeout-grace", "0.5", "--log-level", "error")
    with filled(tcp_server, tasks) as fleet, running(tcp_server, *flags, app=APP, children=4):
        fleet.db.delete("asynq:{default}:paused")
        wait_until(lambda: fleet.db.zcard("asynq:{default}:retry") == 1)
        wait_until(lambda: fleet.processed() == count + 1)
        failed = int(fleet.db.get("asynq:{default}:failed"))
        archived = fleet.db.zcard("asynq:{default}:archived")
    with capsys.disabled():
        print(f"\none that hangs among {count:,}: {failed} charged, {archived} archived")
    assert (failed, archived) == (1, 0)
