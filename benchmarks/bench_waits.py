"""The waits that ``fastq plan`` predicts, against those of a real server: ``python -m benchmarks.bench_waits``.

Handlers that sleep for 1, 5 or 50 ms come at random times, a third of each, so that 30, 60 or 80 % of the slots are
busy. They need no CPU, so the cores are not what they wait for. The ranges are those of ``fastq plan``. The ratio is
that to its formula, plus the time in which an idle server picks up a task, which the formula leaves out: the median of
the waits where 5 % of the slots are busy.
"""

import argparse
import math
import os
import random
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.compare.meter import VARIABLE, Meter, counter
from fastq import Client, RunningTask, ServeMux, Server, ServerConfig, Task
from fastq.planning.load import Load
from fastq.planning.waiting import Range, Waiting, spread, waiting
from tests.ports import free_port
from tests.redis_servers import redis_server
from tests.waiting import wait_until

DURATIONS_S: Final = (0.001, 0.005, 0.05)
MEAN_S: Final = statistics.mean(DURATIONS_S)
REST: Final = 0.05
LIMIT_S: Final = 60.0

mux = ServeMux()


@mux.handler("wait")
def wait(task: RunningTask) -> None:
    """Record how late it began, and sleep."""
    due_ns, duration_s = task.payload.split()
    counter().note_delay(time.monotonic_ns() - int(due_ns))
    time.sleep(float(duration_s))
    counter().add()


class Waits(NamedTuple):
    """The mean of some waits, their median and their 99th percentile, in seconds."""

    mean_s: float
    p50_s: float
    p99_s: float

    @classmethod
    def of(cls, late_ms: list[float]) -> "Waits":
        """Return what these waits come to."""
        ordered = sorted(late_ms)
        return cls(
            statistics.mean(ordered) / 1e3,
            statistics.median(ordered) / 1e3,
            ordered[math.ceil(0.99 * len(ordered)) - 1] / 1e3,
        )


class Site:
    """A server with so many children on a Redis of its own, and a client."""

    def __init__(self, slots: int, stack: ExitStack) -> None:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "meter"
        self._meter, self._slots = Meter.create(path), slots
        os.environ[VARIABLE] = str(path)
        redis = stack.enter_context(redis_server(port=free_port()))
        self._client = stack.enter_context(Client(redis.tcp_url))
        server = Server("benchmarks.bench_waits:mux", redis.tcp_url, ServerConfig(concurrency=slots, log_level="error"))
        server.start()
        stack.callback(server.shutdown)
        self._drawn = random.Random(1)
        self.pace(REST, 1.0)

    def pace(self, busy: float, seconds: float) -> Waits:
        """Let tasks come for some seconds so that this part of the slots is busy."""
        rate, known, before = busy * self._slots / MEAN_S, len(self._meter.late_ms()), self._meter.count()
        count, due_ns = max(20, round(rate * seconds)), time.monotonic_ns()
        for _ in range(count):
            due_ns += round(1e9 * self._drawn.expovariate(rate))
            time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
            self._client.enqueue(Task("wait", f"{due_ns} {self._drawn.choice(DURATIONS_S)}".encode()))
        wait_until(lambda: self._meter.count() >= before + count, LIMIT_S)
        return Waits.of(self._meter.late_ms()[known:])


def predicted(slots: int, busy: float) -> Waiting:
    """Return what ``fastq plan`` says."""
    loads = [Load(1, duration_s, 100) for duration_s in DURATIONS_S]
    return waiting(slots, busy * slots, MEAN_S, spread(loads))


def main() -> None:
    """Take each load, and print a table."""
    parser = argparse.ArgumentParser("benchmarks.bench_waits", description=__doc__)
    parser.add_argument("--slots", default="2,16")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load")
    options = parser.parse_args()
    print("| slots | busy | mean, ms | range | ratio | p99, ms | range | ratio |\n" + "|---" * 8 + "|")
    for slots in map(int, options.slots.split(",")):
        with ExitStack() as stack:
            site = Site(slots, stack)
            picked_up_s = site.pace(REST, 10.0).p50_s
            for busy in (0.3, 0.6, 0.8):
                found, plan = site.pace(busy, options.seconds), predicted(slots, busy)
                told = (
                    told_of(found.mean_s, plan.mean_range, plan.mean_s + picked_up_s),
                    told_of(found.p99_s, plan.p99_range, plan.p99_s + picked_up_s),
                )
                print(f"| {slots} | {busy:.0%} | {' | '.join(told)} |", flush=True)


def told_of(ran_s: float, told: Range, formula_s: float) -> str:
    """Return the cells for a figure of a run."""
    is_in = "" if told.least_s <= ran_s <= told.most_s else " MISSED"
    return f"{1e3 * ran_s:.2f} | {1e3 * told.least_s:.1f} to {1e3 * told.most_s:.1f}{is_in} | {ran_s / formula_s:.2f}"


if __name__ == "__main__":
    main()
