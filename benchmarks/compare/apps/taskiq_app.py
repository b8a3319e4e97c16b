"""Taskiq, on a list or on a stream: its workers import ``broker``; ``main`` is the producer."""

import asyncio
import os

from taskiq_redis import (  # type: ignore[import-not-found]  # in an environment of its own
    ListQueueBroker,
    RedisStreamBroker,
)

from benchmarks.compare.meter import PAYLOAD, run
from benchmarks.compare.produce import serve_async

CHUNK = 32

URL = os.environ["COMPARE_REDIS_URL"]
# Read from the beginning: what is enqueued before the first worker is there would be skipped otherwise.
broker = RedisStreamBroker(URL, consumer_id="0") if os.environ["COMPARE_BROKER"] == "stream" else ListQueueBroker(URL)


async def _work(kind: str, payload: str) -> None:
    run(kind)


work = broker.register_task(_work, task_name="work")


async def each(kind: str, count: int) -> None:
    """Enqueue one after the other."""
    for _ in range(count):
        await work.kiq(kind, PAYLOAD)


async def many(kind: str, count: int) -> None:
    """Enqueue 32 at a time, as there is no call for many."""
    for at in range(0, count, CHUNK):
        await asyncio.gather(*(work.kiq(kind, PAYLOAD) for _ in range(min(CHUNK, count - at))))


def main() -> None:
    """Enqueue what the harness asks for."""
    serve_async(broker.startup, each, many)
