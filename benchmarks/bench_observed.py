"""What it costs to be seen: metrics that are scraped, history, task log and a log in JSON, together against none of it.

A second part scrapes a server with 200 types in each of ten queues, and tells how long the loop was held at most.
"""

import asyncio
import http.client
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from benchmarks.bench_worker import Cost, medians, run_tasks
from benchmarks.interleave import interleaved
from fastq.server.base.config import ServerConfig
from fastq.server.monitoring.exposition import Format, render
from fastq.server.monitoring.families import families
from fastq.server.monitoring.listener import in_stretches
from fastq.server.wiring.process import ProcessOptions, ServerProcess
from tests.ports import free_port
from tests.redis_servers import RedisServer

TASKS = 200_000
ROUNDS = 9
SCRAPES = 30
QUEUES, TYPES = 10, 200


@contextmanager
def scraping(port: int) -> Iterator[None]:
    """Scrape a worker every second."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(1.0):
            with suppress(OSError):  # it does not listen yet, or any more
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/metrics")
                connection.getresponse().read()
                connection.close()

    thread = threading.Thread(target=scrape)
    thread.start()
    yield
    over.set()
    thread.join()


def test_being_observed(tcp_server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    metrics = "--metrics-listen", f"127.0.0.1:{port}"
    log = "--task-log", str(tmp_path / "tasks.jsonl")
    flags: dict[str, Sequence[str]] = {
        "off": ("--no-history",),
        "history": (),
        "task log": ("--no-history", *log),
        "all": (*metrics, *log, "--log-format", "json"),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in flags}

    def side(name: str) -> Callable[[], float]:
        def run() -> float:
            with scraping(port):
                costs[name].append(run_tasks(tcp_server, TASKS, "bench:noop", flags=flags[name]))
            return costs[name][-1].rate

        return run

    result = interleaved({name: side(name) for name in flags}, ROUNDS)
    with capsys.disabled():
        print(result.table("no-op tasks of 100 bytes, 2 children", "tasks/s", "off"))
        for name, found in costs.items():
            _, main, children, server = medians(found)
            print(f"  CPU a task, {name}: main process {main:.2f} us, children {children:.2f}, Redis {server:.2f}")


def test_a_scrape_of_many_types(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    async def longest_s() -> tuple[float, float, int]:
        process = ServerProcess(ProcessOptions("benchmarks.apps:mux", tcp_server.tcp_url, ServerConfig()))
        for queue in range(QUEUES):
            for kind in range(TYPES):
                process.stats.tally(f"queue-{queue}", f"type-{kind}").run_s.observe(0.01)
        gaps: list[float] = []
        last_s = time.perf_counter()

        def tick() -> None:
            nonlocal last_s
            now_s = time.perf_counter()
            gaps.append(now_s - last_s)
            last_s = now_s
            loop.call_soon(tick)

        loop = asyncio.get_running_loop()
        loop.call_soon(tick)
        began_s = time.perf_counter()
        parts = await in_stretches(render(families(process), Format.PROMETHEUS))
        return max(gaps), time.perf_counter() - began_s, sum(map(len, parts))

    found = [asyncio.run(longest_s()) for _ in range(SCRAPES)]
    with capsys.disabled():
        print(f"\na scrape of {QUEUES} queues with {TYPES} types each ({SCRAPES} times)")
        for name, place, unit in (("longest stretch of the loop", 0, "ms"), ("the whole answer", 1, "ms")):
            figures = sorted(1000 * one[place] for one in found)
            print(f"  {name:<30}{figures[len(figures) // 2]:8.2f} {unit}  ({figures[0]:.2f}-{figures[-1]:.2f})")
        print(f"  {'its size':<30}{found[0][2] / 1e6:8.2f} MB")
