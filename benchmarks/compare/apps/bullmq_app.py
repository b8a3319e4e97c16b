"""BullMQ's own package for Python: ``main`` is the producer, and with "work" a worker."""

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any

from bullmq import Queue, Worker  # type: ignore[import-not-found]  # in an environment of its own

from benchmarks.compare.meter import PAYLOAD, run_async
from benchmarks.compare.produce import serve_async

URL = os.environ["COMPARE_REDIS_URL"]
SIDE_BY_SIDE = 32
CHUNK = 500


def options_of(kind: str) -> dict[str, object]:
    """Return the options of a job: its hash is removed when it ends, unless its result is to be kept."""
    is_kept = kind == "keep"
    return {"removeOnComplete": {"age": 3600} if is_kept else True, "removeOnFail": True}


class Producer:
    """The queue, which is made on the producer's loop."""

    queue: Any

    async def start(self) -> None:
        """Connect."""
        self.queue = Queue("compare", {"connection": URL})

    async def each(self, kind: str, count: int) -> None:
        """Add one after the other."""
        for _ in range(count):
            await self.queue.add("work", {"kind": kind, "payload": PAYLOAD}, options_of(kind))

    async def many(self, kind: str, count: int) -> None:
        """Add by the call for many, 500 at a time."""
        job = {"name": "work", "data": {"kind": kind, "payload": PAYLOAD}, "opts": options_of(kind)}
        for at in range(0, count, CHUNK):
            await self.queue.addBulk([dict(job) for _ in range(min(CHUNK, count - at))])


async def process(job: Any, token: str) -> str | None:
    """Do a job."""
    return await run_async(job.data["kind"])


async def work() -> None:
    """Work until SIGTERM."""
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    worker = Worker("compare", process, {"connection": URL, "concurrency": SIDE_BY_SIDE})
    await end.wait()
    await worker.close(True)


def main(role: str = "produce") -> None:
    """Enqueue what the harness asks for, or work."""
    if role == "work":
        with suppress(asyncio.CancelledError):
            asyncio.run(work())
        return
    producer = Producer()
    serve_async(producer.start, producer.each, producer.many)
