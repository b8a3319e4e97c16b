"""Taskiq, on a list or on a stream: its workers import ``broker``; ``main`` is the producer."""

import asyncio
import os
from typing import Any

from taskiq_redis import (  # type: ignore[import-not-found]  # in an environment of its own
    ListQueueBroker,
    RedisAsyncResultBackend,
    RedisStreamBroker,
)

from benchmarks.compare.meter import PAYLOAD, run_async
from benchmarks.compare.produce import serve_async

CHUNK = 32


class KeptOnly(RedisAsyncResultBackend):  # type: ignore[misc]  # the base is in an environment of its own
    """A backend that keeps what tasks return, and nothing of those that return nothing."""

    async def set_result(self, task_id: str, result: Any) -> None:
        """Keep a result that there is."""
        if result.return_value is not None:
            await super().set_result(task_id, result)


URL = os.environ["COMPARE_REDIS_URL"]
# Read from the beginning: what is enqueued before the first worker is there would be skipped otherwise.
broker = RedisStreamBroker(URL, consumer_id="0") if os.environ["COMPARE_BROKER"] == "stream" else ListQueueBroker(URL)

broker = broker.with_result_backend(KeptOnly(URL, result_ex_time=3600))


async def _work(kind: str, payload: str) -> str | None:
    return await run_async(kind)


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
