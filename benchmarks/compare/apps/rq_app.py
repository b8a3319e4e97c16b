"""rq: its workers import ``work``; ``main`` is the producer."""

import os

from redis import Redis
from rq import Queue  # type: ignore[import-not-found]  # in an environment of its own

from benchmarks.compare.meter import PAYLOAD, run
from benchmarks.compare.produce import serve

CHUNK = 500


def work(kind: str, payload: str) -> str | None:
    """Do a task."""
    return run(kind)


def kept_s(kind: str) -> int:
    """Return how long the result of a kind is kept."""
    return 3600 if kind == "keep" else 0


def main() -> None:
    """Enqueue what the harness asks for; results are not kept."""
    queue = Queue(connection=Redis.from_url(os.environ["COMPARE_REDIS_URL"]))
    name = "benchmarks.compare.apps.rq_app.work"

    def each(kind: str, count: int) -> None:
        for _ in range(count):
            queue.enqueue(name, kind, PAYLOAD, result_ttl=kept_s(kind))

    def many(kind: str, count: int) -> None:
        for at in range(0, count, CHUNK):
            size = min(CHUNK, count - at)
            queue.enqueue_many(
                [Queue.prepare_data(name, (kind, PAYLOAD), result_ttl=kept_s(kind)) for _ in range(size)]
            )

    serve(each, many)
