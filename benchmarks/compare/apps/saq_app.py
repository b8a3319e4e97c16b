"""SAQ: its workers import ``settings``; ``main`` is the producer."""

import asyncio
import os

from saq import Queue  # type: ignore[import-not-found]  # in an environment of its own

from benchmarks.compare.meter import PAYLOAD, run_async
from benchmarks.compare.produce import serve_async

CHUNK = 32
KEEP_NOTHING = -1

queue = Queue.from_url(os.environ["COMPARE_REDIS_URL"])


async def work(context: object, *, kind: str, payload: str) -> str | None:
    """Do a task."""
    return await run_async(kind)


settings = {"queue": queue, "functions": [work], "concurrency": 32}


async def enqueue(kind: str) -> None:
    """Enqueue a task that is tried again if its worker dies; one that is to fail would be tried again for that."""
    tries, ttl = 1 if kind == "fail" else 2, 3600 if kind == "keep" else KEEP_NOTHING
    await queue.enqueue("work", kind=kind, payload=PAYLOAD, retries=tries, ttl=ttl)


async def each(kind: str, count: int) -> None:
    """Enqueue one after the other."""
    for _ in range(count):
        await enqueue(kind)


async def many(kind: str, count: int) -> None:
    """Enqueue 32 at a time, as there is no call for many."""
    for at in range(0, count, CHUNK):
        await asyncio.gather(*(enqueue(kind) for _ in range(min(CHUNK, count - at))))


def main() -> None:
    """Enqueue what the harness asks for."""
    serve_async(queue.connect, each, many)
