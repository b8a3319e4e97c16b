"""Short tasks while thousands of long ones are active: the rate of ``fastq-worker``, and what the scripts take.

First in a run, with whatever else the core had to do meanwhile: all calls from 0.1 ms on that Redis' slow log has.
Then Redis' own time for one full call while nothing else runs, the least of some repeats: the script's work and nothing
beside it.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from benchmarks.bench_scale import noops
from benchmarks.bench_scripts import LATER, NOW, OWNER, QUEUE, message, pending, run, take
from benchmarks.fleet import Fleet, ScriptTimes, filled, running
from benchmarks.interleave import interleaved
from fastq import Task
from fastq._ids import new_task_ids
from fastq.broker.operation import Operation
from fastq.broker.operations.finish import NEWEST_FIRST, OLDEST_FIRST, Done, done
from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.open import open_broker
from fastq.wire import keys
from tests.redis_servers import RedisServer
from tests.waiting import wait_until

TASKS = 20_000
ROUNDS = 5

BATCH = 500
REPEATS = 30
LONG = (0, 1_000, 10_000)


def hold_others(fleet: Fleet, count: int) -> None:
    """Let long tasks of another server be active."""
    fleet.client.enqueue_many(Task("bench:hold", queue=QUEUE) for _ in range(count))
    until_s = time.time() + 600
    while ids := fleet.db.rpop(keys.pending(QUEUE), 1000):
        fleet.db.lpush(keys.active(QUEUE), *ids)
        fleet.db.zadd(keys.lease(QUEUE), dict.fromkeys(ids, until_s))


def hold_ours(fleet: Fleet, count: int) -> None:
    """Let the worker run long tasks."""
    fleet.client.enqueue_many(Task("bench:hold", queue=QUEUE) for _ in range(count))
    fleet.db.delete(keys.paused(QUEUE))
    wait_until(lambda: fleet.db.llen(keys.active(QUEUE)) >= count, 60.0)
    fleet.db.set(keys.paused(QUEUE), 1)


CASES: dict[str, tuple[Callable[[Fleet, int], None], int]] = {
    "no long ones": (hold_others, 0),
    "1,000 of another server": (hold_others, 1_000),
    "1,000 of its own": (hold_ours, 1_000),
    "10,000 of another server": (hold_others, 10_000),
    "10,000 of its own": (hold_ours, 10_000),
}


def test_beside_long_tasks(
    tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    """Finish short tasks while a thousand, or ten thousand, long ones of this or of another server are active."""
    smoke = pytestconfig.getoption("benchmark_disable")
    tasks, rounds, cases = (2_000, 1, list(CASES)[:3]) if smoke else (TASKS, ROUNDS, list(CASES))
    times = {name: ScriptTimes() for name in cases}

    def rate(name: str) -> float:
        hold, count = CASES[name]
        flags = ("--async-concurrency", "6000")
        with filled(tcp_server, ()) as fleet, running(tcp_server, *flags, app="benchmarks.async_apps:mux"):
            hold(fleet, count)
            fleet.client.enqueue_many(noops(tasks))
            fleet.watch_scripts()
            found = tasks / fleet.drain_s(tasks)
            times[name].merge(fleet.script_times())
            return found

    result = interleaved({name: partial(rate, name) for name in cases}, rounds)
    with capsys.disabled():
        print(result.table("no-op coroutines beside long tasks", "tasks/s", cases[0]))
        print("scripts' times in Redis in all those runs, in ms")
        for name, found in times.items():
            for script in ("dequeue", "done"):
                print(f"  {name:<26}{script:<9}{found.line(script)}")
            print(f"  {name:<26}{'all':<9}{found.line()}")


@pytest.fixture
def broker(tcp_server: RedisServer) -> Iterator[BlockingBroker]:
    made = open_broker(tcp_server.tcp_url)
    yield made
    made.close()


def activate(db: Any, count: int) -> None:
    """Let so many long tasks be active, newer than all that are."""
    ids = new_task_ids(count)
    pipeline = db.pipeline(transaction=False)
    for task_id in ids:
        pipeline.hset(keys.task(QUEUE, task_id), mapping={"msg": message(task_id), "state": "active"})
        pipeline.lpush(keys.active(QUEUE), task_id)
        pipeline.zadd(keys.lease(QUEUE), {task_id: LATER + OWNER.fraction})
    pipeline.execute()


def finish(ids: list[str], side: int) -> tuple[Operation[Any], ...]:
    """Return the operation with which the acker ends tasks: the nearest to that end of active first."""
    in_order = ids if side == OLDEST_FIRST else ids[::-1]
    return (done(QUEUE, [Done(task_id) for task_id in in_order], NOW, side=side),)


def dequeue_ms(broker: BlockingBroker, db: Any, older: int, newer: int) -> float:
    """Time a full dequeue beside long tasks; none of them can be newer."""
    db.flushdb()
    activate(db, older + newer)
    ids = new_task_ids(BATCH)
    run(broker, pending(ids))
    return timed_ms(broker, db, take(ids))


def done_ms(side: int) -> Callable[[BlockingBroker, Any, int, int], float]:
    """Return what times a full call of done that looks from one end of active."""

    def measure(broker: BlockingBroker, db: Any, older: int, newer: int) -> float:
        db.flushdb()
        activate(db, older)
        ids = new_task_ids(BATCH)
        run(broker, pending(ids))
        run(broker, take(ids))
        activate(db, newer)
        return timed_ms(broker, db, finish(ids, side))

    return measure


def timed_ms(broker: BlockingBroker, db: Any, operations: tuple[Operation[Any], ...]) -> float:
    """Return Redis' own time for one call of a script."""
    db.config_resetstat()
    run(broker, operations)
    spent: dict[str, Any] = db.info("commandstats")["cmdstat_evalsha"]
    assert spent["calls"] == 1
    return float(spent["usec"]) / 1000


CALLS: dict[str, tuple[Callable[[BlockingBroker, Any, int, int], float], bool]] = {
    "dequeue": (dequeue_ms, True),
    "done, long ones older, from the old end": (done_ms(OLDEST_FIRST), True),
    "done, long ones older, from the new end": (done_ms(NEWEST_FIRST), True),
    "done, long ones newer, from the old end": (done_ms(OLDEST_FIRST), False),
    "done, long ones newer, from the new end": (done_ms(NEWEST_FIRST), False),
}
"""What is timed, and whether the long tasks are older than those of the call."""


def test_full_calls_beside_long_tasks(
    broker: BlockingBroker, tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    smoke = pytestconfig.getoption("benchmark_disable")
    counts, repeats = (LONG[:2], 1) if smoke else (LONG, REPEATS)
    lines = [f"\nRedis' own ms for a call of {BATCH} tasks, the least of {repeats}, by how many long tasks are active"]
    lines.append(f"  {'':<42}" + "".join(f"{count:>10,}" for count in counts))
    with tcp_server.client() as db:
        dequeue_ms(broker, db, 0, 0)
        done_ms(OLDEST_FIRST)(broker, db, 0, 0)
        for name, (measure, older) in CALLS.items():
            rounds = [[measure(broker, db, *sides(older, count)) for count in counts] for _ in range(repeats)]
            least = map(min, zip(*rounds, strict=True))
            lines.append(f"  {name:<42}" + "".join(f"{one:>10.2f}" for one in least))
        db.flushdb()
    with capsys.disabled():
        print("\n".join(lines))


def sides(are_older: bool, count: int) -> tuple[int, int]:
    """Return how many long tasks are older, and how many newer."""
    return (count, 0) if are_older else (0, count)
