"""Arq: its workers import ``WorkerSettings``; ``main`` is the producer."""

import asyncio
import os
from typing import Any

from arq import create_pool, func  # type: ignore[import-not-found]  # in an environment of its own
from arq.connections import RedisSettings  # type: ignore[import-not-found]  # in an environment of its own

from benchmarks.compare.meter import PAYLOAD, run_async
from benchmarks.compare.produce import serve_async

CHUNK = 32
SETTINGS = RedisSettings.from_dsn(os.environ["COMPARE_REDIS_URL"])
LOGGING = {"version": 1, "disable_existing_loggers": False}
"""Arq's own logs two lines a task."""


async def work(context: object, kind: str, payload: str) -> str | None:
    """Do a task."""
    return await run_async(kind)


def name_of(kind: str) -> str:
    """Return the function that does tasks of a kind."""
    return "keep" if kind == "keep" else "work"


class WorkerSettings:
    """What arq reads."""

    functions = (func(work, name="work", keep_result=0), func(work, name="keep", keep_result=3600))
    redis_settings = SETTINGS
    poll_delay = 0.01
    max_jobs = 32


class Pool:
    """The connection, which is made on the producer's loop."""

    redis: Any

    async def start(self) -> None:
        """Connect."""
        self.redis = await create_pool(SETTINGS)

    async def each(self, kind: str, count: int) -> None:
        """Enqueue one after the other."""
        for _ in range(count):
            await self.redis.enqueue_job(name_of(kind), kind, PAYLOAD)

    async def many(self, kind: str, count: int) -> None:
        """Enqueue 32 at a time, as there is no call for many."""
        for at in range(0, count, CHUNK):
            size = min(CHUNK, count - at)
            await asyncio.gather(*(self.redis.enqueue_job(name_of(kind), kind, PAYLOAD) for _ in range(size)))


def main() -> None:
    """Enqueue what the harness asks for."""
    pool = Pool()
    serve_async(pool.start, pool.each, pool.many)
