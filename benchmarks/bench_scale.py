"""``fastq-worker`` where queues are long, many, or full of long tasks: what its rate and Redis' scripts make of it.

Rates of no-op tasks on two children. A script's time is the longest that Redis' slow log has seen.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from benchmarks.fleet import Fleet, filled, running
from benchmarks.interleave import interleaved
from fastq import Task
from tests.redis_servers import RedisServer
from tests.waiting import wait_until

ROUNDS = 5
TASKS = 50_000
QUEUES = {f"queue-{number}": number for number in range(1, 11)}


def noops(count: int, queues: Iterable[str] = ("default",), payload: bytes = bytes(100)) -> Iterable[Task]:
    """Give no-op tasks, the queues in turn."""
    names = list(queues)
    return (Task("bench:noop", payload, queue=names[number % len(names)]) for number in range(count))


def test_pending_depth(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Take tasks from queues of a thousand to a million; of the long ones, the first."""

    def rate(depth: int) -> float:
        measured = min(depth, TASKS)
        with filled(tcp_server, noops(depth)) as fleet, running(tcp_server):
            return measured / fleet.drain_s(measured)

    depths = (1_000, 10_000, 100_000, 1_000_000)
    sides = {f"{depth:,} pending": lambda depth=depth: rate(depth) for depth in depths}
    result = interleaved(sides, 3)
    with capsys.disabled():
        print(result.table("no-op tasks, by the length of their queue", "tasks/s", "100,000 pending"))


def test_ten_queues(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    def rate(queues: dict[str, int]) -> float:
        flag = ",".join(f"{name}={weight}" for name, weight in queues.items())
        names = list(queues)
        with filled(tcp_server, noops(TASKS, names), names) as fleet, running(tcp_server, "--queues", flag):
            return TASKS / fleet.drain_s(TASKS, names)

    result = interleaved({"1 queue": lambda: rate({"default": 1}), "10 queues": lambda: rate(QUEUES)}, ROUNDS)
    with capsys.disabled():
        print(result.table("no-op tasks, one queue or ten of weights 1 to 10", "tasks/s", "1 queue"))


def test_beside_long_tasks(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Finish short tasks while a thousand, or ten thousand, long ones of this and of another server are active."""
    slowest: dict[str, float] = {}

    def others(fleet: Fleet, count: int) -> None:
        fleet.client.enqueue_many(Task("bench:hold", queue="default") for _ in range(count))
        until_s = time.time() + 600
        while ids := fleet.db.rpop("asynq:{default}:pending", 1000):
            fleet.db.lpush("asynq:{default}:active", *ids)
            fleet.db.zadd("asynq:{default}:lease", dict.fromkeys(ids, until_s))

    def ours(fleet: Fleet, count: int) -> None:
        fleet.client.enqueue_many(Task("bench:hold", queue="default") for _ in range(count))
        fleet.db.delete("asynq:{default}:paused")
        wait_until(lambda: fleet.db.llen("asynq:{default}:active") >= count, 60.0)
        fleet.db.set("asynq:{default}:paused", 1)

    def rate(name: str, hold: Callable[[Fleet, int], None], count: int) -> float:
        flags = ("--async-concurrency", "6000")
        app = "benchmarks.async_apps:mux"
        with filled(tcp_server, ()) as fleet, running(tcp_server, *flags, app=app):
            fleet.db.set("asynq:{default}:paused", 1)
            hold(fleet, count)
            fleet.client.enqueue_many(noops(TASKS // 5))
            fleet.watch_scripts()
            found = TASKS // 5 / fleet.drain_s(TASKS // 5)
            slowest[name] = max(slowest.get(name, 0.0), fleet.slowest_script_ms())
            return found

    cases: dict[str, tuple[Callable[[Fleet, int], None], int]] = {
        "no long ones": (others, 0),
        "1,000 of another server": (others, 1_000),
        "10,000 of another server": (others, 10_000),
        "1,000 of its own": (ours, 1_000),
        "10,000 of its own": (ours, 10_000),
    }
    sides = {name: lambda name=name, case=case: rate(name, *case) for name, case in cases.items()}
    result = interleaved(sides, 3)
    with capsys.disabled():
        print(result.table("no-op coroutines beside long tasks", "tasks/s", "no long ones"))
        for name, longest_ms in slowest.items():
            print(f"  {name:<34} slowest script {longest_ms:.2f} ms")


def test_large_payloads_do_not_hold_redis(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    with filled(tcp_server, noops(2000, payload=bytes(100_000))) as fleet, running(tcp_server):
        fleet.watch_scripts()
        fleet.drain_s(2000)
        with capsys.disabled():
            print(f"\npayloads of 100 kB: slowest script {fleet.slowest_script_ms():.2f} ms")


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
            print(f"  {name:<22} p50 {found[len(found) // 2]:.1f} ms   longest {found[-1]:.1f} ms")


@pytest.mark.parametrize("pushes_a_second", [1, 10, 50])
def test_what_a_push_costs_among_idle_servers(
    tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config, pushes_a_second: int
) -> None:
    """Count what servers with nothing to do send for each task that comes."""
    servers = 4 if pytestconfig.getoption("benchmark_disable") else 100
    seconds = 20

    def calls(fleet: Fleet) -> int:
        stats = fleet.db.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "blmove"))

    # The interval that people have: the benchmarks' shorter one would be most of what is counted.
    every_second = ("--task-check-interval", "1")
    with filled(tcp_server, ()) as fleet, running(tcp_server, *every_second, children=1, count=servers):
        fleet.db.delete("asynq:{default}:paused")
        wait_until(lambda: fleet.db.info("clients")["blocked_clients"] >= servers, 60.0)
        before = calls(fleet)
        time.sleep(seconds)
        idle = calls(fleet) - before
        _push(fleet, pushes_a_second, 3)
        before = calls(fleet)
        count = _push(fleet, pushes_a_second, seconds)
        sent = calls(fleet) - before - count  # a push is a call as well
    with capsys.disabled():
        print(
            f"\n{servers} idle servers, {pushes_a_second} pushes a second: {(sent - idle) / count:.1f} commands a push"
        )
        print(f"  without pushes each sends {idle / seconds / servers:.2f} a second")


def _push(fleet: Fleet, a_second: int, seconds: int) -> int:
    for _ in range(a_second * seconds):
        fleet.client.enqueue("bench:noop")
        time.sleep(1 / a_second)
    return a_second * seconds
