"""The fetcher: room is filled by weight, empty queues rest, trouble is one queue's own, lost replies are made good."""

import asyncio
import logging
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.dequeue import MAX_BATCH_BYTES
from fastq.broker.scripts import SCRIPTS
from fastq.errors import BrokerConnectionError
from fastq.server.actors.fetcher import NOTHING_TO_DO_S
from fastq.wire import keys
from tests.broker.harness import NOW_S, OURS, QUEUE, THEIRS
from tests.faulty_proxy import Act, faulty_proxy
from tests.redis_servers import RedisServer
from tests.server.actors.fetching import Pool, fetcher, fetcher_and_wakers, fill
from tests.server.harness import Bench, ScriptFault, logged, on_bench
from tests.waiting import until

# Fetching ---------------------------------------------------------------------------------------------------------


def test_it_takes_what_there_is_room_for_and_leases_it(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.pend("a", "b", "c")
        pool = Pool(bench, room=2)
        assert await fetcher(bench, pool).tick() == 0.0
        assert pool.ids == ["a", "b"]
        assert bench.queue.places() == {"pending": ["c"], "active": ["b", "a"], "lease": ["a", "b"]}
        assert bench.queue.scores("lease")["a"] == NOW_S + 30 + OURS.fraction

    on_bench(db, url, test)


def test_without_room_it_asks_nothing(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.pend("a")
        pool = Pool(bench, room=0)
        assert await fetcher(bench, pool).tick() > 0
        assert bench.queue.places() == {"pending": ["a"]}

    on_bench(db, url, test)


def test_a_batch_is_split_by_weight(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        weights = {"critical": 6, "default": 3, "low": 1}
        for queue in weights:
            fill(bench, queue, 100)
        pool = Pool(bench, room=100)
        await fetcher(bench, pool, weights).tick()
        taken = [queue for queue, _ in pool.taken]
        assert [taken.count(queue) for queue in weights] == [60, 30, 10]

    on_bench(db, url, test)


def test_strict_priority_fills_from_the_top(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        weights = {"critical": 6, "default": 3, "low": 1}
        fill(bench, "critical", 7)
        fill(bench, "low", 50)
        pool = Pool(bench, room=20)
        fetching = fetcher(bench, pool, weights, strict=True)
        while len(pool.taken) < 20:
            pool.room = 20 - len(pool.taken)
            await fetching.tick()
        taken = [queue for queue, _ in pool.taken]
        assert taken == ["critical"] * 7 + ["low"] * 13

    on_bench(db, url, test)


def test_what_one_queue_cannot_fill_goes_to_the_others(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        fill(bench, "low", 50)
        pool = Pool(bench, room=50)
        fetching = fetcher(bench, pool, {"critical": 9, "low": 1})
        await fetching.tick()
        pool.room -= len(pool.taken)
        await fetching.tick()
        assert len(pool.taken) == 50

    on_bench(db, url, test)


def test_ids_without_a_task_are_said(db: Redis, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.pend("dangling", "a")
        bench.db.delete(keys.task(QUEUE, "dangling"))
        pool = Pool(bench)
        await fetcher(bench, pool).tick()
        assert pool.ids == ["a"]

    on_bench(db, url, test)
    assert logged(caplog) == ["dropped 1 ids without a task from queue default"]


# Rest -------------------------------------------------------------------------------------------------------------


def dequeues(bench: Bench) -> int:
    stats: Any = bench.db.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


def test_an_empty_queue_rests_for_half_to_one_and_a_half_intervals(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        fetching = fetcher(bench, Pool(bench))
        pause_s = await fetching.tick()
        assert 0.5 <= pause_s <= 1.5
        assert fetching.all_resting
        bench.clock.advance(pause_s / 2)
        asked = dequeues(bench)
        assert await fetching.tick() == pytest.approx(pause_s / 2)
        assert dequeues(bench) == asked
        bench.queue.pend("a")
        bench.clock.advance(pause_s)
        assert await fetching.tick() == 0.0
        assert bench.in_flight_ids() == ["a"]

    on_bench(db, url, test)


def test_a_queue_that_is_woken_is_asked_at_once(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        pool = Pool(bench)
        fetching = fetcher(bench, pool, {QUEUE: 1, "other": 1})
        await fetching.tick()
        bench.queue.pend("a")
        fetching.queue_has_tasks(QUEUE)
        assert not fetching.all_resting
        assert fetching._is_woken
        await fetching.tick()
        assert pool.ids == ["a"]

    on_bench(db, url, test)


def test_only_an_empty_queue_is_waited_for_and_a_paused_one_is_polled(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        fill(bench, "paused", 1)
        bench.db.set(keys.paused("paused"), 1)
        fetching, wakers = fetcher_and_wakers(bench, Pool(bench), "empty", "paused")
        await fetching.tick()
        assert wakers["empty"].is_waiting
        assert not wakers["paused"].is_waiting
        now_s = bench.clock.monotonic_s()
        assert 5.0 <= fetching._resting["empty"] - now_s <= 15.0
        assert 0.5 <= fetching._resting["paused"] - now_s <= 1.5
        bench.db.delete(keys.paused("paused"))
        bench.clock.advance(1.5)
        await fetching.tick()
        assert bench.in_flight_ids() == ["paused-000"]

    on_bench(db, url, test)


def test_a_queue_that_gave_all_it_had_is_not_asked_again_but_waited_for(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        fill(bench, QUEUE, 5)
        pool = Pool(bench, room=4)
        fetching, wakers = fetcher_and_wakers(bench, pool)
        assert await fetching.tick() == 0.0, "it may have more: it gave all it was asked for"
        assert not wakers[QUEUE].is_waiting
        assert await fetching.tick() > 0
        assert len(pool.taken) == 5
        assert wakers[QUEUE].is_waiting
        assert fetching.all_resting
        asked = dequeues(bench)
        await fetching.tick()
        assert dequeues(bench) == asked

    on_bench(db, url, test)


def test_a_queue_whose_large_messages_filled_a_call_is_asked_again(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        for number in range(2):
            bench.queue.pend(str(number), payload=bytes(MAX_BATCH_BYTES))
        fetching, wakers = fetcher_and_wakers(bench, Pool(bench))
        assert await fetching.tick() == 0.0
        assert len(bench.in_flight_ids()) == 1
        assert not wakers[QUEUE].is_waiting

    on_bench(db, url, test)


def test_a_queue_that_nobody_waits_for_is_asked_until_it_is_empty(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        fetching, wakers = fetcher_and_wakers(bench, Pool(bench))
        wakers[QUEUE].works = False
        for number in range(3):
            bench.queue.pend(str(number))
            assert await fetching.tick() == 0.0
        assert await fetching.tick() > 0

    on_bench(db, url, test)


def test_a_queue_whose_waker_is_deaf_for_long_is_asked_at_every_check_interval(db: Redis, url: str) -> None:
    """It was woken in vain, among many servers; all the others may be busy by now."""

    async def test(bench: Bench) -> None:
        fetching, wakers = fetcher_and_wakers(bench, Pool(bench), servers=20)
        waker = wakers[QUEUE]
        for delay_s, least_s, most_s in ((0.25, 5.0, 15.0), (0.9, 0.5, 1.5)):
            waker._delay_s, waker._has_woken = delay_s, True
            await fetching.tick()
            assert waker.delay_s == 2 * delay_s
            assert least_s <= fetching._resting[QUEUE] - bench.clock.monotonic_s() <= most_s
            fetching.ask_all()

    on_bench(db, url, test)


# Outage ----------------------------------------------------------------------------------------------------------


def test_a_queue_that_fails_does_not_keep_the_others_from_being_served(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        bench.db.set(keys.pending("odd"), "not a list")
        pool = Pool(bench)
        fetching = fetcher(bench, pool, {"odd": 5, QUEUE: 1})
        for number in range(20):
            bench.queue.pend(str(number))
            fetching.queue_has_tasks(QUEUE)
            await fetching.tick()
            assert len(pool.taken) == number + 1
            bench.clock.advance(0.01)
        assert not fetching.all_resting
        bench.db.delete(keys.pending("odd"))
        bench.clock.advance(6)
        fill(bench, "odd", 1)
        await fetching.tick()
        assert ("odd", "odd-000") in pool.taken

    caplog.set_level(logging.INFO, "fastq")
    on_bench(db, url, test)
    said = logged(caplog, logging.INFO)
    assert len(said) == 2
    assert "queue odd: dequeue: " in said[0]
    assert said[1].startswith("Redis operations succeed again after ")


def test_an_outage_is_said_once_for_all_queues(
    db: Redis, shared_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with faulty_proxy(shared_server.socket_path) as proxy:

        async def test(bench: Bench) -> None:
            fetching = fetcher(bench, Pool(bench), {"a": 1, "b": 1, "c": 1})
            proxy.vanish()
            for _ in range(5):
                assert 0 < await fetching.tick() <= 5.0
                bench.clock.advance(5)

        on_bench(db, shared_server.url, test, through=proxy.url)
    (said,) = logged(caplog)
    assert "cannot reach Redis" in said


def test_a_queue_in_doubt_is_left_alone_until_it_is_settled(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        pool = Pool(bench)
        (task,) = bench.hold("a")
        bench.queue.pend("b")
        fill(bench, "other", 1)
        bench.ends.keep([task], BrokerConnectionError("lost", maybe_applied=True))
        fetching = fetcher(bench, pool, {QUEUE: 1, "other": 1})
        await fetching.tick()
        assert pool.ids == ["other-000"]
        assert await fetching.tick() == 0.0, "the other queue is asked until it is empty"
        assert 0 < await fetching.tick() <= 0.5
        bench.tasks.drop(task)
        await fetching.tick()
        assert pool.ids == ["other-000", "b"]

    on_bench(db, url, test)


# Lost replies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REPLY, Act.CUT_IN_REPLY])
def test_the_tasks_of_a_dequeue_without_reply_are_found(
    act: Act, db: Any, shared_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    db.script_load(SCRIPTS["dequeue"].text)
    with faulty_proxy(shared_server.socket_path, ScriptFault("dequeue", act)) as proxy:

        async def test(bench: Bench) -> None:
            bench.queue.activate("theirs", owner=THEIRS)
            bench.queue.pend("a", "b")
            pool = Pool(bench, room=2)
            fetching = fetcher(bench, pool)
            asked_s = bench.clock.monotonic_s()
            assert await fetching.tick() > 0
            assert pool.ids == []
            assert bench.queue.places() == {"active": ["b", "a", "theirs"], "lease": ["theirs", "a", "b"]}
            assert not fetching.all_resting
            bench.clock.advance(1)
            await fetching.tick()
            assert sorted(pool.ids) == ["a", "b"]
            assert pool.asked_s == [asked_s], "of the dequeue, not of the look"
            for _ in range(4):
                bench.clock.advance(6)
                await fetching.tick()
            assert sorted(pool.ids) == ["a", "b"], "what was found is not found again"
            assert fetching.all_resting

        caplog.set_level(logging.INFO, "fastq")
        on_bench(db, shared_server.url, test, through=proxy.url)
    assert "found 2 tasks of queue default that a dequeue with a lost reply had leased" in logged(caplog, logging.INFO)


def test_a_dequeue_that_redis_never_saw_leaves_nothing_to_find(db: Any, shared_server: RedisServer) -> None:
    db.script_load(SCRIPTS["dequeue"].text)
    with faulty_proxy(shared_server.socket_path, ScriptFault("dequeue", Act.CUT_BEFORE_REQUEST)) as proxy:

        async def test(bench: Bench) -> None:
            bench.queue.pend("a")
            pool = Pool(bench)
            fetching = fetcher(bench, pool)
            await fetching.tick()
            bench.clock.advance(1)
            await fetching.tick()
            assert pool.ids == ["a"]

        on_bench(db, shared_server.url, test, through=proxy.url)


def test_a_dequeue_that_is_carried_out_late_is_found_later(db: Any, shared_server: RedisServer) -> None:
    db.script_load(SCRIPTS["dequeue"].text)
    with faulty_proxy(shared_server.socket_path, ScriptFault("dequeue", Act.HOLD)) as proxy:

        async def test(bench: Bench) -> None:
            bench.queue.pend("a")
            pool = Pool(bench, room=0)
            fetching = fetcher(bench, pool)
            pool.room = 1
            await fetching.tick()
            pool.room = 0
            bench.clock.advance(1)
            await fetching.tick()
            assert pool.ids == []
            proxy.release()
            bench.clock.advance(1)
            await fetching.tick()
            assert pool.ids == [], "the next look is not due yet"
            bench.clock.advance(5)
            await fetching.tick()
            assert pool.ids == ["a"]

        on_bench(db, shared_server.url, test, through=proxy.url)


def test_what_is_held_is_not_taken_for_lost_nor_what_ended_during_the_look(db: Any, shared_server: RedisServer) -> None:
    db.script_load(SCRIPTS["dequeue"].text)
    with faulty_proxy(shared_server.socket_path, ScriptFault("dequeue", Act.CUT_BEFORE_REPLY, skip=1)) as proxy:

        async def test(bench: Bench) -> None:
            bench.queue.pend("held", "ends", "lost")
            pool = Pool(bench, room=2)
            fetching = fetcher(bench, pool)
            await fetching.tick()
            pool.room = 1
            await fetching.tick()
            bench.clock.advance(0.5)
            # The score of all three is the same: they were taken within one second.
            assert len(set(bench.queue.scores("lease").values())) == 1
            ends = bench.tasks.get(QUEUE, "ends")
            assert ends is not None
            looking = asyncio.create_task(fetching.tick())
            await asyncio.sleep(0)
            bench.tasks.drop(ends)
            await looking
            assert pool.ids == ["held", "ends", "lost"]

        on_bench(db, shared_server.url, test, through=proxy.url)


def test_the_end_of_an_outage_is_seen_without_room_for_tasks(
    db: Any, shared_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("dequeue", "list_leases"):
        db.script_load(SCRIPTS[name].text)
    with faulty_proxy(shared_server.socket_path, ScriptFault("dequeue", Act.CUT_BEFORE_REPLY)) as proxy:

        async def test(bench: Bench) -> None:
            pool = Pool(bench, room=2)
            fetching = fetcher(bench, pool, {QUEUE: 1})
            await fetching.tick()
            assert fetching.outage
            pool.room = 0
            bench.clock.advance(6)
            await fetching.tick()
            assert not fetching.outage

        caplog.set_level(logging.INFO, "fastq")
        on_bench(db, shared_server.url, test, through=proxy.url)
    assert [line for line in logged(caplog, logging.INFO) if "succeed again" in line]


def test_a_look_that_fails_is_repeated_and_hinders_no_queue(db: Any, shared_server: RedisServer) -> None:
    for name in ("dequeue", "list_leases"):
        db.script_load(SCRIPTS[name].text)
    faults = (
        ScriptFault("dequeue", Act.CUT_BEFORE_REPLY),
        ScriptFault("list_leases", Act.ANSWER, times=2, answer=b"-ERR outage\r\n"),
    )
    with faulty_proxy(shared_server.socket_path, *faults) as proxy:

        async def test(bench: Bench) -> None:
            bench.queue.pend("a")
            pool = Pool(bench)
            fetching = fetcher(bench, pool, {QUEUE: 1, "other": 1})
            await fetching.tick()
            fill(bench, "other", 3)
            for _ in range(3):
                bench.clock.advance(6)
                await fetching.tick()
            assert sorted(pool.ids) == ["a", "other-000", "other-001", "other-002"]

        on_bench(db, shared_server.url, test, through=proxy.url)


def test_one_that_was_told_to_fetch_no_more_still_finds_what_a_late_dequeue_leased(
    db: Any, shared_server: RedisServer
) -> None:
    """After SIGTSTP nobody else would: the tasks would stay active for a lease, and cost an attempt."""
    db.script_load(SCRIPTS["dequeue"].text)
    with faulty_proxy(shared_server.socket_path, ScriptFault("dequeue", Act.HOLD)) as proxy:

        async def test(bench: Bench) -> None:
            bench.queue.pend("a", "b")
            pool = Pool(bench, room=1)
            fetching = fetcher(bench, pool)
            await fetching.tick()
            fetching.stop_fetching()
            assert await fetching.tick() < 6, "it looks again"
            assert fetching.quiet.is_set()
            proxy.release()
            bench.clock.advance(6)
            assert await fetching.tick() < 6
            assert pool.ids == ["a"]
            bench.clock.advance(6)
            assert await fetching.tick() == NOTHING_TO_DO_S, "nothing is left to look for"
            assert bench.queue.places()["pending"] == ["b"]

        on_bench(db, shared_server.url, test, through=proxy.url)


@pytest.mark.parametrize("looks", [0, 1])
def test_a_last_look_is_taken_before_the_end(looks: int, db: Any, shared_server: RedisServer) -> None:
    db.script_load(SCRIPTS["dequeue"].text)
    with faulty_proxy(shared_server.socket_path, ScriptFault("dequeue", Act.HOLD)) as proxy:

        async def test(bench: Bench) -> None:
            bench.queue.pend("a")
            pool = Pool(bench)
            fetching = fetcher(bench, pool)
            await fetching.tick()
            for _ in range(looks):
                await fetching._take_lost()
            proxy.release()
            await fetching.finish(600)
            assert pool.ids == ["a"]

        on_bench(db, shared_server.url, test, through=proxy.url)


def test_a_fetch_that_is_cancelled_at_the_end_leaves_no_task_behind(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.queue.pend("a", "b")
        pool = Pool(bench, room=1)
        fetching = fetcher(bench, pool)
        fetching.start()
        await asyncio.sleep(0)
        await fetching.finish(0)
        active = bench.queue.places().get("active", [])
        assert sorted(pool.ids) == sorted(active)

    on_bench(db, url, test)


# Life -------------------------------------------------------------------------------------------------------------


def test_it_starts_and_stops_again_and_again(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        pool = Pool(bench, room=1)
        bench.queue.pend(*(str(number) for number in range(30)))
        for number in range(50):
            fetching = fetcher(bench, pool)
            fetching.start()
            for _ in range(number % 10):
                await asyncio.sleep(0)
            fetching.wake()
            await fetching.stop()
        fetching = fetcher(bench, pool)
        fetching.start()
        await until(lambda: not bench.db.exists(keys.pending(QUEUE)))
        await fetching.stop()
        assert len(set(pool.ids)) == len(pool.ids)

    on_bench(db, url, test)


def test_the_error_of_an_outage_does_not_reach_the_actor(db: Redis, shared_server: RedisServer) -> None:
    with faulty_proxy(shared_server.socket_path) as proxy:

        async def test(bench: Bench) -> None:
            proxy.vanish()
            try:
                await fetcher(bench, Pool(bench)).tick()
            except BrokerConnectionError:
                pytest.fail("the pause of the actor would hold up the queues that are well")

        on_bench(db, shared_server.url, test, through=proxy.url)
