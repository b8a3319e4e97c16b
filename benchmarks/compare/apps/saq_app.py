"""SAQ: its workers import ``settings``; ``main`` is the producer."""

import asyncio
import os

from saq import Queue  # type: ignore[import-not-found]  # in an environment of its own

from benchmarks.compare.meter import PAYLOAD, run
from benchmarks.compare.produce import serve_async

CHUNK = 32
KEEP_NOTHING = -1

queue = Queue.from_url(os.environ["COMPARE_REDIS_URL"])


async def work(context: object, *, kind: str, payload: str) -> None:
    """Do a task."""
    run(kind)


settings = {"queue": queue, "functions": [work], "concurrency": 32}


async def enqueue(kind: str) -> None:
    """Enqueue a task that is tried again if its worker dies, and of which nothing is kept."""
    await queue.enqueue("work", kind=kind, payload=PAYLOAD, retries=2, ttl=KEEP_NOTHING)


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
