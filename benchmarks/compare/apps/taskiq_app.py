"""Taskiq, on a list or on a stream: its workers import ``broker``; this as a program is the producer."""

import asyncio
import os

from taskiq_redis import (  # type: ignore[import-not-found]  # in an environment of its own
    ListQueueBroker,
    RedisStreamBroker,
)

from benchmarks.compare.meter import PAYLOAD, run
from benchmarks.compare.produce import serve_async

CHUNK = 100

kind_of_broker = RedisStreamBroker if os.environ["COMPARE_BROKER"] == "stream" else ListQueueBroker
broker = kind_of_broker(os.environ["COMPARE_REDIS_URL"])


async def _work(kind: str, payload: str) -> None:
    run(kind)


work = broker.register_task(_work, task_name="work")


async def each(kind: str, count: int) -> None:
    """Enqueue one after the other."""
    for _ in range(count):
        await work.kiq(kind, PAYLOAD)


async def many(kind: str, count: int) -> None:
    """Enqueue 100 at a time, as there is no call for many."""
    for at in range(0, count, CHUNK):
        await asyncio.gather(*(work.kiq(kind, PAYLOAD) for _ in range(min(CHUNK, count - at))))


if __name__ == "__main__":
    serve_async(broker.startup, each, many)
