"""What a push costs among servers with nothing to do: the commands that all of them send for each task that comes.

The servers are light ones, in two processes: everything of a server that talks to Redis about its one queue, with the
check interval that people have (1 s). Heartbeats, and the push itself, are not counted.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks.bench_worker import ROOT
from benchmarks.fleet import Fleet, filled, percentile
from benchmarks.light_servers import DONE, EMPTY, POLLS, TASK, WHYS, WOKEN
from tests.redis_servers import RedisServer
from tests.waiting import wait_until

PROCESSES = 2
RATES = (1, 10, 50)
SERVERS = (4, 20, 100)
IDLE_S = 20
WARM_UP_S = 15
MEASURED_S = 20
IN_VAIN, FOR_TASK, OTHERS = "EXISTS, after a wake in vain", "EXISTS, after a wake for a task", "EXISTS, others"


@dataclass(frozen=True, slots=True)
class Look:
    """The commands so far, by kind; the waits of tasks since the last look, in ms; the CPU seconds used."""

    counts: Counter[str]
    waits_ms: list[float]
    cpu_s: float
    at_s: float

    def since(self, before: "Look") -> "Look":
        """Return what came since then."""
        counts = Counter({kind: count - before.counts[kind] for kind, count in self.counts.items()})
        return Look(counts, self.waits_ms, self.cpu_s - before.cpu_s, self.at_s - before.at_s)

    @property
    def a_second(self) -> float:
        """Return all commands a second."""
        return self.counts.total() / self.at_s


@dataclass(frozen=True, slots=True)
class Plan:
    """How many servers there are in turn, at which rates tasks come, and for how long."""

    servers: Sequence[int]
    rates: Sequence[int]
    idle_s: float
    warm_up_s: float
    measured_s: float


class LightFleet:
    """The processes of light servers, and their Redis."""

    def __init__(self, fleet: Fleet, processes: list[subprocess.Popen[str]]) -> None:
        self.fleet = fleet
        self._processes = processes

    def look(self) -> Look:
        """Ask all processes what was sent so far."""
        told = [self._ask(process) for process in self._processes]
        counts = sum((Counter(one["counts"]) for one in told), Counter[str]())
        stats: dict[str, Any] = self.fleet.db.info("commandstats")
        looks = stats.get("cmdstat_exists", {"calls": 0})["calls"]
        wakes = counts.pop("wake", 0)
        counts[FOR_TASK] = min(wakes, counts[f"{WOKEN}: {TASK}"])
        counts[IN_VAIN] = wakes - counts[FOR_TASK]
        counts[OTHERS] = max(0, looks - wakes)  # the counts are not of one moment
        waits_ms = [wait_ms for one in told for wait_ms in one["waits_ms"]]
        return Look(counts, waits_ms, sum(one["cpu_s"] for one in told), time.perf_counter())

    @staticmethod
    def _ask(process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        found: dict[str, Any] = json.loads(process.stdout.readline())
        return found

    def watch(self, seconds: float) -> Look:
        """Return what was sent in so many seconds, with nothing pushed."""
        before = self.look()
        time.sleep(seconds)
        return self.look().since(before)

    def push(self, a_second: int, seconds: float) -> Look:
        """Return what was sent while tasks were pushed at a steady rate."""
        before = self.look()
        for number in range(round(a_second * seconds)):
            time.sleep(max(0.0, before.at_s + number / a_second - time.perf_counter()))
            self.fleet.client.enqueue("bench:noop", str(time.time_ns()).encode())
        time.sleep(max(0.0, before.at_s + seconds - time.perf_counter()))
        return self.look().since(before)


@contextmanager
def light_servers(server: RedisServer, count: int) -> Iterator[LightFleet]:
    """Run light servers, all of them waiting."""
    with filled(server, ()) as fleet:
        fleet.db.delete("asynq:{default}:paused")
        fleet.db.config_resetstat()
        shares = [count * (at + 1) // PROCESSES - count * at // PROCESSES for at in range(PROCESSES)]
        command = [sys.executable, "-m", "benchmarks.light_servers", server.tcp_url]
        processes = [
            subprocess.Popen(
                [*command, str(here), str(count)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for here in shares
        ]
        try:
            wait_until(lambda: fleet.db.info("stats")["tracking_total_items"] >= count, 60.0)
            yield LightFleet(fleet, processes)
        finally:
            for process in processes:
                process.communicate()  # the end of its input is its own end


def report(servers: int, a_second: int, found: Look, idle: Look) -> list[str]:
    """Return what a push costs, in all and by kind."""
    pushes = found.counts[DONE] or 1  # a push is done once
    beyond = (found.a_second - idle.a_second) * found.at_s / pushes
    waits = (
        f"{percentile(found.waits_ms, 0.5):.1f} / {percentile(found.waits_ms, 0.99):.0f} / {max(found.waits_ms):.0f}"
    )
    lines = [
        f"{servers} servers, {a_second} pushes a second: {beyond:.1f} commands a push beyond idle,"
        f" {found.a_second:.0f} a second in all; waits p50 / p99 / longest {waits} ms,"
        f" CPU of the servers {100 * found.cpu_s / found.at_s:.0f} %"
    ]
    for kind in kinds(found.counts):
        each = found.counts[kind] / pushes
        lines.append(f"    {kind:<38}{each:>8.2f} a push{found.counts[kind] / found.at_s:>9.1f} a second")
    if in_vain := found.counts[IN_VAIN]:
        polls = sum(found.counts[f"{why}: {EMPTY}"] for why in POLLS)
        lines.append(
            f"    for each wake in vain {polls / in_vain:.2f} polls that found nothing, beside EXISTS and dequeue"
        )
    return lines


def kinds(counts: Counter[str]) -> list[str]:
    """List the kinds that there are, what is known in its order."""
    known = [FOR_TASK, IN_VAIN, OTHERS, *(f"{why}: {what}" for why in WHYS for what in (TASK, EMPTY)), DONE]
    return [kind for kind in (*known, *sorted(counts.keys() - set(known))) if counts[kind] > 0]


def test_what_a_push_costs_among_idle_servers(
    tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    if pytestconfig.getoption("benchmark_disable"):
        plan = Plan((4,), (50,), 1.0, 1.0, 1.0)
    else:
        plan = Plan(SERVERS, RATES, IDLE_S, WARM_UP_S, MEASURED_S)
    for servers in plan.servers:
        with light_servers(tcp_server, servers) as lights:
            lines = measured(lights, servers, plan)
        with capsys.disabled():
            print("\n".join(lines))


def measured(lights: LightFleet, servers: int, plan: Plan) -> list[str]:
    """Return what is to be said of so many servers."""
    idle = lights.watch(plan.idle_s)
    lines = [f"\n{servers} servers without pushes: {idle.a_second / servers:.2f} commands a second each"]
    for a_second in plan.rates:
        lights.push(a_second, plan.warm_up_s)
        lines += report(servers, a_second, lights.push(a_second, plan.measured_s), idle)
    return lines
