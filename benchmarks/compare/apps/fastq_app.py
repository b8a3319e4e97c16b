"""fastq: its own ``fastq-worker`` runs ``mux``; ``main`` is the producer."""

import os

from benchmarks.compare.meter import PAYLOAD, run
from benchmarks.compare.produce import serve
from fastq import Client, RunningTask, ServeMux, Task

KINDS = ("noop", "when", "short", "ms", "wait", "fail")

mux = ServeMux()


def do(task: RunningTask) -> None:
    """Do what the type says."""
    run(task.type)


for kind in KINDS:
    mux.handle(kind, do)


@mux.handler("keep")
def keep(task: RunningTask) -> str | None:
    """Return a result."""
    return run("keep")


@mux.handler("at")
def at(task: RunningTask) -> None:
    """Record how late it began, and use 1 ms of CPU."""
    run(f"at:{task.payload.decode()}")


@mux.handler("track")
def track(task: RunningTask) -> None:
    """Take 0.2 s, and write down the run."""
    run(f"track:{task.payload.decode()}")


def task_of(kind: str, payload: bytes) -> Task:
    """Return a task of a kind."""
    name, _, rest = kind.partition(":")
    if name == "fail":
        return Task(name, payload, max_retry=0)
    if name == "keep":
        return Task(name, payload, retention=3600)
    return Task(name, rest.encode() if rest else payload)


def main() -> None:
    """Enqueue what the harness asks for."""
    payload = PAYLOAD.encode()
    with Client(os.environ["COMPARE_REDIS_URL"]) as client:

        def each(kind: str, count: int) -> None:
            for _ in range(count):
                client.enqueue(task_of(kind, payload))

        serve(each, lambda kind, count: client.enqueue_many(task_of(kind, payload) for _ in range(count)))
