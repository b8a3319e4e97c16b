"""The workload: what handlers do, how often each kind of task comes, and which attempts are meant to fail.

What misbehaves does so on a task's first attempt only, so that every task has an end that can be named beforehand.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fastq.task import Task

_SHARED: Final = ("high", "low")
_OWN: Final = "own"
"""The queue of the tasks that are to outlast the outage: they must have begun before it, whatever else waits."""

QUEUES: Final = {"high": 3, "low": 1, _OWN: 1}
_MANY: Final = 50
"""Retries for a task that is not to run out of them, however often its server dies."""


@dataclass(frozen=True)
class Job:
    """A kind of task: ``share`` of all tasks, ``span_ms`` of work, ``fails_first`` if its first attempt fails.

    ``delays_s`` is between the enqueue and the time before which it must not begin. A task that is kept has its id as
    its result, ``echoes`` times.
    """

    name: str
    share: float
    span_ms: tuple[int, int] = (0, 0)
    fails_first: bool = False
    is_async: bool = False
    is_batched: bool = False
    blocks: bool = False
    queue: str = ""
    echoes: int = 1
    pad: int = 0
    delays_s: tuple[float, float] = (0.0, 0.0)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_kept(self) -> bool:
        return "retention" in self.options

    @property
    def is_timed(self) -> bool:
        return "timeout" in self.options

    @property
    def is_last_attempt(self) -> bool:
        return self.options.get("max_retry") == 0


_TIMED: Final = {"timeout": 1}
_NEIGHBORS: Final = 3
_KEPT: Final = {"retention": 3600}
_BULK: Final = 300_000
"""Bytes of a payload, or of a result, that need a descriptor on their way through a server."""

JOBS: Final = {
    job.name: job
    for job in (
        Job("quick", 0.7519),
        Job("work", 0.10, (1, 5)),
        Job("nap", 0.01, (5, 80)),
        Job("long", 0.0003, (500, 2500)),
        Job("keep", 0.03, options=_KEPT),
        Job("batch", 0.03, (5, 80), is_batched=True, options=_KEPT),
        Job("blank", 0.01, (5, 30), echoes=0, options=_KEPT),
        Job("late", 0.002, options=_KEPT),
        Job("bulky", 0.0005, echoes=_BULK // 8, pad=_BULK, options=_KEPT),
        Job("loud", 0.002),
        Job("last", 0.01, (0, 20), options={"max_retry": 0}),
        Job("due", 0.01, delays_s=(0.5, 5.0)),
        Job("unique", 0.005, options={"unique": 3600}),
        Job("flaky", 0.006, fails_first=True),
        Job("async", 0.005, (5, 60), is_async=True),
        Job("beside", 0.003, (100, 800), is_async=True, queue="high", options={"timeout": 3}),
        Job("block", 0.0001, fails_first=True, is_async=True, blocks=True, queue="high", options={"timeout": 5}),
        Job("thread", 0.02, (5, 80), is_async=True),
        Job("thread-hang", 0.0001, fails_first=True, is_async=True, blocks=True, queue="high", options=_TIMED),
        Job("hang", 0.0001, fails_first=True, options=_TIMED),
        Job("deaf", 0.0001, fails_first=True, options=_TIMED),
        Job("gil", 0.0001, fails_first=True, options=_TIMED),
        Job("async-hang", 0.0001, fails_first=True, is_async=True, options=_TIMED),
        Job("crash", 0.0001, fails_first=True),
        Job("segfault", 0.0001, fails_first=True),
        Job("hog", 0.0001),
        Job("crowd", 0.0001),
        Job("outlast", 0),
        Job("outlast-last", 0, options={"max_retry": 0}),
    )
}


class Order(NamedTuple):
    """A task to enqueue."""

    id: str
    job: Job
    queue: str
    task: Task
    delay_s: float = 0.0


def orders(count: int, seed: int) -> Iterator[Order]:
    """Make tasks, always the same ones for a seed; every job that has a share comes at least once."""
    rng = random.Random(f"orders {seed}")
    names = [name for name, job in JOBS.items() if job.share for _ in range(max(1, round(job.share * count)))]
    del names[: max(0, len(names) - count)]
    names += ["quick"] * (count - len(names))
    rng.shuffle(names)
    _put_beside_blocks(names)
    for number, name in enumerate(names):
        job = JOBS[name]
        queue = job.queue or rng.choice(_SHARED)
        task_id = f"{number:08d}"
        options = {"max_retry": _MANY, **job.options}
        delay_s = round(rng.uniform(*job.delays_s), 3)
        if delay_s:
            options["process_in"] = delay_s
        pad = "x" * (job.pad or rng.choice((0, 0, 0, 40, 900)))
        payload = {"n": number, "ms": rng.randint(*job.span_ms), "pad": pad}
        yield Order(task_id, job, queue, Task(name, payload, task_id=task_id, queue=queue, **options), delay_s)


def _put_beside_blocks(names: list[str]) -> None:
    """Let what blocks its event loop come right after some that have to share it."""
    neighbors = [at for at, name in enumerate(names) if name == "beside"]
    for at in [at for at, name in enumerate(names) if JOBS[name].blocks]:
        for place in range(max(0, at - _NEIGHBORS), at):
            if neighbors and not JOBS[names[place]].blocks:
                other = neighbors.pop()
                names[place], names[other] = names[other], names[place]


def outlasting(count: int, seed: int, outage_s: float) -> list[Order]:
    """Make tasks some of which end while Redis is away for so long, some only after that."""
    rng = random.Random(f"outlasting {seed}")
    made = []
    for number in range(count):
        job = JOBS["outlast-last" if number % 2 else "outlast"]
        task_id, queue = f"outlast-{number:04d}", _OWN
        share = rng.uniform(0.5, 0.9) if number // 2 % 2 else rng.uniform(1.1, 1.15)
        payload = {"n": number, "ms": round(1000 * outage_s * share)}
        options = {"max_retry": _MANY, **job.options}
        made.append(Order(task_id, job, queue, Task(job.name, payload, task_id=task_id, queue=queue, **options)))
    return made
