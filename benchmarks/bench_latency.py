"""Pick-up latency: from the call of ``enqueue`` to the first line of the handler, on an idle server and at half load.

Also what an idle server asks of Redis. The worker has two children and three queues; Redis is on the same machine.
"""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from benchmarks.bench_worker import ROOT
from fastq import Client
from tests.redis_servers import RedisServer
from tests.waiting import wait_until

SAMPLES = 400
IDLE_S = 10.0
QUEUES = ("critical", "default", "low")


@contextmanager
def worker(server: RedisServer) -> Iterator[None]:
    """Run ``fastq-worker`` on three queues, with every setting that matters here as it comes."""
    command = [sys.executable, "-m", "fastq.cli.worker", "benchmarks.apps:mux", "--redis", server.tcp_url]
    settings = ["--concurrency", "2", "--queues", "critical=6,default=3,low=1", "--log-level", "warning"]
    process = subprocess.Popen([*command, *settings], cwd=ROOT)
    try:
        with redis.Redis(port=server.port) as db:
            wait_until(lambda: bool(db.zcard("asynq:servers")), 20.0)
        yield
    finally:
        process.terminate()
        process.wait()


def latencies_ms(client: Client, db: Any) -> list[float]:
    """Enqueue tasks at random moments; return the milliseconds until each began, shortest first."""
    began: dict[str, int] = {}
    for _ in range(SAMPLES):
        time.sleep(random.uniform(0.01, 0.03))
        now_ns = time.time_ns()
        queue = random.choice(QUEUES)
        began[f"asynq:{{{queue}}}:t:{client.enqueue('bench:when', queue=queue, retention=600).id}"] = now_ns
    wait_until(lambda: all(db.hexists(key, "result") for key in began), 30.0)
    return sorted((int(db.hget(key, "result")) - now_ns) / 1e6 for key, now_ns in began.items())


def told(title: str, found: list[float]) -> str:
    p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
    return f"  {title:<28} p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   longest {found[-1]:6.2f} ms"


def calls(db: Any) -> int:
    """Return how many commands clients have sent: scripts call none of these."""
    stats: dict[str, dict[str, int]] = db.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval", "blmove", "ping"))


def test_pick_up(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    with redis.Redis(port=tcp_server.port) as db, Client(tcp_server.tcp_url) as client, worker(tcp_server):
        client.enqueue("bench:noop")
        time.sleep(2.0)  # so that everything that happens once has happened
        before = calls(db)
        time.sleep(IDLE_S)
        asked = (calls(db) - before) / IDLE_S
        idle = latencies_ms(client, db)
        with half_load(tcp_server):
            loaded = latencies_ms(client, db)
    with capsys.disabled():
        print(f"\npick-up latency of {SAMPLES} tasks, two children, three queues")
        print(told("idle", idle))
        print(told("at half load", loaded))
        print(f"  an idle server sends {asked:.1f} commands a second")


@contextmanager
def half_load(server: RedisServer) -> Iterator[None]:
    """Keep the two children busy for about half of the time, with handlers of 1 ms."""
    end = threading.Event()

    def produce() -> None:
        with Client(server.tcp_url) as client:
            while not end.wait(0.005):
                for _ in range(5):
                    client.enqueue("bench:ms")

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
