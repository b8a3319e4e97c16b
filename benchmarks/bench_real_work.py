"""``fastq-worker`` where handlers do work: CPU of 0.2, 1 and 5 ms and a mix, on two children; no-ops on many children.

Each against two bare processes that do the same loops, by turns. CPU is what the scheduler counted for each process, so
it holds where the machine is busy and the rates do not. ``BENCH_ROUNDS`` (9) and ``BENCH_SECONDS`` (3, of work a turn)
shorten a run; ``BENCH_BEFORE=DIR`` gives the worker of another built tree a turn in each round.
"""

import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.bench_worker import ROOT
from benchmarks.fleet import Cost, filled, running
from benchmarks.interleave import interleaved
from benchmarks.real_work_app import spin
from fastq import Task
from tests.redis_servers import RedisServer

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "9"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "3"))
TREES = {"fastq": ROOT}
if before := os.environ.get("BENCH_BEFORE"):
    TREES = {"before": Path(before), "fastq": ROOT}
BARE = "two bare processes"
NOOPS = 100_000
CHILDREN = (2, 16, 64, 256)
BARE_PROGRAM = """
import json, sys, time
from benchmarks.real_work_app import spin
loops = json.loads(sys.stdin.readline())
began_s = time.perf_counter()
for each in loops:
    spin(each)
print(time.perf_counter() - began_s, time.process_time())
"""


def loops_a_ms() -> float:
    """Return how many loops take a millisecond of CPU here."""
    taken: list[float] = []
    for _ in range(50):
        began_s = time.thread_time()
        spin(10_000)
        taken.append(time.thread_time() - began_s)
    return 10 / min(taken)


def durations_ms(kind: str) -> list[float]:
    """Return how long each task of a turn takes: so many ms, or for "mix" 0.1 to 50 ms, each size as often."""
    if kind != "mix":
        return [float(kind)] * round(2000 * SECONDS / float(kind))
    drawn = random.Random(7)
    found: list[float] = []
    while sum(found) < 2000 * SECONDS:
        found.append(0.1 * math.exp(drawn.random() * math.log(500)))
    return found


def bare_s(loops: Sequence[int]) -> float:
    """Run the loops in two processes that share them evenly; return the seconds until both are through."""
    halves: tuple[list[int], list[int]] = ([], [])
    for each in sorted(loops, reverse=True):
        min(halves, key=sum if len(loops) < 2000 else len).append(each)
    command = [sys.executable, "-c", BARE_PROGRAM]
    processes = [
        subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in halves
    ]
    time.sleep(0.3)  # both have imported what they need
    for process, half in zip(processes, halves, strict=True):
        assert process.stdin is not None
        process.stdin.write(f"{half}\n")
        process.stdin.flush()
    return max(float(process.communicate()[0].split()[0]) for process in processes)


@pytest.mark.parametrize("kind", ["0.2", "1", "5", "mix"])
def test_cpu_handlers(kind: str, tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    each_ms = durations_ms(kind)
    a_ms = loops_a_ms()
    loops = [round(ms * a_ms) for ms in each_ms]
    costs: dict[str, list[Cost]] = {name: [] for name in TREES}
    bare_took_s = [SECONDS]

    def bare() -> float:
        bare_took_s.append(bare_s(loops))
        return len(loops) / bare_took_s[-1]

    def worker(name: str) -> Callable[[], float]:
        def rate() -> float:
            tasks = (Task("bench:spin", b"%d" % each) for each in loops)
            with (
                filled(tcp_server, tasks) as fleet,
                running(tcp_server, app="real_work_app:mux", tree=TREES[name]) as (one,),
            ):
                before = one.cost()
                # The cores are the handlers' until the end is near.
                seconds = fleet.drain_s(len(loops), look_after_s=0.9 * bare_took_s[-1])
                costs[name].append(one.cost().since(before))
            return len(loops) / seconds

        return rate

    result = interleaved({BARE: bare, **{name: worker(name) for name in TREES}}, ROUNDS)
    with capsys.disabled():
        print(result.table(f"handlers of {kind} ms of CPU", "tasks/s", BARE))
        for name, found in costs.items():
            print(f"  {name}: {cpu_line(found[1:], len(loops))}")


def cpu_line(costs: Sequence[Cost], tasks: int) -> str:
    """Return the medians of what a task costs."""
    columns = {
        "main": [one.main_s for one in costs],
        "Redis": [one.redis_s for one in costs],
        "children, handlers included": [one.children_s for one in costs],
    }
    told = (f"{name} {1e6 * statistics.median(found) / tasks:.1f} us" for name, found in columns.items())
    return "CPU a task: " + ", ".join(told)


@pytest.mark.parametrize("tree", TREES)
def test_no_ops_on_many_children(tree: str, tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    costs: dict[int, list[Cost]] = {children: [] for children in CHILDREN}
    count = round(NOOPS * min(1.0, SECONDS))

    def worker(children: int) -> Callable[[], float]:
        def rate() -> float:
            tasks = (Task("bench:noop", bytes(100)) for _ in range(count))
            one_worker = running(tcp_server, app="real_work_app:mux", children=children, tree=TREES[tree])
            with filled(tcp_server, tasks) as fleet, one_worker as (one,):
                before = one.cost()
                seconds = fleet.drain_s(count)
                costs[children].append(one.cost().since(before))
            return count / seconds

        return rate

    names = {f"{children} children": worker(children) for children in CHILDREN}
    result = interleaved(names, ROUNDS)
    with capsys.disabled():
        print(result.table(f"no-op tasks, {tree}", "tasks/s", "2 children"))
        for children, found in costs.items():
            print(f"  {children}: {cpu_line(found[1:], count)}")
