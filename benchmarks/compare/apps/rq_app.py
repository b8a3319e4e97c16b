"""rq: its workers import ``work``; ``main`` is the producer."""

import os

from redis import Redis
from rq import Queue  # type: ignore[import-not-found]  # in an environment of its own

from benchmarks.compare.meter import PAYLOAD, run
from benchmarks.compare.produce import serve

CHUNK = 500


def work(kind: str, payload: str) -> None:
    """Do a task."""
    run(kind)


def main() -> None:
    """Enqueue what the harness asks for; results are not kept."""
    queue = Queue(connection=Redis.from_url(os.environ["COMPARE_REDIS_URL"]))
    name = "benchmarks.compare.apps.rq_app.work"

    def each(kind: str, count: int) -> None:
        for _ in range(count):
            queue.enqueue(name, kind, PAYLOAD, result_ttl=0)

    def many(kind: str, count: int) -> None:
        for at in range(0, count, CHUNK):
            size = min(CHUNK, count - at)
            queue.enqueue_many([Queue.prepare_data(name, (kind, PAYLOAD), result_ttl=0) for _ in range(size)])

    serve(each, many)
