"""The crowd's producers: Go's client, fastq's blocking and asyncio clients, each with its jobs, all at once."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from fastq import AsyncClient, Client, DuplicateTaskError, FastqError, Task, TaskIDConflictError, TaskInfo
from tests.interop.crowd.plan import Job
from tests.interop.peer import GoPeer
from tests.interop.records import GoTask, GoTaskInfo, PeerError
from tests.interop.samples import go_options

CHUNK: Final = 40
REFUSALS: Final[dict[str, str]] = {
    DuplicateTaskError.__name__: "duplicate",
    TaskIDConflictError.__name__: "id_conflict",
}


@dataclass(frozen=True)
class Enqueued:
    """What a client said of a job: the task's id, or why there is none."""

    job: Job
    task_id: str
    refusal: str


Tell = Callable[[Enqueued], None]


def enqueue_all(jobs: Sequence[Job], go: GoPeer, url: str, tell: Tell) -> None:
    """Enqueue each job by its producer; ``tell`` hears of each, from several threads."""
    of = {producer: [job for job in jobs if job.producer == producer] for producer in {job.producer for job in jobs}}
    with ThreadPoolExecutor() as pool:
        ways = [
            pool.submit(by_go, of["go"][::2], go, tell),
            pool.submit(by_go, of["go"][1::2], go, tell),
            pool.submit(one_by_one, of["one"], url, tell),
            pool.submit(many_at_once, of["many"], url, tell),
            pool.submit(asyncio.run, by_coroutines(of["async"], url, tell)),
        ]
        for way in ways:
            way.result()


def chunks(jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
    for start in range(0, len(jobs), CHUNK):
        yield jobs[start : start + CHUNK]


def by_go(jobs: Sequence[Job], go: GoPeer, tell: Tell) -> None:
    for some in chunks(jobs):
        outcomes = go.enqueue_many(GoTask(job.type, job.payload, job.headers, go_options(job.options)) for job in some)
        say(some, outcomes, tell)


def one_by_one(jobs: Sequence[Job], url: str, tell: Tell) -> None:
    with Client(url) as client:
        for job in jobs:
            try:
                outcome: TaskInfo | FastqError = client.enqueue(task(job), **job.options)
            except FastqError as error:
                outcome = error
            say([job], [outcome], tell)


def many_at_once(jobs: Sequence[Job], url: str, tell: Tell) -> None:
    with Client(url) as client:
        for some in chunks(jobs):
            say(
                some,
                client.enqueue_many(Task(job.type, job.payload, headers=job.headers, **job.options) for job in some),
                tell,
            )


async def by_coroutines(jobs: Sequence[Job], url: str, tell: Tell) -> None:
    async with AsyncClient(url) as client:
        for some in chunks(jobs):
            outcomes = await asyncio.gather(
                *(client.enqueue(task(job), **job.options) for job in some), return_exceptions=True
            )
            say(some, outcomes, tell)


def task(job: Job) -> Task:
    return Task(job.type, job.payload, headers=job.headers)


def say(jobs: Iterable[Job], outcomes: Iterable[object], tell: Tell) -> None:
    for job, outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome, TaskInfo | GoTaskInfo):
            tell(Enqueued(job, outcome.id, ""))
        elif isinstance(outcome, PeerError):
            tell(Enqueued(job, "", outcome.error_class))
        else:
            tell(Enqueued(job, "", REFUSALS.get(type(outcome).__name__, repr(outcome))))
