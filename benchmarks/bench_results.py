"""Waiting for results: one at a time on an idle server, 100 000 collected, and many waiters at a steady rate."""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from benchmarks.bench_latency import told, worker
from fastq import AsyncClient, Client, Task
from tests.redis_servers import RedisServer

NOOP = Task("bench:noop")


@pytest.fixture
def is_smoke(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("benchmark_disable"))


@pytest.fixture
def client(tcp_server: RedisServer) -> Iterator[Client]:
    with Client(tcp_server.tcp_url) as client, worker(tcp_server):
        client.submit(NOOP).result()
        yield client


def times_ms(call: Callable[[], object], count: int) -> list[float]:
    """Return how long calls took, with a rest before each, shortest first."""
    found = []
    for _ in range(count):
        time.sleep(0.02)
        began_s = time.perf_counter()
        call()
        found.append((time.perf_counter() - began_s) * 1e3)
    return sorted(found)


def test_one_result_on_an_idle_server(client: Client, is_smoke: bool, capsys: pytest.CaptureFixture[str]) -> None:
    count = 20 if is_smoke else 400
    client.ping()
    pings = times_ms(client.ping, count)
    puts = times_ms(lambda: client.enqueue(NOOP), count)
    waits = times_ms(lambda: client.submit(NOOP).result(), count)
    with capsys.disabled():
        print(f"\n{count} times each, on an idle server")
        print(told("ping", pings))
        print(told("enqueue", puts))
        print(told("submit and result", waits))
        ratio = statistics.median(waits) / statistics.median(pings)
        print(f"  submit and result take as long as {ratio:.1f} pings")


def test_many_results(
    client: Client, tcp_server: RedisServer, is_smoke: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 2_000 if is_smoke else 100_000
    with Redis(port=tcp_server.port) as db:
        plain_s = seconds(lambda: drain(client, db, [NOOP] * count))
        db.set("asynq:{default}:paused", 1)
        submit_s, handles = timed(lambda: client.submit_many([NOOP] * count))
        again = client.submit_many([NOOP] * count)
        db.delete("asynq:{default}:paused")
        _, run_s = collect(client, [*handles, *again])
        for handle in handles:
            handle.end = None
        ended_s, _ = collect(client, handles)
    with capsys.disabled():
        print(f"\n{count:,} no-ops, tasks a second")
        print(f"  enqueued and run, kept, without a header   {count / plain_s:>9,.0f}")
        print(f"  submitted                                  {count / submit_s:>9,.0f}")
        print(f"  run and collected by as_completed          {2 * count / run_s:>9,.0f}")
        print(f"  ended ones collected by as_completed       {count / ended_s:>9,.0f}")


def drain(client: Client, db: Any, tasks: list[Task]) -> None:
    """Enqueue tasks that are kept, and wait until as many more are counted."""
    goal = int(db.get("asynq:{default}:processed") or 0) + len(tasks)
    client.enqueue_many(tasks, retention=3600)
    while int(db.get("asynq:{default}:processed") or 0) < goal:
        time.sleep(0.01)


def collect(client: Client, handles: list[Any]) -> tuple[float, float]:
    """Wait for all, as they end; return how long that took, and how long from the first of them.

    A server asks a queue that was paused again after up to 1.5 s.
    """
    began_s = time.perf_counter()
    completed = client.as_completed(handles)
    assert next(completed).result() is None
    first_s = time.perf_counter()
    assert sum(handle.result() is None for handle in completed) == len(handles) - 1
    ended_s = time.perf_counter()
    return ended_s - began_s, ended_s - first_s


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return how long a call took, and what it returned."""
    began_s = time.perf_counter()
    found = call()
    return time.perf_counter() - began_s, found


def seconds(call: Callable[[], Any]) -> float:
    """Return how long a call took."""
    return timed(call)[0]


def test_many_waiters(
    tcp_server: RedisServer, client: Client, is_smoke: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Let so many wait for tasks that nobody serves, beside 1 000 tasks a second."""
    waiters, seconds_long = (200, 1) if is_smoke else (10_000, 10)

    async def run() -> list[float]:
        async with AsyncClient(tcp_server.tcp_url) as client:
            idle = await client.submit_many(Task("bench:noop", queue="nobody") for _ in range(waiters))
            waiting = [asyncio.ensure_future(handle.result()) for handle in idle]
            await asyncio.sleep(1)  # all of them wait
            found: list[float] = []
            asked: list[asyncio.Future[None]] = []
            began_s = time.perf_counter()
            for number in range(1_000 * seconds_long):
                await asyncio.sleep(max(0.0, began_s + number / 1_000 - time.perf_counter()))
                asked.append(asyncio.ensure_future(wait(client, found)))
            await asyncio.gather(*asked)
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            return sorted(found)

    found = asyncio.run(run())
    with capsys.disabled():
        print(f"\n1,000 tasks a second beside {waiters:,} waiters, from submit to result")
        print(told("one connection listens", found))


async def wait(client: AsyncClient, found: list[float]) -> None:
    """Note how long one task takes, from submit to result."""
    began_s = time.perf_counter()
    await (await client.submit(NOOP))
    found.append((time.perf_counter() - began_s) * 1e3)
