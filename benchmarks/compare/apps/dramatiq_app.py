"""Dramatiq: its workers import this module; ``main`` is the producer."""

import os

import dramatiq  # type: ignore[import-not-found]  # in an environment of its own
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]  # in an environment of its own
from dramatiq.results import Results  # type: ignore[import-not-found]  # in an environment of its own
from dramatiq.results.backends.redis import (  # type: ignore[import-not-found]  # in an environment of its own
    RedisBackend,
)

from benchmarks.compare.meter import PAYLOAD, run
from benchmarks.compare.produce import serve

URL = os.environ["COMPARE_REDIS_URL"]
broker = RedisBroker(url=URL)
broker.add_middleware(Results(backend=RedisBackend(url=URL), result_ttl=3_600_000))
dramatiq.set_broker(broker)


def _work(kind: str, payload: str) -> str | None:
    return run(kind)


work = dramatiq.actor(_work, actor_name="work")
ACTORS = {
    "fail": dramatiq.actor(_work, actor_name="fail", max_retries=0),
    "keep": dramatiq.actor(_work, actor_name="keep", store_results=True),
}


def each(kind: str, count: int) -> None:
    """Call the actor's ``send`` for each."""
    actor = ACTORS.get(kind, work)
    for _ in range(count):
        actor.send(kind, PAYLOAD)


def many(kind: str, count: int) -> None:
    """Run a group, the nearest that there is to a call for many; it enqueues one after the other."""
    actor = ACTORS.get(kind, work)
    dramatiq.group(actor.message(kind, PAYLOAD) for _ in range(count)).run()


def main() -> None:
    """Enqueue what the harness asks for."""
    serve(each, many)
