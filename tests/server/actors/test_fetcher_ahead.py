"""The fetcher asks ahead: full batches wait until the next is asked for, large messages come by several calls."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operation import Operation
from fastq.broker.operations.lease import Leased
from fastq.server.inflight.uncertain import DequeueCall
from tests.broker.harness import OURS, QUEUE
from tests.server.actors.fetching import Pool, fetcher, fill
from tests.server.harness import Bench, on_bench
from tests.waiting import wait_until


def scripts_called(db: Redis) -> int:
    calls: Any = db.info("commandstats")
    return int(calls.get("cmdstat_evalsha", {"calls": 0})["calls"])


def test_a_full_batch_is_handed_on_while_redis_works_on_the_next(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        fill(bench, QUEUE, 1200)
        pool = Pool(bench, room=2000)
        taken_when_asked: list[int] = []
        begin = bench.commands.begin

        def noting(operations: Sequence[Operation[Any]], *, joins: bool = False) -> asyncio.Future[list[Any]]:
            taken_when_asked.append(len(pool.taken))
            return begin(operations, joins=joins)

        bench.commands.begin = noting  # type: ignore[method-assign]  # to see when it asks
        fetching = fetcher(bench, pool)
        for taken in (0, 500, 1200):  # the last batch is not full: its tasks are waited for
            assert await fetching.tick() == 0.0
            assert len(pool.taken) == taken
            assert bench.in_flight.dequeues.may_bring(QUEUE) == (taken < 1200)
        assert taken_when_asked == [0, 0, 500]
        assert pool.ids == [f"{QUEUE}-{number:03d}" for number in range(1200)]

    on_bench(db, url, test)


def test_the_next_batch_is_asked_of_redis_before_the_loop_is_kept_busy_with_the_last(db: Redis, url: str) -> None:
    """What is asked for is sent by the loop, which has no turn while the taker takes."""

    async def test(bench: Bench) -> None:
        fill(bench, QUEUE, 1200)
        pool = Pool(bench, room=2000)
        accept = pool.accept

        def taking(queue: str, leased: Leased, asked_s: float = 0.0) -> None:
            wait_until(lambda: scripts_called(db))
            accept(queue, leased, asked_s)

        pool.accept = taking  # type: ignore[method-assign]  # to see what Redis has heard by then
        fetching = fetcher(bench, pool)
        await fetching.tick()
        db.config_resetstat()
        await fetching.tick()
        assert len(pool.taken) >= 500

    on_bench(db, url, test)


def test_a_batch_is_not_kept_back_where_there_is_no_room_for_the_next(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        fill(bench, QUEUE, 800)
        pool = Pool(bench, room=500)
        fetching = fetcher(bench, pool)
        await fetching.tick()
        assert len(pool.taken) == 500
        pool.room = 700
        await fetching.tick()
        pool.room = 0
        assert await fetching.tick() > 0
        assert len(pool.taken) == 800

    on_bench(db, url, test)


@pytest.mark.parametrize("end", ["stop", "finish", "no more"])
def test_what_was_brought_is_handed_on_at_the_end(end: str, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        fill(bench, QUEUE, 800)
        pool = Pool(bench, room=2000)
        fetching = fetcher(bench, pool)
        await fetching.tick()
        assert pool.taken == []
        if end == "stop":
            await fetching.stop()
        elif end == "finish":
            await fetching.finish(5.0)
        else:
            fetching.stop_fetching()
            await fetching.tick()
        assert len(pool.taken) == 500

    on_bench(db, url, test)


def test_a_taker_that_fails_costs_no_task_of_the_batch_that_is_under_way(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        fill(bench, QUEUE, 1200)
        pool = Pool(bench, room=2000)
        fetching = fetcher(bench, pool)
        await fetching.tick()
        accept = pool.accept

        def fail(queue: str, leased: Leased, asked_s: float = 0.0) -> None:
            raise RuntimeError("a defect")

        pool.accept = fail  # type: ignore[method-assign]  # for once
        with pytest.raises(RuntimeError):
            await fetching.tick()
        pool.accept = accept  # type: ignore[method-assign]
        bench.clock.advance(60)
        while len(pool.taken) < 700:
            await fetching.tick()
        # What it failed to take is ours by its lease, and found with what had no reply.
        assert len(set(pool.ids)) == len(pool.ids) >= 700

    on_bench(db, url, test)


@pytest.mark.parametrize("slept", ["for longer than the lease", "for less"])
def test_what_was_brought_before_a_long_sleep_runs_only_if_it_is_still_ours(slept: str, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        fill(bench, QUEUE, 600)
        pool = Pool(bench, room=2000)
        fetching = fetcher(bench, pool)
        await fetching.tick()
        assert pool.taken == []
        theirs = [f"{QUEUE}-{number:03d}" for number in range(100)]
        bench.clock.advance(60 if slept == "for longer than the lease" else 20)
        for task_id in theirs:
            bench.take_away(task_id)
        while len(pool.taken) < 500:
            await fetching.tick()
        assert len(set(pool.ids)) == len(pool.ids) == 500
        assert not set(pool.ids) & set(theirs)

    on_bench(db, url, test)


def test_calls_of_one_round_trip_are_looked_for_apart_when_their_replies_are_lost(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.pend(*(f"{number:02d}" for number in range(15)), payload=bytes(100_000))
        pool = Pool(bench, room=20)
        fetching = fetcher(bench, pool)
        await fetching.tick()
        await fetching.tick()
        assert len(pool.taken) == 15
        assert len(set(bench.queue.scores("lease").values())) == 4

    on_bench(db, url, test)


def test_what_was_brought_is_not_taken_for_lost(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        fill(bench, QUEUE, 600)
        pool = Pool(bench, room=2000)
        fetching = fetcher(bench, pool)
        await fetching.tick()
        score = OURS.score(bench.clock.unix_ns() / 1e9, 30)
        # Another dequeue of that second had no reply.
        bench.in_flight.dequeues.lose(DequeueCall(QUEUE, 1, score), bench.clock.monotonic_s())
        bench.clock.advance(10)
        for _ in range(3):
            await fetching.tick()
        assert sorted(pool.ids) == sorted(set(pool.ids))
        assert len(pool.taken) == 600

    on_bench(db, url, test)


def test_large_messages_are_asked_for_in_several_calls_of_one_round_trip(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.pend(*(f"{number:02d}" for number in range(30)), payload=bytes(100_000))
        pool = Pool(bench, room=20)
        fetching = fetcher(bench, pool)
        await fetching.tick()
        assert len(pool.taken) == 3  # a call is full with these, and nothing was known of their size
        await fetching.tick()
        assert pool.ids == [f"{number:02d}" for number in range(3 + 4 * 3)]
        db.config_resetstat()
        pool.room = 1
        await fetching.tick()
        calls: Any = db.info("commandstats")
        assert (len(pool.taken), calls["cmdstat_evalsha"]["calls"]) == (16, 1)

    on_bench(db, url, test)
