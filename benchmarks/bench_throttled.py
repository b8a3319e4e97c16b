"""What tasks that may not start cost, in fastq and in a worker that fetches them and pushes them back.

``python -m benchmarks.bench_throttled [--seconds 20]``. 100 tasks of a tenant wait, whose places are taken or who has
no token, and one server with eight threads is there. CPU is taken first, then commands by MONITOR, all but those within
scripts; then how long the one task of another tenant waits.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.bench_worker import ROOT, descendants
from benchmarks.busy_retry import QUEUE, STARTED, THREADS
from benchmarks.fleet import running, used_s
from benchmarks.recovery_lanes import listen
from fastq import Client, Task
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server
from tests.waiting import wait_until

WAITING: Final = 100
SETTLED_S: Final = 3.0
PATIENCE_S: Final = 120.0
LIMITS: Final[dict[str, dict[str, Any]]] = {
    "no task": {},
    "lane full": {"name": "*", "concurrency": 2},
    "queue full": {"name": None, "concurrency": 2},
    "no token": {"name": "*", "rate": "6/h"},
}


@dataclass(frozen=True, slots=True)
class Server:
    """One server, how to enqueue tasks of a tenant that run until it ends, and how many have started."""

    pid: int
    put: Callable[[str, int], None]
    started: Callable[[], int]

    def used_s(self) -> float:
        """Return the CPU seconds of all its processes."""
        return sum(map(used_s, [self.pid, *descendants(self.pid)]))


@contextmanager
def fastq(redis: RedisServer, case: str) -> Iterator[Server]:
    """Run a server of fastq."""
    with Client(redis.tcp_url) as client:
        if limit := dict(LIMITS[case]):
            client.set_limit("default", limit.pop("name"), **limit)

        def put(tenant: str, count: int) -> None:
            lane = None if case == "queue full" else tenant
            client.enqueue_many(Task("bench:sleep", b"3600", lane=lane, timeout=7200) for _ in range(count))

        with running(redis, "--threads", str(THREADS), "--shutdown-timeout", "0.1", children=1) as (worker,):
            yield Server(worker.pid, put, lambda: redis.client().llen("asynq:{default}:active"))


@contextmanager
def busy_retry(redis: RedisServer, limit: str, rest_s: float) -> Iterator[Server]:
    """Run a worker that pushes back what may not start."""
    command = [sys.executable, "-m", "benchmarks.busy_retry", redis.tcp_url, limit, str(rest_s)]
    db = redis.client()

    def put(tenant: str, count: int) -> None:
        db.lpush(QUEUE, *(f"{tenant}/{number}" for number in range(count)))

    with subprocess.Popen(command, cwd=ROOT) as process:
        yield Server(process.pid, put, lambda: db.scard(STARTED))
        process.kill()


def watch(name: str, redis: RedisServer, server: Server, case: str, seconds: float) -> None:
    """Print a line of figures."""
    expected = {"no task": 0, "no token": 1}.get(case, 2)
    if expected:
        server.put("a", WAITING)
        wait_until(lambda: server.started() == expected, PATIENCE_S)
    time.sleep(SETTLED_S)
    redis_s, server_s = used_s(redis.process.pid), server.used_s()
    time.sleep(seconds)
    redis_s, server_s = used_s(redis.process.pid) - redis_s, server.used_s() - server_s
    with tempfile.NamedTemporaryFile("rb") as told:
        with ExitStack() as listening:
            listen(redis, Path(told.name), listening)
            time.sleep(seconds)
        commands = sum(b" lua] " not in line for line in told if b"] " in line)
    waits = "-"
    if case in ("lane full", "no token"):
        began_s = time.monotonic()
        server.put("b", 1)
        while server.started() == expected and time.monotonic() < began_s + PATIENCE_S:
            time.sleep(0.001)
        waits = f"{time.monotonic() - began_s:.2f} s" if server.started() > expected else f"> {PATIENCE_S:.0f} s"
    print(
        f"{name:<40}{commands / seconds:10.1f} commands/s, Redis {1000 * redis_s / seconds:.1f} and worker "
        f"{1000 * server_s / seconds:.1f} ms of CPU a second, "
        f"another tenant's task starts after {waits}",
        flush=True,
    )


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    for case in LIMITS:
        with redis_server(free_port()) as redis, fastq(redis, case) as server:
            watch(f"fastq, {case}", redis, server, case, seconds)
    for case, limit in {"lane full": "full", "no token": "tokens"}.items():
        for rest_s in (0.0, 2.0):
            with redis_server(free_port()) as redis, busy_retry(redis, limit, rest_s) as server:
                watch(f"pushed back, rests for {rest_s:g} s, {case}", redis, server, case, seconds)


if __name__ == "__main__":
    main()
