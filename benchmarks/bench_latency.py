"""Pick-up latency: from the call of ``enqueue`` to the first line of the handler, on an idle server and at half load.

Also what an idle server asks of Redis. The worker has two children and three queues; Redis is on the same machine.
"""

import random
import statistics
import subprocess
import sys
import threading
import time
from bisect import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from benchmarks.bench_worker import ROOT
from benchmarks.traced_worker import STAGES
from fastq import Client, Task
from tests.redis_servers import RedisServer
from tests.waiting import wait_until

SAMPLES = 400
MANY = 100
SAMPLES_A_QUEUE = 5
IDLE_S = 30.0
"""A round of the recoverer, the actor that comes by most seldom."""
AT_FIRST_S = 18.0
"""So that all that happens once has happened: a recoverer takes nothing before Redis has answered it for 15 s."""
QUEUES = ("critical", "default", "low")
BRPOP_LOOP = """
import sys, time, redis
db = redis.Redis(port=int(sys.argv[1]))
print("ready", flush=True)
while True:
    task = db.brpop(["brpop:critical", "brpop:default", "brpop:low"])[1]
    db.hset("brpop:began", task, time.time_ns())
"""


@contextmanager
def worker(server: RedisServer, *program: str, settings: Sequence[str] = (), tree: Path = ROOT) -> Iterator[int]:
    """Run ``fastq-worker`` on three queues, with every setting that matters here as it comes, unless it is given.

    It is that of this or another built tree; yields its process id.
    """
    words = program or ("fastq.cli.worker",)
    command = [sys.executable, "-m", *words, "benchmarks.apps:mux", "--redis", server.tcp_url]
    usual = ["--concurrency", "2", "--queues", "critical=6,default=3,low=1", "--log-level", "warning"]
    process = subprocess.Popen([*command, *usual, *settings], cwd=tree)
    try:
        with redis.Redis(port=server.port) as db:
            wait_until(lambda: bool(db.zcard("asynq:servers")), 20.0)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


class Sample(NamedTuple):
    """When a task's ``enqueue`` was called, when that returned, and when its handler began, in unix ns."""

    called: int
    returned: int
    began: int


def pause() -> None:
    time.sleep(random.uniform(0.01, 0.03))


def samples(client: Client, db: Any, queues: Sequence[str] = QUEUES, count: int = SAMPLES) -> list[Sample]:
    """Enqueue tasks at random moments, and wait until all have begun."""
    sent: dict[str, tuple[int, int]] = {}
    for _ in range(count):
        pause()
        called = time.time_ns()
        queue = random.choice(queues)
        task_id = client.enqueue("bench:when", queue=queue, retention=600).id
        sent[f"asynq:{{{queue}}}:t:{task_id}"] = (called, time.time_ns())
    wait_until(lambda: all(db.hexists(key, "result") for key in sent), 30.0)
    return [Sample(*times, int(db.hget(key, "result"))) for key, times in sent.items()]


def latencies_ms(client: Client, db: Any, queues: Sequence[str] = QUEUES, count: int = SAMPLES) -> list[float]:
    """Return the milliseconds until each of some tasks began, shortest first."""
    return sorted((one.began - one.called) / 1e6 for one in samples(client, db, queues, count))


def brpop_latencies_ms(db: Any, port: int, count: int = SAMPLES) -> list[float]:
    """Return the milliseconds until each task of a bare loop over BRPOP began, shortest first; it loses what it has."""
    sent: dict[bytes, int] = {}
    with subprocess.Popen([sys.executable, "-c", BRPOP_LOOP, str(port)], stdout=subprocess.PIPE) as loop:
        assert loop.stdout is not None
        loop.stdout.readline()
        for number in range(count):
            pause()
            sent[b"%d" % number] = time.time_ns()
            db.lpush(f"brpop:{random.choice(QUEUES)}", number)
        wait_until(lambda: db.hlen("brpop:began") == count, 30.0)
        loop.kill()
    began = db.hgetall("brpop:began")
    return sorted((int(began[task]) - at) / 1e6 for task, at in sent.items())


def told(title: str, found: list[float]) -> str:
    p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
    return f"  {title:<28} p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   longest {found[-1]:6.2f} ms"


def commands_a_second(db: Any, seconds: float) -> float:
    """Return how many commands clients send, those of scripts not counted: ``INFO`` counts them, too."""
    until = time.monotonic() + seconds
    count = 0
    with db.monitor() as monitor:
        for command in monitor.listen():
            if time.monotonic() > until:
                return count / seconds
            count += command["client_type"] != "lua"
    raise RuntimeError("Redis ended")


def test_pick_up(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    with redis.Redis(port=tcp_server.port) as db, Client(tcp_server.tcp_url) as client, worker(tcp_server):
        client.enqueue("bench:noop")
        time.sleep(AT_FIRST_S)
        asked = commands_a_second(db, IDLE_S)
        idle = latencies_ms(client, db)
        with half_load(tcp_server):
            loaded = latencies_ms(client, db)
    with redis.Redis(port=tcp_server.port) as db:
        bare = brpop_latencies_ms(db, tcp_server.port)
    with capsys.disabled():
        print(f"\npick-up latency of {SAMPLES} tasks, two children, three queues")
        print(told("a bare BRPOP loop, idle", bare))
        print(told("idle", idle))
        print(told("at half load", loaded))
        print(f"  an idle server sends {asked:.1f} commands a second")


def test_many_queues(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Serve a queue a tenant: each is to be picked up as soon as one of a few."""
    queues = [f"tenant-{number:03d}" for number in range(MANY)]
    settings = ("--queues", ",".join(f"{queue}=1" for queue in queues))
    with (
        redis.Redis(port=tcp_server.port) as db,
        Client(tcp_server.tcp_url) as client,
        worker(tcp_server, settings=settings),
    ):
        client.enqueue_many(Task("bench:noop", queue=queue) for queue in queues)
        time.sleep(AT_FIRST_S)
        asked = commands_a_second(db, IDLE_S)
        found = {queue: latencies_ms(client, db, (queue,), SAMPLES_A_QUEUE) for queue in queues}
    every = sorted(latency for latencies in found.values() for latency in latencies)
    slowest = max(statistics.median(latencies) for latencies in found.values())
    with capsys.disabled():
        print(f"\npick-up latency of {SAMPLES_A_QUEUE} tasks in each of {MANY} queues of one server")
        print(told("idle", every))
        print(f"  the slowest queue's median: {slowest:.2f} ms")
        print(f"  an idle server of {MANY} queues sends {asked:.1f} commands a second")


def test_where_the_time_goes(tcp_server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Follow idle pick-ups through the main process; and time a bare PING after the same pauses."""
    stamps = tmp_path / "stamps"
    with redis.Redis(port=tcp_server.port) as db, Client(tcp_server.tcp_url) as client:
        with worker(tcp_server, "benchmarks.traced_worker", str(stamps)):
            client.enqueue("bench:noop")
            time.sleep(2.0)
            found = samples(client, db)
        pings = [round_trip_ms(db) for _ in range(SAMPLES)]
    noted = [(name, int(at)) for name, at in (line.split("\t") for line in stamps.read_text().splitlines())]
    rows = {"enqueue has returned": [one.returned - one.called for one in found]}
    rows |= {f"main process: {stage}": [] for stage in STAGES}
    rows["the handler begins"] = [one.began - one.called for one in found]
    for one in found:
        for stage, at in stages_of(one, noted).items():
            rows[f"main process: {stage}"].append(at - one.called)
    with capsys.disabled():
        print(f"\nan idle pick-up, from the call of enqueue; medians of {SAMPLES}")
        for name, times in rows.items():
            if times:
                print(f"  {name:<28} {statistics.median(times) / 1e6:6.2f} ms")
        print(f"  {'(a PING after such a pause)':<28} {statistics.median(pings):6.2f} ms")


def stages_of(sample: Sample, noted: list[tuple[str, int]]) -> dict[str, int]:
    """Return when the main process came to each stage of a task: each stage's first stamp after the one before."""
    found: dict[str, int] = {}
    stages = iter(STAGES.items())
    stage, awaited = next(stages)
    for name, at in noted[bisect(noted, sample.called, key=itemgetter(1)) :]:
        if name == awaited:
            found[stage] = at
            stage, awaited = next(stages, ("", ""))
    return found


def round_trip_ms(db: Any) -> float:
    pause()
    began_s = time.perf_counter()
    db.ping()
    return 1e3 * (time.perf_counter() - began_s)


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
