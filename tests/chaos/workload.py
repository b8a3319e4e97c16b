"""The workload: what handlers do, how often each kind of task comes, and which attempts are meant to fail.

What misbehaves does so on a task's first attempt only, so that every task has an end that can be named beforehand.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fastq.task import Task

__all__ = ["JOBS", "QUEUES", "Job", "Order", "orders"]

QUEUES: Final = {"high": 3, "low": 1}
_MANY: Final = 50
"""Retries for a task that is not to run out of them, however often its server dies."""


@dataclass(frozen=True)
class Job:
    """Be a kind of task: ``share`` of all tasks, ``span_ms`` of work, ``fails_first`` if its first attempt fails.

    ``delays_s`` is between the enqueue and the time before which it must not begin.
    """

    name: str
    share: float
    span_ms: tuple[int, int] = (0, 0)
    fails_first: bool = False
    is_async: bool = False
    delays_s: tuple[float, float] = (0.0, 0.0)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_kept(self) -> bool:
        return "retention" in self.options

    @property
    def is_last_attempt(self) -> bool:
        return self.options.get("max_retry") == 0


_TIMED: Final = {"timeout": 1}

JOBS: Final = {
    job.name: job
    for job in (
        Job("quick", 0.82),
        Job("work", 0.10, (1, 5)),
        Job("nap", 0.01, (5, 80)),
        Job("long", 0.0003, (500, 2500)),
        Job("keep", 0.03, options={"retention": 3600}),
        Job("last", 0.01, (0, 20), options={"max_retry": 0}),
        Job("due", 0.01, delays_s=(0.5, 5.0)),
        Job("unique", 0.005, options={"unique": 3600}),
        Job("flaky", 0.006, fails_first=True),
        Job("async", 0.005, (5, 60), is_async=True),
        Job("hang", 0.0001, fails_first=True, options=_TIMED),
        Job("deaf", 0.0001, fails_first=True, options=_TIMED),
        Job("gil", 0.0001, fails_first=True, options=_TIMED),
        Job("async-hang", 0.0001, fails_first=True, is_async=True, options=_TIMED),
        Job("crash", 0.0001, fails_first=True),
        Job("segfault", 0.0001, fails_first=True),
        Job("hog", 0.0001),
        Job("crowd", 0.0001),
    )
}


class Order(NamedTuple):
    """Be a task that is to be enqueued."""

    id: str
    job: Job
    queue: str
    task: Task
    delay_s: float = 0.0


def orders(count: int, seed: int) -> Iterator[Order]:
    """Make tasks, always the same ones for a seed; every job comes at least once."""
    rng = random.Random(f"orders {seed}")
    names = [name for name, job in JOBS.items() for _ in range(max(1, round(job.share * count)))]
    del names[: max(0, len(names) - count)]
    names += ["quick"] * (count - len(names))
    rng.shuffle(names)
    for number, name in enumerate(names):
        job = JOBS[name]
        queue = rng.choice(tuple(QUEUES))
        task_id = f"{number:08d}"
        options = {"max_retry": _MANY, **job.options}
        delay_s = round(rng.uniform(*job.delays_s), 3)
        if delay_s:
            options["process_in"] = delay_s
        payload = {"n": number, "ms": rng.randint(*job.span_ms), "pad": "x" * rng.choice((0, 0, 0, 40, 900))}
        yield Order(task_id, job, queue, Task(name, payload, task_id=task_id, queue=queue, **options), delay_s)
