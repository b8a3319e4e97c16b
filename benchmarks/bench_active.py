"""The scripts that take and finish tasks, while thousands of long tasks are active: Redis' own time for one full call.

Nothing else runs, and the least of a few repeats counts, so that it is the script's work and nothing beside it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.bench_scripts import LATER, NOW, OWNER, QUEUE, message, pending, run, take
from fastq import keys
from fastq._ids import new_task_ids
from fastq.broker.blocking import BlockingBroker
from fastq.broker.finish import NEWEST_FIRST, OLDEST_FIRST, Done, done
from fastq.broker.open import open_broker
from fastq.broker.operation import Operation
from tests.redis_servers import RedisServer

BATCH = 500
REPEATS = 5
LONG = (0, 1_000, 10_000)


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
