"""A queue in Redis, put into a known state without the code under test, and a look at what is in it afterwards."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from redis import Redis

from fastq.broker.operation import Flow, Operation
from fastq.broker.operations.lease import Owner
from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.open import open_broker
from fastq.wire import keys
from fastq.wire.codec import TaskMessage, decode_task_message, encode_task_message
from tests.waiting import PATIENCE_S, wait_until

T = TypeVar("T")

QUEUE = "default"
NOW_S = 4_000_000_000
"""In 2096: what must not expire while a test runs does not, and scores are as long as they get in this century."""
NOW_NS = NOW_S * 1_000_000_000
NOW = datetime.fromtimestamp(NOW_S, UTC)
OURS = Owner(524_287 / 2**20)
THEIRS = Owner(1 / 2**20)
GOS = Owner(0.0)

LIMIT_S = PATIENCE_S
LISTS = ("pending", "active")
SETS = ("lease", "scheduled", "retry", "archived", "completed")


def message(task_id: str, **fields: Any) -> bytes:
    """Encode a task's message."""
    return encode_task_message(
        TaskMessage(**{"type": "t", "id": task_id, "queue": QUEUE, "retry": 25, "timeout": 60, **fields})
    )


class QueueBench:
    """One queue: ``db`` bypasses the code under test, ``run`` calls it."""

    def __init__(self, db: Redis, broker: BlockingBroker | None = None, queue: str = QUEUE) -> None:
        self.db: Any = db
        self.queue = queue
        self._broker = broker

    def run(self, operation: Operation[T]) -> T:
        """Carry out an operation."""
        assert self._broker is not None
        return self._broker.run(operation)

    def drive(self, flow: Flow[T]) -> T:
        """Carry out a flow."""
        assert self._broker is not None
        return self._broker.drive(flow)

    def key(self, name: str) -> str:
        return f"asynq:{{{self.queue}}}:{name}"

    def put(self, task_id: str, state: str, **fields: Any) -> None:
        """Write a task's hash, and that alone."""
        self._put(self.db, task_id, state, fields)

    def _put(self, db: Any, task_id: str, state: str, fields: Mapping[str, Any]) -> None:
        mapping = {"msg": message(task_id, queue=self.queue, **fields), "state": state}
        if state == "pending":
            mapping["pending_since"] = str(NOW_NS)
        db.hset(keys.task(self.queue, task_id), mapping=mapping)

    def pend(self, *task_ids: str, **fields: Any) -> None:
        """Enqueue tasks, one after the other."""
        with self.db.pipeline(transaction=False) as pipeline:
            for task_id in task_ids:
                self._put(pipeline, task_id, "pending", fields)
                pipeline.lpush(keys.pending(self.queue), task_id)
            pipeline.execute()

    def activate(self, *task_ids: str, owner: Owner = OURS, until_s: int = NOW_S + 30, **fields: Any) -> None:
        """Let tasks be active, dequeued one after the other by the owner."""
        with self.db.pipeline(transaction=False) as pipeline:
            for task_id in task_ids:
                self._put(pipeline, task_id, "active", fields)
                pipeline.lpush(keys.active(self.queue), task_id)
                pipeline.zadd(keys.lease(self.queue), {task_id: until_s + owner.fraction})
            pipeline.execute()

    def archive(self, scores: dict[str, int]) -> None:
        """Let tasks be in the archive."""
        pipeline = self.db.pipeline(transaction=False)
        for task_id in scores:
            pipeline.hset(keys.task(self.queue, task_id), mapping={"msg": b"", "state": "archived"})
        pipeline.zadd(keys.archived(self.queue), scores)
        pipeline.execute()

    def places(self) -> dict[str, list[str]]:
        """Return the ids in each list and set of the queue that is not empty, in order from head or lowest score."""
        found = {name: self.db.lrange(self.key(name), 0, -1) for name in LISTS}
        found |= {name: self.db.zrange(self.key(name), 0, -1) for name in SETS}
        return {name: [task_id.decode() for task_id in ids] for name, ids in found.items() if ids}

    def scores(self, name: str) -> dict[str, float]:
        return {member.decode(): score for member, score in self.db.zrange(self.key(name), 0, -1, withscores=True)}

    def task(self, task_id: str) -> dict[str, bytes]:
        """Return the fields of a task's hash; empty if it is gone."""
        return {name.decode(): value for name, value in self.db.hgetall(keys.task(self.queue, task_id)).items()}

    def message(self, task_id: str) -> TaskMessage:
        """Return a task's message, decoded."""
        return decode_task_message(self.task(task_id)["msg"])

    def states(self) -> dict[str, str]:
        """Return the state of every task."""
        prefix = keys.task_prefix(self.queue)
        found = sorted(key.decode().removeprefix(prefix) for key in self.db.scan_iter(f"{prefix}*", count=1000))
        return {task_id: self.task(task_id).get("state", b"").decode() for task_id in found}

    def counters(self) -> dict[str, int]:
        """Return every counter that there is, days under their dates."""
        found: Sequence[bytes] = [*self.db.keys(self.key("processed*")), *self.db.keys(self.key("failed*"))]
        return {key.decode().removeprefix(self.key("")): int(self.db.get(key)) for key in sorted(found)}


@contextmanager
def queue_bench(db: Redis, url: str, queue: str = QUEUE) -> Iterator[QueueBench]:
    """Open a bench on an emptied Redis."""
    with closing(open_broker(url)) as broker:
        yield QueueBench(db, broker, queue)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run an asynchronous test, and fail instead of hanging."""

    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test()

    asyncio.run(limited())


async def until(holds: Callable[[], object]) -> None:
    """Wait for something of which there is no signal."""
    await asyncio.to_thread(wait_until, holds, LIMIT_S, interval_s=0.002)
