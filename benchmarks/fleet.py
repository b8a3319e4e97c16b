"""A ``fastq-worker`` as the benchmarks watch it: what its processes cost, their sizes, how fast it drains a queue."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from benchmarks.bench_worker import ROOT, descendants
from fastq import Client, Task
from fastq.broker.scripts import SCRIPTS
from tests.redis_servers import RedisServer
from tests.waiting import wait_until

SETTINGS = ("--task-check-interval", "0.01", "--log-level", "warning")
WATCHED_COMMANDS = 100_000


def used_s(pid: int) -> float:
    """Return the CPU seconds that the scheduler has counted for a process, all its threads; 0 for one that is gone."""
    ns = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        ns += int(thread.read_text().split()[0])
    return ns / 1e9


def mapped_mb(pid: int, field: str) -> float:
    """Return a field of a process' memory map, summed up, such as Rss or Pss_Shmem."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} has no {field}")


def pss_mb(pid: int) -> float:
    """Return a process' proportional set size: pages that several share count by their share."""
    return mapped_mb(pid, "Pss")


@dataclass(frozen=True, slots=True)
class Cost:
    """The CPU seconds used by the main process, all below it, and Redis."""

    main_s: float
    children_s: float
    redis_s: float

    def since(self, before: "Cost") -> "Cost":
        """Return what was used since then."""
        return Cost(self.main_s - before.main_s, self.children_s - before.children_s, self.redis_s - before.redis_s)


class Worker:
    """One running ``fastq-worker``; ``pid`` is its main process."""

    def __init__(self, process: subprocess.Popen[bytes], server: RedisServer) -> None:
        self.pid = process.pid
        self._server = server

    def cost(self) -> Cost:
        """Return what it and Redis have used so far; a child that has ended is not in it."""
        return Cost(used_s(self.pid), sum(map(used_s, descendants(self.pid))), used_s(self._server.process.pid))

    def sizes_mb(self) -> tuple[float, float]:
        """Return the size of the main process, and of all below it, the preloader too."""
        return pss_mb(self.pid), sum(map(pss_mb, descendants(self.pid)))


class ScriptTimes:
    """The durations of script calls, in ms, by the scripts' names."""

    def __init__(self) -> None:
        self._found: dict[str, list[float]] = {}

    def add(self, name: str, *times_ms: float) -> None:
        """Note calls of a script."""
        self._found.setdefault(name, []).extend(times_ms)

    def merge(self, other: "ScriptTimes") -> None:
        """Note all calls of another run."""
        for name, times_ms in other._found.items():
            self.add(name, *times_ms)

    def line(self, *names: str) -> str:
        """Return calls, median, 99th percentile and longest of the scripts that are named, of all for none."""
        times_ms = [one for name, found in self._found.items() if not names or name in names for one in found]
        if not times_ms:
            return "never called"
        p50, p99 = percentile(times_ms, 0.5), percentile(times_ms, 0.99)
        return f"{len(times_ms):>6,} calls   p50 {p50:6.2f}   p99 {p99:6.2f}   longest {max(times_ms):6.2f} ms"


def percentile(figures: Sequence[float], share: float) -> float:
    """Return the figure that so great a share of all does not exceed."""
    return sorted(figures)[max(0, math.ceil(share * len(figures)) - 1)]


class Fleet:
    """A Redis, a view of it, and a producer."""

    def __init__(self, server: RedisServer, db: Any, client: Client) -> None:
        self.server = server
        self.db = db
        self.client = client

    def processed(self, queues: Sequence[str] = ("default",)) -> int:
        """Return how many tasks these queues have counted."""
        return sum(int(count or 0) for count in self.db.mget(f"asynq:{{{queue}}}:processed" for queue in queues))

    def drain_s(self, count: int, queues: Sequence[str] = ("default",), *, look_after_s: float = 0.0) -> float:
        """Release paused queues; return the seconds until ``count`` more tasks are counted as processed."""
        goal = self.processed(queues) + count
        began_s = time.perf_counter()
        self.db.delete(*(f"asynq:{{{queue}}}:paused" for queue in queues))
        time.sleep(look_after_s)
        while self.processed(queues) < goal:
            time.sleep(0.002)
        return time.perf_counter() - began_s

    def script_times(self) -> "ScriptTimes":
        """Return what the calls of each script took in Redis since ``watch_scripts``, from 0.1 ms on."""
        names = {script.sha.encode(): name for name, script in SCRIPTS.items()}
        times = ScriptTimes()
        for entry in self.db.slowlog_get(WATCHED_COMMANDS):
            words = entry["command"].split(maxsplit=2)
            if words[0] == b"EVALSHA":
                times.add(names.get(words[1], "another"), entry["duration"] / 1000)
        return times

    def watch_scripts(self) -> None:
        """Let Redis note every command of 0.1 ms and more from now on.

        Not every command: to note one costs about as much as the commands that a script calls, which count as well.
        """
        self.db.config_set("slowlog-log-slower-than", 100)
        self.db.config_set("slowlog-max-len", WATCHED_COMMANDS)
        self.db.slowlog_reset()


@contextmanager
def filled(server: RedisServer, tasks: Iterable[Task], queues: Sequence[str] = ("default",)) -> Iterator[Fleet]:
    """Put tasks into paused queues of an emptied Redis."""
    with redis.Redis(port=server.port) as db, Client(server.tcp_url) as client:
        db.flushall()
        for queue in queues:
            db.set(f"asynq:{{{queue}}}:paused", int(time.time()))
        client.enqueue_many(tasks)
        yield Fleet(server, db, client)


@contextmanager
def running(
    server: RedisServer,
    *flags: str,
    app: str = "benchmarks.apps:mux",
    children: int = 2,
    count: int = 1,
    tree: Path = ROOT,
    module: str = "fastq.cli.worker",
) -> Iterator[list[Worker]]:
    """Run ``fastq-worker``, one or several, of this or another built tree."""
    command = [sys.executable, "-m", module, app, "--redis", server.tcp_url]
    command += ["--concurrency", str(children), *SETTINGS, *flags]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "benchmarks")}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with redis.Redis(port=server.port) as db:
            there = db.zcard("asynq:servers")
            for number in range(1, count + 1):
                processes.append(subprocess.Popen(command, cwd=tree, env=environment))
                if number % 4 == 0 or number == count:  # more at once would only wait for one another
                    wait_until(lambda: db.zcard("asynq:servers") >= there + len(processes), 60.0)
        yield [Worker(process, server) for process in processes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
