"""``fastq-worker`` end to end, on two children, against the bare scripts' ceiling and Go asynq in the same run.

A queue is filled while it is paused; the time is taken from its release to the last task's acknowledgement. Redis is on
the same machine, over loopback TCP. CPU is what the processes used, main process and children apart.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from benchmarks.interleave import interleaved
from fastq import Client, Task
from fastq.broker.scripts import SCRIPTS
from tests.interop.peer import GoPeer
from tests.redis_servers import RedisServer
from tests.waiting import wait_until

TASKS = 100_000
GO_TASKS = 20_000
CPU_TASKS = 12_000
PAYLOAD = bytes(range(100))
BATCH = 500
ROUNDS = 9
TICK = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).resolve().parents[1]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def descendants(pid: int) -> list[int]:
    """Return the processes below one, the preloader among them."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += [child, *descendants(child)]
    return found


def fill(
    client: Client, db: redis.Redis, task_type: str, count: int, *, payload: bytes = PAYLOAD, **options: Any
) -> None:
    """Put tasks into a paused queue of an emptied Redis."""
    db.flushall()
    db.set("asynq:{default}:paused", int(time.time()))
    client.enqueue_many(Task(task_type, payload, **options) for _ in range(count))


def time_to_drain(db: redis.Redis, count: int, look_every_s: float = 0.002) -> float:
    """Release the queue and return the seconds until all its tasks are counted as processed."""
    began_s = time.perf_counter()
    db.delete("asynq:{default}:paused")
    while int(db.get("asynq:{default}:processed") or 0) < count:
        time.sleep(look_every_s)
    return time.perf_counter() - began_s


@contextmanager
def worker(
    server: RedisServer, app: str = "benchmarks.apps:mux", flags: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``fastq-worker`` with two children."""
    command = [sys.executable, "-m", "fastq.cli.worker", app, "--redis", server.tcp_url]
    settings = ["--concurrency", "2", "--task-check-interval", "0.01", "--log-level", "warning"]
    process = subprocess.Popen([*command, *settings, *flags], cwd=ROOT)
    try:
        with redis.Redis(port=server.port) as db:
            wait_until(lambda: bool(db.zcard("asynq:servers")), 20.0)
        yield process
    finally:
        process.terminate()
        process.wait()


class Cost(NamedTuple):
    """What a run of tasks cost: tasks a second, and CPU microseconds a task."""

    rate: float
    main_us: float
    children_us: float
    redis_us: float


def run_tasks(
    server: RedisServer,
    count: int,
    task_type: str,
    *,
    app: str = "benchmarks.apps:mux",
    flags: Sequence[str] = (),
    **options: Any,
) -> Cost:
    """Run so many tasks on a worker of their own, from a full queue to the last acknowledgement."""
    with (
        redis.Redis(port=server.port) as db,
        Client(server.tcp_url) as client,
        worker(server, app, flags) as process,
    ):
        fill(client, db, task_type, count, **options)
        family = [process.pid, server.process.pid, *descendants(process.pid)]
        before = [cpu_s(pid) for pid in family]
        seconds = time_to_drain(db, count)
        used = [1e6 * (cpu_s(pid) - then) / count for pid, then in zip(family, before, strict=True)]
        return Cost(count / seconds, used[0], sum(used[2:]), used[1])


def medians(costs: list[Cost]) -> Cost:
    """Return the median of each figure."""
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def bare_scripts(db: redis.Redis, count: int) -> float:
    """Dequeue and finish tasks with the bare scripts and a loop that does nothing else; return tasks a second."""
    dequeue, done = (db.script_load(SCRIPTS[name].text) for name in ("dequeue", "done"))
    queue, prefix = "asynq:{default}:", "asynq:{default}:t:"
    day = datetime.now(UTC).date().isoformat()
    take = (dequeue, 4, *(queue + name for name in ("pending", "active", "lease", "paused")), prefix, BATCH, 10**9)
    finish = (done, 4, *(queue + name for name in ("active", "lease", f"processed:{day}", "processed")), prefix, 2**31)
    db.delete("asynq:{default}:paused")
    began_s = time.perf_counter()
    taken = 0
    ids: list[bytes] = []
    while taken < count or ids:
        pipeline: Any = db.pipeline(transaction=False)
        if ids:
            pipeline.execute_command("EVALSHA", *finish, -1, "", len(ids), *ids)
        pipeline.execute_command("EVALSHA", *take, int(time.time()) + 30)
        reply = pipeline.execute()[-1]
        ids = reply[1::2] if isinstance(reply, list) else []
        taken += len(ids)
    return count / (time.perf_counter() - began_s)


def test_no_op_tasks(tcp_server: RedisServer, go_asynq: GoPeer, capsys: pytest.CaptureFixture[str]) -> None:
    costs: list[Cost] = []
    with redis.Redis(port=tcp_server.port) as db, Client(tcp_server.tcp_url) as client:

        def ceiling() -> float:
            fill(client, db, "bench:noop", TASKS)
            return bare_scripts(db, TASKS)

        def ours() -> float:
            costs.append(run_tasks(tcp_server, TASKS, "bench:noop"))
            return costs[-1].rate

        def go() -> float:
            fill(client, db, "bench:noop", GO_TASKS)
            db.delete("asynq:{default}:paused")
            answer = go_asynq.request(
                "bench_process", n=GO_TASKS, concurrency=10, queue="default", timeout_ns=120_000_000_000, timeout=150
            )
            return float(answer["tasks_per_second"])

        sides: dict[str, Callable[[], float]] = {"bare scripts, batches of 500": ceiling, "Go asynq": go}
        result = interleaved({**sides, "fastq-worker, 2 children": ours}, ROUNDS)
    _, main, children, server = medians(costs)
    with capsys.disabled():
        print(result.table("no-op tasks of 100 bytes", "tasks/s", "bare scripts, batches of 500"))
        print(f"  {result.ratio('fastq-worker, 2 children', 'Go asynq'):.1f} x Go asynq")
        print(f"  CPU a task: main process {main:.1f} us, children {children:.1f} us, Redis {server:.1f} us")


def test_cpu_bound_tasks(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Compare 1 ms handlers on two children with the same loop in two bare processes."""
    with redis.Redis(port=tcp_server.port) as db, Client(tcp_server.tcp_url) as client:

        def ours() -> float:
            with worker(tcp_server) as process:
                fill(client, db, "bench:ms", CPU_TASKS)
                others = [process.pid, tcp_server.process.pid]
                before_s = sum(map(cpu_s, others))
                # The cores are the handlers': a look that takes 0.1 ms every 2 ms would be a part of what is measured.
                seconds = time_to_drain(db, CPU_TASKS, look_every_s=0.02)
                # What main process and Redis used, the handlers could not have.
                share = 1 - (sum(map(cpu_s, others)) - before_s) / (2 * seconds)
            return CPU_TASKS / seconds / share

        def bare() -> float:
            # Timed inside, after the imports: a worker's children have theirs behind them, too.
            code = (
                "import time\nfrom benchmarks.apps import one_ms\nbegan_s = time.perf_counter()\n"
                f"for _ in range({CPU_TASKS // 2}): one_ms()\nprint(time.perf_counter() - began_s)"
            )
            command = [sys.executable, "-c", code]
            processes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(2)]
            return CPU_TASKS / max(float(process.communicate()[0]) for process in processes)

        result = interleaved({"two bare processes": bare, "fastq-worker, 2 children": ours}, ROUNDS)
    with capsys.disabled():
        print(result.table("1 ms of CPU a task, less what Redis and main use", "tasks/s", "two bare processes"))
