"""Huey: its consumer imports ``huey``; ``main`` is the producer."""

import os

from huey import RedisHuey  # type: ignore[import-not-found]  # in an environment of its own

from benchmarks.compare.meter import PAYLOAD, run
from benchmarks.compare.produce import serve

huey = RedisHuey("compare", url=os.environ["COMPARE_REDIS_URL"], results=True)


def _work(kind: str, payload: str) -> str | None:
    return run(kind)  # None is not kept


work = huey.task(name="work")(_work)


def each(kind: str, count: int) -> None:
    """Call the task for each; there is no call for many."""
    for _ in range(count):
        work(kind, PAYLOAD)


def main() -> None:
    """Enqueue what the harness asks for."""
    serve(each, each)
