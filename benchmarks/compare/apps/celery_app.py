"""Celery: its workers import ``app``; ``main`` is the producer."""

import os
from typing import Any

from celery import Celery  # type: ignore[import-not-found]  # in an environment of its own

from benchmarks.compare.meter import PAYLOAD, run
from benchmarks.compare.produce import serve

URL = os.environ["COMPARE_REDIS_URL"]
app = Celery("compare", broker=URL, backend=URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=os.environ.get("COMPARE_ACKS_LATE") == "1",
    worker_prefetch_multiplier=128,
)


def _work(kind: str, payload: str) -> str | None:
    return run(kind)


work = app.task(_work, name="work")
keep = app.task(_work, name="keep", ignore_result=False)


def task_of(kind: str) -> Any:
    """Return the task that does what a kind says."""
    return keep if kind == "keep" else work


def each(kind: str, count: int) -> None:
    """Call the task's own ``delay`` for each."""
    task = task_of(kind)
    for _ in range(count):
        task.delay(kind, PAYLOAD)


def many(kind: str, count: int) -> None:
    """Enqueue as the docs advise for many: through one producer, which ``delay`` would look for each time."""
    task = task_of(kind)
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(count):
            task.apply_async((kind, PAYLOAD), producer=producer)


def main() -> None:
    """Enqueue what the harness asks for."""
    serve(each, many)
