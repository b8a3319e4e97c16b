"""Large payloads: what the main process and Redis use for them, beside a loop that only receives and copies them.

The loop leases and deletes tasks by the same scripts, as many in a round trip as a server asks for, and copies each
message once into a buffer, as a server copies it into a ring. It keeps no lease, looks at no message and runs nothing.
"""

import statistics
import time
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import pytest

from benchmarks.fleet import filled, running, used_s
from fastq import Task
from fastq.broker.operations.dequeue import MAX_BATCH_BYTES, MAX_BATCH_TASKS
from fastq.broker.scripts import SCRIPTS
from tests.redis_servers import RedisServer

ROUNDS: Final = 9
SIZES: Final = {100: 60_000, 10_000: 10_000, 100_000: 1_500}
"""How many tasks a run has, by their size in bytes."""


class Used(NamedTuple):
    """CPU microseconds a task, of the process that receives it, and of Redis."""

    receiver_us: float
    redis_us: float


def by_worker(server: RedisServer, size: int, count: int) -> Used:
    """Let a worker of two children run the tasks."""
    tasks = (Task("bench:noop", bytes(size)) for _ in range(count))
    with filled(server, tasks) as fleet, running(server) as (one,):
        before = one.cost()
        fleet.drain_s(count)
        cost = one.cost().since(before)
    return Used(1e6 * cost.main_s / count, 1e6 * cost.redis_s / count)


def by_loop(server: RedisServer, size: int, count: int) -> Used:
    """Receive and copy the tasks, and no more."""
    with filled(server, (Task("bench:noop", bytes(size)) for _ in range(count))) as fleet:
        fleet.db.delete("asynq:{default}:paused")
        receiver_s, redis_s = time.thread_time(), used_s(server.process.pid)
        receive(fleet.db, count, max(1, min(MAX_BATCH_TASKS, MAX_BATCH_BYTES // size)))
        receiver_s, redis_s = time.thread_time() - receiver_s, used_s(server.process.pid) - redis_s
    return Used(1e6 * receiver_s / count, 1e6 * redis_s / count)


def receive(db: Any, count: int, batch: int) -> None:
    """Dequeue, copy and delete tasks until all have come."""
    dequeue, done = (db.script_load(SCRIPTS[name].text) for name in ("dequeue", "done"))
    queue, prefix = "asynq:{default}:", "asynq:{default}:t:"
    day = datetime.now(UTC).date().isoformat()
    take = (dequeue, 4, *(queue + name for name in ("pending", "active", "lease", "paused")), prefix, batch, 10**9)
    finish = (done, 4, *(queue + name for name in ("active", "lease", f"processed:{day}", "processed")), prefix, 2**31)
    buffer = memoryview(bytearray(1 << 20))
    place = taken = 0
    ids: list[bytes] = []
    while taken < count or ids:
        pipeline = db.pipeline(transaction=False)
        if ids:
            pipeline.execute_command("EVALSHA", *finish, -1, "", len(ids), *ids)
        pipeline.execute_command("EVALSHA", *take, int(time.time()) + 30)
        reply = pipeline.execute()[-1]
        found = reply if isinstance(reply, list) else []
        for message in found[2::2]:
            place = 0 if place + len(message) > len(buffer) else place
            buffer[place : place + len(message)] = message
            place += len(message)
        ids = found[1::2]
        taken += len(ids)


def test_large_payloads(
    tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    is_smoke = pytestconfig.getoption("benchmark_disable")
    lines = ["| payload | main process, us | of the loop | Redis, us | of the loop |", "|---|---|---|---|---|"]
    for size, tasks in SIZES.items():
        count = tasks // 20 if is_smoke else tasks
        rounds = [
            (by_worker(tcp_server, size, count), by_loop(tcp_server, size, count))
            for _ in range(1 if is_smoke else ROUNDS)
        ]
        cells = []
        for place in range(2):
            mine = statistics.median(worker[place] for worker, _ in rounds)
            ratio = statistics.median(worker[place] / max(loop[place], 1e-3) for worker, loop in rounds)
            cells.append(f"{mine:.1f} | {ratio:.2f}")
        lines.append(f"| {size:,} B | {' | '.join(cells)} |")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
