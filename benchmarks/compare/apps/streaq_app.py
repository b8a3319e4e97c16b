"""StreaQ: its workers import ``worker``; ``main`` is the producer."""

import os

from streaq import Worker  # type: ignore[import-not-found]  # in an environment of its own

from benchmarks.compare.meter import PAYLOAD, run_async
from benchmarks.compare.produce import serve_async

CHUNK = 500

worker = Worker(redis_url=os.environ["COMPARE_REDIS_URL"], concurrency=32)


async def _work(kind: str, payload: str) -> str | None:
    return await run_async(kind)


work = worker.task(name="work", silent=True, ttl=0)(_work)
keep = worker.task(name="keep", silent=True, ttl=3600)(_work)


async def each(kind: str, count: int) -> None:
    """Enqueue one after the other."""
    task = keep if kind == "keep" else work
    for _ in range(count):
        await task.enqueue(kind, PAYLOAD)


async def many(kind: str, count: int) -> None:
    """Enqueue 500 a call."""
    task = keep if kind == "keep" else work
    for at in range(0, count, CHUNK):
        await worker.enqueue_many([task.enqueue(kind, PAYLOAD) for _ in range(min(CHUNK, count - at))])


def main() -> None:
    """Enqueue what the harness asks for."""
    serve_async(worker.__aenter__, each, many)
