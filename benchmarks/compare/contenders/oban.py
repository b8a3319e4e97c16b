"""Oban for Python on a PostgreSQL of its own, two processes."""

from typing import Any

from benchmarks.compare.contender import Command, Contender, Guarantee, Kind, Place, Rates, beside, module
from benchmarks.compare.database import postgres_server

UNFINISHED = "oban_jobs WHERE state IN ('available', 'scheduled', 'executing', 'retryable')"


def _work(place: Place) -> list[Command]:
    dsn = f"postgresql://app@127.0.0.1:{place.port}/postgres"
    words = ("start", "--dsn", dsn, "--queues", "default:32", "--log-level", "ERROR")
    return [beside(place, "oban", *words) for _ in range(2)]


def _left(db: Any) -> int:
    return int(db.count(UNFINISHED))


OBAN = Contender(
    name="oban",
    title="Oban for Python (PostgreSQL)",
    guarantee=Guarantee.LEAST,
    detail="a row whose state changes at the end; jobs of a dead process are rescued after minutes",
    settings="two processes of `oban start`, 32 jobs each, rows kept; it keeps no results; bulk by `enqueue_many`, "
    "500 a call. Python 3.12, since it needs that; several processes under one command are part of Oban Pro. "
    "PostgreSQL as for procrastinate",
    guess=Rates(each=500, many=5_000, noop=500),
    produce=module("oban_app"),
    work=_work,
    left=_left,
    environment="oban",
    package="oban",
    kinds=frozenset(Kind) - {Kind.KEEP},
    store=postgres_server,
)
