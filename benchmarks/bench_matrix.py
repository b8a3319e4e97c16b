"""``fastq-worker`` over sizes of payload, kinds of handler and numbers of children: rate, CPU a task, memory.

A paused queue is filled, then the time is taken from its release to the last task's acknowledgement. The machine's
cores, Redis' and the main process' among them, set the limits.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from benchmarks.fleet import Cost, Fleet, Worker, filled, running
from fastq import Task
from tests.redis_servers import RedisServer

ROUNDS = 3
SIZES = {"0.1kB": 100, "1kB": 1_000, "10kB": 10_000, "100kB": 100_000}
MAX_BYTES = 150_000_000


class Handler(NamedTuple):
    """Name an app, a task type, and how many tasks take a second or so."""

    app: str
    task_type: str
    tasks: int


HANDLERS = {
    "no-op": Handler("benchmarks.apps:mux", "bench:noop", 40_000),
    "1 ms CPU": Handler("benchmarks.apps:mux", "bench:ms", 1_500),
    "10 ms CPU": Handler("benchmarks.apps:mux", "bench:10ms", 150),
    "10 ms async sleep": Handler("benchmarks.async_apps:mux", "bench:nap", 10_000),
}


class Row(NamedTuple):
    """The result of one cell of the matrix: the rounds' median rate and the costs of all rounds."""

    payload: str
    handler: str
    children: int
    rate: float
    main_us: float
    children_us: float
    redis_us: float
    main_mb: float
    child_mb: float


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Row]]:
    """Collect the rows of the matrix, and print them at its end."""
    found: list[Row] = []
    yield found
    print("\n| payload | handler | children | tasks/s | main µs | children µs | Redis µs | main MB | a child MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in found:
        cpu = " | ".join(f"{us:.1f}" for us in (row.main_us, row.children_us, row.redis_us))
        sizes = f"{row.main_mb:.0f} | {row.child_mb:.0f}"
        print(f"| {row.payload} | {row.handler} | {row.children} | {row.rate:,.0f} | {cpu} | {sizes} |")


@pytest.mark.parametrize("children", [1, 2, 4])
@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("payload", SIZES)
def test_drain(
    benchmark: Any, tcp_server: RedisServer, rows: list[Row], payload: str, handler: str, children: int
) -> None:
    kind, size = HANDLERS[handler], SIZES[payload]
    count = min(kind.tasks, MAX_BYTES // size)
    total = Cost(0.0, 0.0, 0.0)
    with filled(tcp_server, []) as fleet, running(tcp_server, app=kind.app, children=children) as (worker,):

        def fill() -> None:
            fleet.db.set("asynq:{default}:paused", 1)
            body = bytes(size)
            fleet.client.enqueue_many(Task(kind.task_type, body) for _ in range(count))

        def drain() -> None:
            nonlocal total
            total = _sum(total, _cost_of(fleet, worker, count))

        benchmark.pedantic(drain, setup=fill, rounds=ROUNDS, warmup_rounds=1)
        main_mb, below_mb = worker.sizes_mb()
    stats = benchmark.stats.stats if benchmark.stats else None
    if stats is None:  # run once, to see that it works
        return
    tasks = count * (ROUNDS + 1)
    row = Row(
        payload,
        handler,
        children,
        count / stats.median,
        1e6 * total.main_s / tasks,
        1e6 * total.children_s / tasks,
        1e6 * total.redis_s / tasks,
        main_mb,
        below_mb / (children + 1),
    )
    rows.append(row)
    benchmark.extra_info.update(row._asdict())


def _cost_of(fleet: Fleet, worker: Worker, count: int) -> Cost:
    before = worker.cost()
    fleet.drain_s(count)
    return worker.cost().since(before)


def _sum(one: Cost, other: Cost) -> Cost:
    return Cost(one.main_s + other.main_s, one.children_s + other.children_s, one.redis_s + other.redis_s)
