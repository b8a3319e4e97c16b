"""``fastq-worker`` on queues that stay as long as they are: its rate of no-op tasks, by the number that is pending.

A feeder makes a new task for each that is taken, at every length in the same way, so that it costs Redis and a core the
same; the rates are lower than those of a queue that only drains. The time is taken between two looks at the counter of
processed tasks, the first once the worker is warm.
"""

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from benchmarks.feeder import Feeder, Look
from benchmarks.fleet import Fleet, filled, running
from benchmarks.interleave import interleaved
from tests.redis_servers import RedisServer

TASKS = 100_000
WARM_UP = 40_000
ROUNDS = 7
DEPTHS = (1_000, 10_000, 100_000, 1_000_000)
LOOK_EVERY_S = 0.0002
PATIENCE_S = 120.0


@dataclass(slots=True)
class Seen:
    """Hold what was seen of one depth beside its rates."""

    lowest: int = 2**62
    worker_us: list[float] = field(default_factory=list)
    feeder_us: list[float] = field(default_factory=list)
    feeder_s: list[float] = field(default_factory=list)

    def line(self) -> str:
        """Return it as the end of a table's row."""
        worker, feeder, own = map(statistics.median, (self.worker_us, self.feeder_us, self.feeder_s))
        times = f"worker's scripts {worker:.2f} us a task, feeder's {feeder:.2f}; its process {own:.2f}"
        return f"lowest {self.lowest:>9,}   {times}"


def script_us(db: Any, command: str) -> float:
    """Return the microseconds that Redis has spent in a command."""
    stats: dict[str, Any] = db.info("commandstats")
    return float(stats.get(f"cmdstat_{command}", {"usec": 0})["usec"])


def feed(feeder: Feeder, goal: int, seen: Seen) -> Look:
    """Keep the queue filled until so many tasks have been processed."""
    until_s = time.perf_counter() + PATIENCE_S
    while (look := feeder.look()).processed < goal:
        seen.lowest = min(seen.lowest, look.lowest)
        assert look.at_s < until_s, f"{look.processed} of {goal} tasks were processed within {PATIENCE_S} s"
        time.sleep(LOOK_EVERY_S)
    return look


def rate(server: RedisServer, depth: int, tasks: int, seen: Seen) -> float:
    """Return the tasks a second of one worker on a queue that has always about ``depth``."""
    with filled(server, ()) as fleet:
        feeder = Feeder(fleet.db, depth)
        feeder.fill()
        with running(server):
            return _measured(fleet, feeder, tasks, seen)


def _measured(fleet: Fleet, feeder: Feeder, tasks: int, seen: Seen) -> float:
    fleet.db.delete("asynq:{default}:paused")
    warm = min(tasks, WARM_UP)
    feed(feeder, warm, Seen())
    fleet.db.config_resetstat()
    spent_s = time.process_time()
    first = feed(feeder, warm, seen)
    last = feed(feeder, first.processed + tasks, seen)
    done = last.processed - first.processed
    seen.feeder_s.append(1e6 * (time.process_time() - spent_s) / done)
    seen.worker_us.append(script_us(fleet.db, "evalsha") / done)
    seen.feeder_us.append(script_us(fleet.db, "eval") / done)
    return done / (last.at_s - first.at_s)


def test_pending_depth(
    tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    smoke = pytestconfig.getoption("benchmark_disable")
    depths, tasks, rounds = ((1_000, 10_000), 2_000, 1) if smoke else (DEPTHS, TASKS, ROUNDS)
    seen = {depth: Seen() for depth in depths}
    sides = {f"{depth:,} pending": lambda depth=depth: rate(tcp_server, depth, tasks, seen[depth]) for depth in depths}
    result = interleaved(sides, rounds)
    with capsys.disabled():
        print(result.table("no-op tasks, by the constant length of their queue", "tasks/s", f"{depths[0]:,} pending"))
        for depth, more in seen.items():
            print(f"  {depth:>9,} pending: {more.line()}")
