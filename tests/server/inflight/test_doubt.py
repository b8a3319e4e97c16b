"""An end that is in doubt, and a dequeue under way beside it: what is written again must not end another task."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from fastq._prioritizer import Prioritizer
from fastq.broker.operation import Operation
from fastq.broker.transport.aio import AsyncBroker
from fastq.errors import BrokerConnectionError
from fastq.server.actors.fetcher import Fetcher
from fastq.server.actors.syncer import Syncer
from fastq.server.base.commands import Commands
from fastq.server.inflight.ack_writer import AckWriter
from fastq.server.inflight.task_log import TaskLog
from fastq.wire import keys
from tests.broker.harness import QUEUE
from tests.server.actors.fetching import Pool
from tests.server.actors.test_acker import end_all
from tests.server.harness import Bench, on_bench


class LosingReplies:
    """Carry out pipelines and lose their replies, all at once, when the test says so."""

    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker
        self.is_losing = True
        self.carried_out = 0
        self.end = asyncio.Event()
        self._news = asyncio.Condition()

    def begin(self, operations: Sequence[Operation[Any]], *how: Any) -> bool:
        return False

    async def run_many(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        results = await self._broker.run_many(operations)
        async with self._news:
            self.carried_out += 1
            self._news.notify_all()
        if not self.is_losing:
            return results
        await self.end.wait()
        return [BrokerConnectionError("lost", maybe_applied=True) for _ in operations]

    async def until_carried_out(self, count: int) -> None:
        async with self._news:
            await self._news.wait_for(lambda: self.carried_out >= count)


@pytest.mark.parametrize("way", ["done", "complete"])
def test_an_end_that_is_written_again_is_not_that_of_a_new_task_of_the_same_id(way: str, db: Redis, url: str) -> None:
    """Between the write and the loss of its reply the id was free, was used again, and that task leased to us."""

    async def test(bench: Bench) -> None:
        losing = LosingReplies(bench.broker)
        commands = Commands(losing)  # type: ignore[arg-type]  # all that Commands uses of a broker
        writer = AckWriter(commands, bench.in_flight, TaskLog(None, "", bench.clock))
        syncer, pool = Syncer(writer, bench.in_flight), Pool(bench)
        fetching = Fetcher(commands, Prioritizer({QUEUE: 1}, seed=1), bench.in_flight, pool, {}, 1.0)
        (stale,) = tasks = bench.hold("a")
        writing = asyncio.create_task(writer.write(end_all(tasks, way), checks_done=False))
        await losing.until_carried_out(1)
        bench.db.delete(keys.task(QUEUE, "a"), keys.completed(QUEUE))
        bench.queue.pend("a", payload=b"another task")
        taking = asyncio.create_task(fetching.tick())
        await losing.until_carried_out(2)
        await syncer.tick()
        losing.end.set()
        losing.is_losing = False
        await asyncio.gather(writing, taking)
        await syncer.tick()
        assert len(bench.ends.waiting) == 1, "it waits until the lost dequeue was looked for"
        await fetching.tick()
        assert pool.ids == ["a"]
        bench.tasks.drop(stale)  # as the processor does with what is leased to us anew
        await syncer.tick()
        assert bench.queue.places() == {"active": ["a"], "lease": ["a"]}
        assert (bench.ends.waiting, len(bench.tasks)) == ([], 1)

    on_bench(db, url, test)
