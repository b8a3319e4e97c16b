"""Enqueue: ``enqueue_many`` against the bare script and Go asynq, one ``enqueue`` against redis-py's bare EVALSHA.

The payload is 100 bytes; ids, options and encoding are included on our side, and left out on the bare one. Redis is on
the same machine, over loopback TCP.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import redis
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.interleave import interleaved
from fastq import AsyncClient, Client, Task
from fastq._ids import new_task_ids
from fastq.broker.scripts import SCRIPTS
from fastq.wire.codec import TaskMessage, encode_task_message
from tests.interop.peer import GoPeer
from tests.redis_servers import RedisServer

MANY = 100_000
CHUNK = 500
CALLS = 2_000
PAYLOAD = bytes(range(100))
PENDING, PREFIX = "asynq:{default}:pending", "asynq:{default}:t:"


def per_second(count: int, work: Callable[[], object]) -> float:
    """Return how often a second ``work``, which does a thing ``count`` times, did it."""
    began_s = time.perf_counter()
    work()
    return count / (time.perf_counter() - began_s)


def message(task_id: str) -> bytes:
    """Return what a client writes for a task without options."""
    return encode_task_message(
        TaskMessage(type="bench:noop", payload=PAYLOAD, id=task_id, queue="default", retry=25, timeout=1800)
    )


def on_empty(db: redis.Redis, side: Callable[[], float]) -> Callable[[], float]:
    """Return a side that runs on an emptied Redis."""

    def run() -> float:
        db.flushall()
        return side()

    return run


def bare_batches(db: redis.Redis) -> Callable[[], float]:
    """Send batches that are ready beforehand: Redis' own limit for this script and this batch size."""
    sha = db.script_load(SCRIPTS["enqueue"].text)
    ids = new_task_ids(MANY)
    words = [word for task_id in ids for word in (task_id, message(task_id))]
    step = 2 * CHUNK
    batches = [words[at : at + step] for at in range(0, len(words), step)]

    def run() -> None:
        for batch in batches:
            db.evalsha(sha, 1, PENDING, PREFIX, time.time_ns(), 2, *batch)

    return on_empty(db, lambda: per_second(MANY, run))


def ours(client: Client) -> float:
    """Enqueue tasks from a generator."""
    return per_second(MANY, lambda: client.enqueue_many(Task("bench:noop", PAYLOAD) for _ in range(MANY)))


def go_side(go: GoPeer, goroutines: int) -> Callable[[], float]:
    """Let Go enqueue from so many goroutines."""

    def run() -> float:
        answer = go.request("bench_enqueue", n=MANY // 2, goroutines=goroutines, queue="default", payload_size=100)
        return float(answer["tasks_per_second"])

    return run


def test_enqueue_many_against_the_bare_script(
    tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], benchmark: BenchmarkFixture
) -> None:
    with redis.Redis(port=tcp_server.port) as db, Client(tcp_server.tcp_url) as client:
        result = interleaved({"bare script": bare_batches(db), "enqueue_many": on_empty(db, lambda: ours(client))})
        with capsys.disabled():
            print(result.table("bulk enqueue", "tasks/s", "bare script"))
        benchmark.extra_info.update(result.figures)
        benchmark(on_empty(db, lambda: ours(client)))
        assert db.llen(PENDING) == MANY


def test_enqueue_many_against_go(tcp_server: RedisServer, go_asynq: GoPeer, capsys: pytest.CaptureFixture[str]) -> None:
    with redis.Redis(port=tcp_server.port) as db, Client(tcp_server.tcp_url) as client:
        sides = {f"Go Enqueue, {n} goroutines": on_empty(db, go_side(go_asynq, n)) for n in (10, 50)}
        result = interleaved({**sides, "enqueue_many": on_empty(db, lambda: ours(client))}, rounds=5)
        with capsys.disabled():
            print(result.table("bulk enqueue beside Go asynq", "tasks/s", "Go Enqueue, 50 goroutines"))


def test_one_enqueue_against_a_bare_evalsha(
    tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], benchmark: BenchmarkFixture
) -> None:
    with redis.Redis(port=tcp_server.port) as db, Client(tcp_server.tcp_url) as client:
        sha = db.script_load(SCRIPTS["enqueue"].text)
        ready = [(task_id, message(task_id)) for task_id in new_task_ids(CALLS)]

        def bare() -> None:
            for task_id, data in ready:
                db.evalsha(sha, 1, PENDING, PREFIX, time.time_ns(), 2, task_id, data)

        def one_by_one() -> None:
            for _ in range(CALLS):
                client.enqueue("bench:noop", PAYLOAD)

        def cost_us(work: Callable[[], None]) -> Callable[[], float]:
            return on_empty(db, lambda: 1e6 / per_second(CALLS, work))

        result = interleaved({"redis-py evalsha": cost_us(bare), "Client.enqueue": cost_us(one_by_one)}, rounds=25)
        with capsys.disabled():
            print(result.table("one enqueue", "us a call", "redis-py evalsha"))
        benchmark.extra_info.update(result.figures)
        benchmark(client.enqueue, "bench:noop", PAYLOAD)


def concurrent_enqueues(client: AsyncClient, callers: int) -> Callable[[], Coroutine[Any, Any, None]]:
    """Let so many callers enqueue one task after the other."""

    async def caller() -> None:
        for _ in range(CALLS // callers):
            await client.enqueue("bench:noop", PAYLOAD)

    async def all_of_them() -> None:
        await asyncio.gather(*(caller() for _ in range(callers)))

    return all_of_them


def test_async_enqueue_by_concurrent_callers(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    with redis.Redis(port=tcp_server.port) as db, asyncio.Runner() as runner:
        client = AsyncClient(tcp_server.tcp_url)

        def side(callers: int) -> Callable[[], float]:
            work = concurrent_enqueues(client, callers)
            return on_empty(db, lambda: per_second(CALLS, lambda: runner.run(work())))

        result = interleaved({f"{callers} callers": side(callers) for callers in (1, 10, 100)})
        runner.run(client.close())
        with capsys.disabled():
            print(result.table("AsyncClient.enqueue", "tasks/s", "1 callers"))
