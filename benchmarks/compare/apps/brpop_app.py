"""The least that a queue in Python can be: a list, BRPOP, a call. ``produce`` and ``work`` are its roles."""

import os
from typing import Any

from redis import Redis

from benchmarks.compare.meter import PAYLOAD, run
from benchmarks.compare.produce import serve

CHUNK = 500


def produce(db: Any) -> None:
    """Push one task a call, or 500."""

    def each(kind: str, count: int) -> None:
        for _ in range(count):
            db.lpush("queue", f"{kind}:{PAYLOAD}")

    def many(kind: str, count: int) -> None:
        for at in range(0, count, CHUNK):
            db.lpush("queue", *(f"{kind}:{PAYLOAD}" for _ in range(min(CHUNK, count - at))))

    serve(each, many)


def work(db: Any) -> None:
    """Take tasks off the list for ever."""
    while True:
        found = db.brpop("queue", 1)
        if found:
            run(found[1].rpartition(b":")[0].decode())


def main(role: str) -> None:
    """Run one of the two programs."""
    {"produce": produce, "work": work}[role](Redis.from_url(os.environ["COMPARE_REDIS_URL"]))
