"""A load that uses no limit, lane or key: its handlers, and its producer (``python plain_load.py URL``).

Most tasks are enqueued once the one before has ended, so that each call has one task, whatever the machine does.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from redis import Redis

from fastq import Client, RunningTask, ServeMux, SkipRetry, Task

EACH = 20
MANY = 300
mux = ServeMux()


@mux.handler("plain:noop")
def noop(task: RunningTask) -> None:
    """Do nothing."""


@mux.handler("plain:result")
def keep(task: RunningTask) -> bytes:
    """Return a result."""
    return b"x"


@mux.handler("plain:fails-once")
def fail_once(task: RunningTask) -> None:
    """Fail at the first attempt."""
    if not task.retried:
        raise ValueError("no")


@mux.handler("plain:skips")
def skip(task: RunningTask) -> None:
    """Fail for good."""
    raise SkipRetry("never")


def retry_soon(retried: int, error: object, task: object) -> float:
    """Retry after a second."""
    return 1.0


def loads() -> Iterator[tuple[str, Task, dict[str, Any]]]:
    """Yield each task of the load with its options, after the queue that it goes to."""
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("plain:noop", {}),
        ("plain:result", {"retention": 600}),
        ("plain:fails-once", {"max_retry": 3}),
        ("plain:skips", {}),
        ("plain:noop", {"unique": 60}),
        ("plain:noop", {"process_in": 1}),
    ]
    for kind, options in kinds:
        for number in range(EACH):
            yield ("default", "low")[number % 2], Task(kind, b"%d" % number), options


def ends(db: Any) -> int:
    """Return how many runs have ended, well or not; waits are not in it."""
    return sum(int(db.get(f"asynq:{{{queue}}}:processed") or 0) for queue in ("default", "low"))


def main(url: str) -> None:
    """Produce the load."""
    with Client(url) as client, closing(Redis.from_url(url)) as db:
        for queue, task, options in loads():
            before = ends(db)
            client.enqueue(task, queue=queue, **options)
            while ends(db) < before + 1 + (task.type == "plain:fails-once"):
                time.sleep(0.005)
        client.enqueue_many(Task("plain:noop", b"%d" % number) for number in range(MANY))
        while ends(db) < before + 1 + MANY:
            time.sleep(0.005)


if __name__ == "__main__":
    main(sys.argv[1])
