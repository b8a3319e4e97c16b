"""What fastq takes before and beside the work: imports, memory of a worker's processes, the start of many children.

Memory is PSS: what a process has for itself, and its share of what several have. The size of a task's rings in the main
process is what it has of shared memory once it has passed on many tasks.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

import pytest

from benchmarks.bench_worker import ROOT, descendants
from benchmarks.fleet import filled, mapped_mb, pss_mb, running
from benchmarks.interleave import interleaved
from fastq import Task
from tests.redis_servers import RedisServer

ROUNDS: Final = 15
TASKS: Final = 100_000
RING_CHILDREN: Final = 16
RING_TASKS: Final = 1_000_000
MANY: Final = 256
PROGRAMS: Final = {
    "import redis": ("-c", "import redis"),
    "from fastq import Client": ("-c", "from fastq import Client"),
    "fastq --help": ("-m", "fastq", "--help"),
    "nothing": ("-c", ""),
}
ANONYMOUS: Final = "print(next(line.split()[1] for line in open('/proc/self/smaps_rollup') if line[:4] == 'Anon'))"


def took_ms(arguments: tuple[str, ...]) -> float:
    """Return how long a program takes from its start to its end."""
    began_s = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    return 1e3 * (time.perf_counter() - began_s)


def anonymous_mb(code: str) -> float:
    """Return the memory that a program has for itself, files that it maps not counted."""
    command = [sys.executable, "-c", f"{code}\n{ANONYMOUS}"]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout) / 1024


def test_imports(capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config) -> None:
    is_smoke = pytestconfig.getoption("benchmark_disable")

    def side(arguments: tuple[str, ...]) -> Callable[[], float]:
        return lambda: took_ms(arguments)

    result = interleaved({name: side(arguments) for name, arguments in PROGRAMS.items()}, 1 if is_smoke else ROUNDS)
    sizes = {name: anonymous_mb(code) for name, (_, code, *_) in PROGRAMS.items() if not name.endswith("--help")}
    with capsys.disabled():
        print(result.table("from the start of a program to its end", "ms", "import redis"))
        for name, size in sizes.items():
            print(f"  {name:<34}{size:>12.1f} MB  {size / sizes['import redis']:.2f} x import redis")


def test_memory_of_a_worker(
    tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    count = TASKS // 100 if pytestconfig.getoption("benchmark_disable") else TASKS
    tasks = (Task("bench:noop", bytes(100)) for _ in range(count))
    with filled(tcp_server, tasks) as fleet, running(tcp_server) as (one,):
        fleet.drain_s(count)
        main = pss_mb(one.pid)
        others = [pss_mb(pid) for pid in descendants(one.pid)]
    with capsys.disabled():
        print(f"\na worker of 2 children after {count:,} no-ops: {main + sum(others):.1f} MB of PSS", end="")
        print(f", {main:.1f} of them the main process, {', '.join(f'{one:.1f}' for one in others)} the others")


def test_rings_of_a_worker(
    tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    count = RING_TASKS // 100 if pytestconfig.getoption("benchmark_disable") else RING_TASKS
    tasks = (Task("bench:noop", bytes(100)) for _ in range(count))
    with filled(tcp_server, tasks) as fleet, running(tcp_server, children=RING_CHILDREN) as (one,):
        before, size = mapped_mb(one.pid, "Pss_Shmem"), mapped_mb(one.pid, "Rss")
        fleet.drain_s(count)
        shared, grown = mapped_mb(one.pid, "Pss_Shmem") - before, mapped_mb(one.pid, "Rss") - size
    with capsys.disabled():
        print(f"\nthe main process after {count:,} no-ops on {RING_CHILDREN} children, a child: ", end="")
        print(f"{shared / RING_CHILDREN:.2f} MB of PSS in rings, {grown / RING_CHILDREN:.2f} MB of RSS in all")


def test_start_of_many_children(
    tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    rounds, many = (1, MANY // 16) if pytestconfig.getoption("benchmark_disable") else (5, MANY)

    def side(children: int) -> Callable[[], float]:
        return lambda: start_s(tcp_server, children)

    result = interleaved({f"{children} children": side(children) for children in (2, many)}, rounds)
    more_s = statistics.median(result.figures[f"{many} children"]) - statistics.median(result.figures["2 children"])
    with capsys.disabled():
        print(result.table("from the start of fastq-worker until it is ready", "s", "2 children"))
        print(f"  {many - 2} more children: {more_s:.2f} s")


def start_s(server: RedisServer, children: int) -> float:
    """Return the seconds from the start of a worker to its line that it is ready."""
    began_s = time.perf_counter()
    command = [sys.executable, "-m", "fastq.cli.worker", "benchmarks.apps:mux", "--redis", server.tcp_url]
    with subprocess.Popen(
        [*command, "--concurrency", str(children)], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "ready: " in line:
                break
        took_s = time.perf_counter() - began_s
        process.terminate()
        process.stderr.read()
    return took_s
