"""Oban: its workers import this module by the names of jobs; ``main`` is the producer."""

import os
from urllib.parse import urlsplit

from oban import Oban, worker  # type: ignore[import-not-found]  # in an environment of its own
from oban.schema import install  # type: ignore[import-not-found]

from benchmarks.compare.meter import PAYLOAD, run_async
from benchmarks.compare.produce import serve_async

CHUNK = 500


class Work:
    """The one worker: the job says what to do."""

    async def process(self, job: object) -> None:
        """Do what the job says."""
        await run_async(job.args["kind"])  # type: ignore[attr-defined]


Work = worker(queue="default", max_attempts=1)(Work)  # type: ignore[misc]


class Producer:
    """What enqueues; made in the loop that it works in."""

    oban: Oban

    async def start(self) -> None:
        """Connect, and make the schema."""
        port = urlsplit(os.environ["COMPARE_REDIS_URL"]).port
        pool = await Oban.create_pool(f"postgresql://app@127.0.0.1:{port}/postgres")
        await install(pool)
        self.oban = Oban(pool=pool)

    async def each(self, kind: str, count: int) -> None:
        """Enqueue one after the other."""
        for _ in range(count):
            await self.oban.enqueue(Work.new({"kind": kind, "payload": PAYLOAD}))  # type: ignore[attr-defined]

    async def many(self, kind: str, count: int) -> None:
        """Enqueue 500 a call."""
        for at in range(0, count, CHUNK):
            jobs = [Work.new({"kind": kind, "payload": PAYLOAD}) for _ in range(min(CHUNK, count - at))]  # type: ignore[attr-defined]
            await self.oban.enqueue_many(jobs)


def main() -> None:
    """Enqueue what the harness asks for."""
    producer = Producer()
    serve_async(producer.start, producer.each, producer.many)
