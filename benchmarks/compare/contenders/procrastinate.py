"""Procrastinate on a PostgreSQL of its own, two workers."""

from typing import Any

from benchmarks.compare.contender import APPS, Command, Contender, Guarantee, Kind, Place, Rates, beside, module
from benchmarks.compare.database import postgres_server

WORDS = ("worker", "--concurrency", "32", "--delete-jobs", "always")


def _work(place: Place) -> list[Command]:
    return [beside(place, "procrastinate", "--app", f"{APPS}.procrastinate_app.app", *WORDS) for _ in range(2)]


def _left(db: Any) -> int:
    return int(db.count("procrastinate_jobs"))


PROCRASTINATE = Contender(
    name="procrastinate",
    title="procrastinate (PostgreSQL)",
    guarantee=Guarantee.LEAST,
    detail="a row that is deleted at the end; what a dead worker had is started again by a periodic task of the user's",
    settings="two workers of concurrency 32, jobs deleted when they end; bulk by `batch_defer`; it keeps no "
    "results. PostgreSQL is without fsync where Redis keeps nothing, and commits asynchronously where Redis syncs "
    "every second; what is said of Redis is said of PostgreSQL",
    guess=Rates(each=500, many=3_000, noop=300),
    produce=module("procrastinate_app"),
    work=_work,
    left=_left,
    environment="procrastinate",
    package="procrastinate",
    kinds=frozenset(Kind) - {Kind.KEEP},
    store=postgres_server,
)
