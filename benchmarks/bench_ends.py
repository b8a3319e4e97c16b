"""The ways in which a task can end, each against no-ops in the same run: ``fastq-worker`` with two children.

A failing task raises an error of its own text. The archive is asynq's: it is trimmed at 10 000 tasks. CPU is what the
processes used, main process and children apart; the two cores are shared by all of them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from benchmarks.bench_worker import Cost, medians, run_tasks
from benchmarks.interleave import interleaved
from tests.redis_servers import RedisServer

ROUNDS: Final = 9
NOOP: Final = "no-op"
ENDS: Final[dict[str, tuple[int, str, dict[str, Any]]]] = {
    NOOP: (100_000, "bench:noop", {}),
    "no-op, max_retry=0": (100_000, "bench:noop", {"max_retry": 0}),
    "result of 100 bytes, kept": (60_000, "bench:result", {"retention": 3600}),
    "coroutine, no-op": (60_000, "bench:noop", {"app": "benchmarks.async_apps:mux"}),
    "failing, retried": (30_000, "bench:fails", {}),
    "failing, archived": (30_000, "bench:fails", {"max_retry": 0}),
}
"""How many tasks a run has, their type, and what they have that no-ops have not."""


def test_ends(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config) -> None:
    is_smoke = pytestconfig.getoption("benchmark_disable")
    costs: dict[str, list[Cost]] = {name: [] for name in ENDS}

    def run(name: str) -> float:
        count, task_type, rest = ENDS[name]
        costs[name].append(run_tasks(tcp_server, count // 20 if is_smoke else count, task_type, **rest))
        return costs[name][-1].rate

    sides: dict[str, Callable[[], float]] = {name: partial(run, name) for name in ENDS}
    result = interleaved(sides, 1 if is_smoke else ROUNDS)
    lines = [result.table("ends of tasks with payloads of 100 bytes", "tasks/s", NOOP)]
    lines.append("\n| end | x no-ops | main, us | children, us | Redis, us |\n|---|---|---|---|---|")
    for name in ENDS:
        _, main, children, redis = medians(costs[name][1:])
        lines.append(f"| {name} | {result.ratio(name, NOOP):.2f} | {main:.1f} | {children:.1f} | {redis:.1f} |")
    with capsys.disabled():
        print("\n".join(lines))
