"""``fastq-worker`` where queues are many, payloads large, or long tasks among short ones.

Rates of no-op tasks on two children. Scripts' times are those of all calls in Redis' slow log.
"""

import time
from collections.abc import Iterable
from typing import Any

import pytest

from benchmarks.fleet import Fleet, filled, percentile, running
from benchmarks.interleave import interleaved
from fastq import Task
from tests.redis_servers import RedisServer
from tests.waiting import wait_until

ROUNDS = 9
TASKS = 50_000
LATE_MS = 100.0
QUEUES = {f"queue-{number}": number for number in range(1, 11)}


def noops(count: int, queues: Iterable[str] = ("default",), payload: bytes = bytes(100)) -> Iterable[Task]:
    """Give no-op tasks, the queues in turn."""
    names = list(queues)
    return (Task("bench:noop", payload, queue=names[number % len(names)]) for number in range(count))


def test_ten_queues(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config) -> None:
    smoke = pytestconfig.getoption("benchmark_disable")
    tasks, rounds = (5_000, 1) if smoke else (TASKS, ROUNDS)

    def rate(queues: dict[str, int]) -> float:
        flag = ",".join(f"{name}={weight}" for name, weight in queues.items())
        names = list(queues)
        with filled(tcp_server, noops(tasks, names), names) as fleet, running(tcp_server, "--queues", flag):
            return tasks / fleet.drain_s(tasks, names)

    result = interleaved({"1 queue": lambda: rate({"default": 1}), "10 queues": lambda: rate(QUEUES)}, rounds)
    with capsys.disabled():
        print(result.table("no-op tasks, one queue or ten of weights 1 to 10", "tasks/s", "1 queue"))


def test_large_payloads_do_not_hold_redis(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    with filled(tcp_server, noops(2000, payload=bytes(100_000))) as fleet, running(tcp_server):
        fleet.watch_scripts()
        fleet.drain_s(2000)
        with capsys.disabled():
            print(f"\npayloads of 100 kB, all scripts: {fleet.script_times().line()}")


def test_short_tasks_beside_long_ones_on_two_servers(
    tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mix 1 ms and 10 s tasks of one type on two servers of two children; one child is free at all times.

    At first all are short, so that each child is given many at once; then long ones come between.
    """
    waits: dict[str, list[float]] = {}

    def short(fleet: Fleet, count: int) -> list[float]:
        """Enqueue short tasks at a fifth of what one child can do; return how long each waited, in ms."""
        sent: list[tuple[str, int]] = []
        for _ in range(count):
            sent.append((fleet.client.enqueue(Task("bench:sleep", b"0.001", retention=600)).id, time.time_ns()))
            time.sleep(0.005)
        keys = [f"asynq:{{default}}:t:{task_id}" for task_id, _ in sent]
        wait_until(lambda: all(fleet.db.hexists(key, "result") for key in keys), 60.0)
        begun: list[Any] = [fleet.db.hget(key, "result") for key in keys]
        return sorted((int(began) - then) / 1e6 for began, (_, then) in zip(begun, sent, strict=True))

    with filled(tcp_server, ()) as fleet, running(tcp_server, count=2):
        fleet.db.delete("asynq:{default}:paused")
        fleet.client.enqueue_many(Task("bench:sleep", b"0.001") for _ in range(2_000))
        wait_until(lambda: fleet.processed() >= 2_000, 60.0)
        waits["all are short"] = short(fleet, 400)
        for _ in range(3):
            fleet.client.enqueue(Task("bench:sleep", b"10"))
        waits["three long ones came"] = short(fleet, 400)
        wait_until(lambda: fleet.processed() >= 2_000 + 800 + 3, 60.0)
    with capsys.disabled():
        print("\n1 ms tasks, from enqueue to their start, on 2 servers x 2 children (prefetch_time 50 ms)")
        for name, found in waits.items():
            late = sum(wait_ms > LATE_MS for wait_ms in found)
            print(f"  {name:<22} {waits_line(found)}   above {LATE_MS:.0f} ms: {late} of {len(found)}")


def waits_line(found: list[float]) -> str:
    """Return median, 99th percentile and longest of waits in ms."""
    return f"p50 {percentile(found, 0.5):.1f} ms   p99 {percentile(found, 0.99):.1f}   longest {max(found):.1f} ms"
