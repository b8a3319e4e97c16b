"""Dramatiq: its workers import this module; ``main`` is the producer."""

import os

import dramatiq  # type: ignore[import-not-found]  # in an environment of its own
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]  # in an environment of its own

from benchmarks.compare.meter import PAYLOAD, run
from benchmarks.compare.produce import serve

broker = RedisBroker(url=os.environ["COMPARE_REDIS_URL"])
dramatiq.set_broker(broker)


def _work(kind: str, payload: str) -> None:
    run(kind)


work = dramatiq.actor(_work, actor_name="work")


def each(kind: str, count: int) -> None:
    """Call the actor's ``send`` for each."""
    for _ in range(count):
        work.send(kind, PAYLOAD)


def many(kind: str, count: int) -> None:
    """Run a group, the nearest that there is to a call for many; it enqueues one after the other."""
    dramatiq.group(work.message(kind, PAYLOAD) for _ in range(count)).run()


def main() -> None:
    """Enqueue what the harness asks for."""
    serve(each, many)
