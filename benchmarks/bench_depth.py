"""``fastq-worker`` on queues that stay as long as they are: its rate of no-op tasks, by the number that is pending.

A feeder makes a new task for each that is taken, at every length in the same way, so that it costs Redis and a core the
same; the rates are lower than those of a queue that only drains. The time is taken between two looks at the counter of
processed tasks, the first once the worker is warm. Each length has a Redis and a worker of its own, which all wait for
their turns, so that those of a round follow one another closely.
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from benchmarks.feeder import Feeder, Look, preferred
from benchmarks.fleet import Cost, Fleet, Worker, filled, running
from benchmarks.interleave import interleaved
from fastq.wire import keys
from tests.ports import free_port
from tests.redis_servers import redis_server
from tests.waiting import wait_until

TASKS = 50_000
WARM_UP = 20_000
ROUNDS = 15
DEPTHS = (1_000, 10_000, 100_000, 1_000_000)
LOOK_EVERY_S = 0.0002
PATIENCE_S = 120.0
QUEUE = "default"


@dataclass(slots=True)
class Site:
    """A queue of one length with its worker, and the observations beside its rates."""

    fleet: Fleet
    feeder: Feeder
    worker: Worker
    tasks: int = 0
    costs: list[Cost] = field(default_factory=list)
    lowest: list[int] = field(default_factory=list)
    scripts_us: list[float] = field(default_factory=list)
    feeder_us: list[float] = field(default_factory=list)

    def row(self) -> str:
        """Return the end of a table's row: depths, CPU a task, and Redis' own count of the scripts' time."""
        dry = sum(not lowest for lowest in self.lowest)
        depths = f"{min(self.lowest):>9,}{f'{dry} of {len(self.lowest)}':>9}"
        spent = zip(*((cost.redis_s, cost.main_s, cost.children_s) for cost in self.costs), strict=True)
        times = (
            *(1e6 * sum(each) / self.tasks for each in spent),
            statistics.median(self.scripts_us),
            statistics.median(self.feeder_us),
        )
        return depths + "".join(f"{each:>9.2f}" for each in times)


HEAD = "".join(f"{name:>9}" for name in ("lowest", "empty", "Redis", "main", "children", "scripts", "feeder"))


@contextmanager
def site(depth: int) -> Iterator[Site]:
    """Fill a paused queue, and let a worker wait for it."""
    with redis_server(port=free_port()) as server, filled(server, ()) as fleet:
        feeder = Feeder(fleet.db, depth)
        feeder.fill()
        with running(server, "--task-check-interval", "0.1") as workers:
            yield Site(fleet, feeder, workers[0])


def feed(feeder: Feeder, goal: int, lowest: list[int]) -> Look:
    """Keep the queue filled until so many tasks have been processed; add the lowest depth of each round trip."""
    until_s = time.perf_counter() + PATIENCE_S
    while (look := feeder.look()).processed < goal:
        lowest.append(look.lowest)
        assert look.at_s < until_s, f"{look.processed} of {goal} tasks were processed within {PATIENCE_S} s"
        time.sleep(LOOK_EVERY_S)
    return look


def rate(site: Site, tasks: int) -> float:
    """Release the queue for a while; return the tasks a second."""
    db = site.fleet.db
    lowest: list[int] = []
    begun = site.fleet.processed()
    db.delete(keys.paused(QUEUE))
    with preferred():
        feed(site.feeder, begun + min(tasks, WARM_UP), [])
        db.config_resetstat()
        before = site.worker.cost()
        first = site.feeder.look()
        last = feed(site.feeder, first.processed + tasks, lowest)
    done = last.processed - first.processed
    site.costs.append(site.worker.cost().since(before))
    site.tasks += done
    site.scripts_us.append(script_us(db, "evalsha") / done)
    site.feeder_us.append(script_us(db, "eval") / done)
    site.lowest.append(min(lowest))
    db.set(keys.paused(QUEUE), 1)
    wait_until(lambda: not db.exists(keys.active(QUEUE)))
    return done / (last.at_s - first.at_s)


def script_us(db: Any, command: str) -> float:
    """Return the microseconds that Redis has spent in a command."""
    stats: dict[str, Any] = db.info("commandstats")
    return float(stats.get(f"cmdstat_{command}", {"usec": 0})["usec"])


def test_pending_depth(capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config) -> None:
    smoke = pytestconfig.getoption("benchmark_disable")
    depths, tasks, rounds = ((1_000, 10_000), 5_000, 1) if smoke else (DEPTHS, TASKS, ROUNDS)
    with ExitStack() as stack:
        sites = {f"{depth:,} pending": stack.enter_context(site(depth)) for depth in depths}
        result = interleaved({name: partial(rate, one, tasks) for name, one in sites.items()}, rounds)
    with capsys.disabled():
        print(result.table("no-op tasks, by the constant length of their queue", "tasks/s", next(iter(sites))))
        print("  fewest pending, turns in which there were none, and us a task: CPU of Redis, feeding included, of the")
        print("  main process and of the children; the worker's and the feeder's scripts by Redis' clock (medians)")
        print(f"  {'':<18}{HEAD}")
        for name, one in sites.items():
            print(f"  {name:<18}{one.row()}")
