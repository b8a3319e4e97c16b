"""fastq: its own ``fastq-worker`` runs ``mux``; ``main`` is the producer."""

import os

from benchmarks.compare.meter import PAYLOAD, run
from benchmarks.compare.produce import serve
from fastq import Client, ServeMux, Task

mux = ServeMux()


@mux.handler("noop")
def noop(task: Task) -> None:
    """Do nothing."""
    run("noop")


@mux.handler("ms")
def cpu_bound(task: Task) -> None:
    """Use 1 ms of CPU."""
    run("ms")


@mux.handler("when")
def when(task: Task) -> None:
    """Record when it began."""
    run("when")


def main() -> None:
    """Enqueue what the harness asks for."""
    payload = PAYLOAD.encode()
    with Client(os.environ["COMPARE_REDIS_URL"]) as client:

        def each(kind: str, count: int) -> None:
            for _ in range(count):
                client.enqueue(kind, payload)

        serve(each, lambda kind, count: client.enqueue_many(Task(kind, payload) for _ in range(count)))
