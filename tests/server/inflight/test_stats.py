"""The numbers of a server: what its parts write, what is read of them, and the line that says them."""

import pytest
from redis import Redis

from fastq.broker.operations.presence import ServerIdentity, ServerState
from fastq.pool.main.protocol import EventKind
from fastq.server.actors.heartbeater import Heartbeater
from fastq.server.inflight.stats import RepairKind
from tests.server.harness import Bench, on_bench


def test_the_line_of_a_server_that_did_nothing_is_short(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        assert bench.stats.summary() == "0 tasks done; 0 in flight"

    on_bench(db, url, test)


def test_the_line_has_every_number_that_is_not_0(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.add("a")
        bench.stats.counts.update(
            {EventKind.DONE: 3, EventKind.RESULT: 2, EventKind.SKIP_RETRY: 1, EventKind.FAILED: 0}
        )
        bench.stats.aggregated = 4
        bench.stats.repairs[RepairKind.NO_TASK] = 5
        assert bench.stats.summary() == (
            "5 tasks done, 1 skip retry, 4 groups aggregated; 1 in flight; repaired: 5 ids without task"
        )

    on_bench(db, url, test)


def test_the_margin_is_that_of_the_lease_that_ends_first_and_a_beat_restores_it(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        assert bench.stats.lease_margin_s is None
        bench.hold("a")
        bench.clock.advance(20)
        bench.hold("b")
        assert bench.stats.lease_margin_s == pytest.approx(10)
        beating = Heartbeater(
            bench.broker,
            ServerIdentity("host", 1, "id"),
            lambda: ServerState(b"info", {}, b"notice"),
            bench.in_flight,
            bench.tasks.drop,
        )
        await beating.tick()
        assert bench.stats.lease_margin_s == pytest.approx(30)
        bench.clock.advance(31)
        assert bench.stats.lease_margin_s == pytest.approx(-1)
        for task in [task for _, tasks in bench.tasks.by_queue() for task in tasks]:
            bench.tasks.drop(task)
        assert bench.stats.lease_margin_s is None

    on_bench(db, url, test)


def test_in_flight_and_lag_are_those_of_now(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        (task,) = bench.hold("a")
        assert (bench.stats.in_flight, bench.stats.lag_s) == (1, 0.0)
        bench.stall.start()
        bench.clock.advance(1.5)
        bench.stall.beat()
        bench.stall.stop()
        bench.tasks.drop(task)
        assert bench.stats.in_flight == 0
        assert bench.stats.lag_s == pytest.approx(0.5)

    on_bench(db, url, test)
