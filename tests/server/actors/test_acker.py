"""The acker: ends are written together, each once, and what Redis failed to take is kept."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operation import Operation
from fastq.broker.operations.finish import Archived, Completed, Disposition, Done, Requeued, Retried
from fastq.server.actors.acker import FLUSH_AT, RESTED_S, Acker
from fastq.server.inflight.tasks import InFlightTask
from fastq.wire import keys
from tests.broker.harness import NOW_S, QUEUE, message
from tests.faulty_proxy import faulty_proxy
from tests.redis_servers import RedisServer
from tests.server.harness import Bench, logged, lose_replies, no_news, on_bench, under_way
from tests.waiting import until

WRITES: dict[str, Callable[[str], Disposition]] = {
    "done": Done,
    "complete": lambda task_id: Completed(task_id, message(task_id), NOW_S + 60, result=b"r"),
    "retry": lambda task_id: Retried(task_id, message(task_id), NOW_S + 60),
    "archive": lambda task_id: Archived(task_id, message(task_id)),
    "requeue": Requeued,
}
ENDS = {"complete": "completed", "retry": "retry", "archive": "archived", "requeue": "pending"}


def acker(bench: Bench, *, pool_is_dry: bool = True) -> Acker:
    return Acker(bench.writer, bench.in_flight, lambda: pool_is_dry, no_news, no_news)


def end(task: InFlightTask, way: str = "done") -> InFlightTask:
    task.disposition = WRITES[way](task.id)
    return task


def end_all(tasks: list[InFlightTask], way: str = "done") -> list[InFlightTask]:
    return [end(task, way) for task in tasks]


async def until_ticked(acking: Acker) -> None:
    await until(lambda: acking.ticks)


# When -------------------------------------------------------------------------------------------------------------


def is_woken(acking: Acker) -> bool:
    return acking._is_woken


def test_it_flushes_at_once_when_the_pool_is_dry(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench)
        acking.start()
        await asyncio.sleep(0)
        acking.add(end_all(bench.hold("a")))
        assert acking._timer is None
        await until_ticked(acking)
        assert bench.queue.places() == {}
        assert bench.in_flight_ids() == []
        await acking.stop()

    on_bench(db, url, test)


def test_it_flushes_soon_after_the_first_result(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench, pool_is_dry=False)
        acking.start()
        await asyncio.sleep(0)
        one, two = bench.hold("a", "b")
        acking.add([end(one)])
        timer = acking._timer
        assert timer is not None
        acking.add([end(two)])
        assert acking._timer is timer, "it is the first that counts"
        await until_ticked(acking)
        assert acking.ticks == 1
        assert bench.in_flight_ids() == []
        await acking.stop()

    on_bench(db, url, test)


def test_it_flushes_at_once_after_a_rest(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench, pool_is_dry=False)
        one, two, three = bench.hold("a", "b", "c")
        bench.clock.advance(RESTED_S)
        acking.add([end(one)])
        assert is_woken(acking)
        await acking.tick()
        acking._is_woken = False
        bench.clock.advance(RESTED_S / 2)
        acking.add([end(two)])
        assert not is_woken(acking)
        await acking.tick()
        bench.clock.advance(RESTED_S)
        acking.add([end(three)])
        assert is_woken(acking)
        await acking.tick()
        assert bench.in_flight_ids() == []

    on_bench(db, url, test)


def test_it_flushes_when_enough_results_wait(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench, pool_is_dry=False)
        tasks = bench.hold(*(str(number) for number in range(FLUSH_AT)))
        acking.add(end_all(tasks[:-1]))
        assert not is_woken(acking)
        acking.add(end_all(tasks[-1:]))
        assert is_woken(acking)
        await acking.tick()
        assert bench.queue.counters()["processed"] == FLUSH_AT
        await acking.tick()

    on_bench(db, url, test)


# What -------------------------------------------------------------------------------------------------------------


def test_results_of_all_kinds_and_queues_are_written_in_one_go(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench)
        tasks = {way: bench.hold(f"{way}-1", f"{way}-2") for way in WRITES}
        other = bench.add("other", queue="other")
        bench.db.lpush(keys.active("other"), "other")
        bench.db.hset(keys.task("other", "other"), "msg", b"")
        batch = [end(task, way) for way, both in tasks.items() for task in both]
        acking.add([*batch, end(other)])
        await acking.tick()
        for way, place in ENDS.items():
            assert sorted(bench.queue.places()[place]) == [f"{way}-1", f"{way}-2"]
        assert bench.queue.places().keys() == set(ENDS.values())
        assert bench.queue.counters()["processed"] == 8
        assert bench.queue.counters()["failed"] == 4
        assert bench.db.get(keys.processed_total("other")) == b"1"
        assert bench.in_flight_ids() == []
        assert bench.ends.waiting == []

    on_bench(db, url, test)


def test_tasks_given_back_keep_their_order(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        ids = [f"{number:04d}" for number in range(1200)]
        acking = acker(bench)
        acking.add(end_all(bench.hold(*ids), "requeue"))
        await acking.tick()
        assert bench.queue.places() == {"pending": ids[::-1]}

    on_bench(db, url, test)


def test_what_failed_is_never_written_to_a_task_that_is_not_ours(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench)
        tasks = {way: bench.hold(way) for way in ("retry", "archive", "requeue")}
        for way in tasks:
            bench.take_away(way)
        before = (bench.queue.places(), bench.queue.states(), bench.queue.counters())
        acking.add([end(task, way) for way, (task,) in tasks.items()])
        await acking.tick()
        assert (bench.queue.places(), bench.queue.states(), bench.queue.counters()) == before
        assert bench.in_flight_ids() == []

    on_bench(db, url, test)
    assert len(logged(caplog)) == 3
    expected = "task retry of queue default lost its lease before its outcome was saved (not_ours); it may run again"
    assert logged(caplog)[0] == expected


@pytest.mark.parametrize("way", [*ENDS, "done"])
def test_an_end_is_written_though_a_late_heartbeat_of_asynqs_has_wiped_our_mark(
    way: str, db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench)
        (task,) = bench.hold("a")
        bench.wipe_mark("a")
        bench.stall.doubt()
        acking.add([end(task, way)])
        await acking.tick()
        assert bench.queue.places().keys() == ({ENDS[way]} if way in ENDS else set())
        assert (bench.in_flight_ids(), bench.writer.tasks(), bench.stats.leases_lost) == ([], set(), 0)

    on_bench(db, url, test)
    assert logged(caplog) == []


def test_an_end_is_accounted_for_while_its_mark_is_restored(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench)
        (task,) = bench.hold("a")
        bench.wipe_mark("a")
        acking.add([end(task, "retry")])
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        run_many = bench.commands.run_many

        async def wait_to_restore(operations: Sequence[Operation[Any]]) -> list[Any]:
            if operations[0].name != "restore_owner":
                return await run_many(operations)
            asked.set_result(None)
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        bench.commands.run_many = wait_to_restore  # type: ignore[method-assign]  # Redis does not answer
        ticking = asyncio.create_task(acking.tick())
        await asked
        assert (bench.writer.tasks(), bench.ends.waiting) == ({task}, [])
        ticking.cancel()
        await asyncio.wait([ticking])
        assert (bench.writer.tasks(), bench.ends.waiting) == ({task}, [task])

    on_bench(db, url, test)


def test_an_end_waits_while_redis_does_not_say_whose_the_lease_is(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench)
        (task,) = bench.hold("a")
        bench.wipe_mark("a")
        acking.add([end(task, "retry")])
        lose_replies(bench.commands, "restore_owner")
        await acking.tick()
        assert (bench.in_flight_ids(), bench.ends.waiting) == (["a"], [task])

    on_bench(db, url, test)


def test_a_task_that_asynq_has_taken_from_us_is_left_to_it(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench)
        (task,) = bench.hold("a")
        bench.wipe_mark("a")
        bench.db.hset(keys.task(QUEUE, "a"), "msg", message("a", retried=1))
        acking.add([end(task, "retry")])
        await acking.tick()
        assert bench.queue.places() == {"active": ["a"], "lease": ["a"]}
        assert (bench.in_flight_ids(), bench.stats.leases_lost) == ([], 1)

    on_bench(db, url, test)


@pytest.mark.parametrize("way", ["done", "complete"])
def test_work_that_was_done_is_written_whoever_has_the_lease(way: str, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench)
        (task,) = bench.hold("a")
        bench.take_away("a")
        acking.add([end(task, way)])
        await acking.tick()
        assert "active" not in bench.queue.places()
        assert bench.queue.counters()["processed"] == 1

    on_bench(db, url, test)


@pytest.mark.parametrize("way", ["done", "complete"])
def test_after_a_stall_the_owner_is_checked_until_the_leases_are_confirmed(way: str, db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench)
        taken, ours, later = bench.hold("taken", "ours", "later")
        bench.take_away("taken")
        bench.take_away("later")
        bench.clock.advance(6)
        acking.add(end_all([taken, ours], way))
        await acking.tick()
        assert bench.queue.places()["active"] == ["later", "taken"]
        bench.stall.leases_confirmed(bench.clock.monotonic_s())
        acking.add([end(later, way)])
        await acking.tick()
        assert bench.queue.places()["active"] == ["taken"]

    on_bench(db, url, test)


def test_what_became_of_a_task_that_was_let_go_of_is_not_written(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench)
        (task,) = bench.hold("a")
        acking.add([end(task)])
        bench.tasks.drop(task)
        await acking.tick()
        assert bench.queue.places() == {"active": ["a"], "lease": ["a"]}

    on_bench(db, url, test)


def test_what_is_requeued_during_the_shutdown_waits_and_goes_in_the_order_in_which_it_was_fetched(
    db: Redis, url: str
) -> None:
    async def test(bench: Bench) -> None:
        woken: list[int] = []
        acking = Acker(bench.writer, bench.in_flight, lambda: True, lambda: woken.append(1), no_news)
        a, b, c, before = end_all(bench.hold("a", "b", "c", "before"), "requeue")
        acking.add([before])
        assert (acking._waiting, len(woken)) == ([before], 1)
        acking.keep_requeued()
        acking.add([c])
        acking.add([a, b])
        assert (acking._waiting, len(woken)) == ([before], 1)
        assert acking.tasks() == {a, b, c, before}, "the custodian must find them"
        await acking.tick()
        acking.release()
        await acking.tick()
        assert bench.queue.places() == {"pending": ["before", "c", "b", "a"]}, "the last one is the next to run"

    on_bench(db, url, test)


# Failures ---------------------------------------------------------------------------------------------------------


def test_results_are_kept_in_an_outage_which_is_said_once(
    db: Redis, shared_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with faulty_proxy(shared_server.socket_path) as proxy:

        async def test(bench: Bench) -> None:
            kept: list[int] = []
            acking = Acker(
                bench.writer, bench.in_flight, lambda: True, no_news, lambda: kept.append(len(bench.ends.waiting))
            )
            tasks = bench.hold("a", "b", "c")
            proxy.vanish()
            for task in tasks:
                acking.add([end(task)])
                await acking.tick()
            assert [task.id for task in bench.ends.waiting] == ["a", "b", "c"]
            assert kept == [1, 2, 3]
            assert bench.in_flight_ids() == ["a", "b", "c"], "they are still held, and their leases extended"
            assert bench.ends.queues_in_doubt() == frozenset(), "what was never sent is in no doubt"

        on_bench(db, shared_server.url, test, through=proxy.url)
    (said,) = logged(caplog)
    assert said.startswith("cannot save the outcomes of 1 tasks yet: done: cannot reach Redis")


def test_one_queue_that_refuses_its_results_does_not_hold_up_the_others(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench)
        odd = bench.add("odd", queue="odd")
        bench.db.set(keys.active("odd"), "not a list")
        (task,) = bench.hold("a")
        acking.add(end_all([odd, task]))
        await acking.tick()
        assert bench.queue.counters()["processed"] == 1
        assert [task.id for task in bench.ends.waiting] == ["odd"]

    on_bench(db, url, test)


def test_a_flush_that_is_cancelled_keeps_its_results_in_doubt(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        acking = acker(bench)
        (task,) = bench.hold("a")
        acking.add([end(task)])
        acking.start()
        acking.wake()
        while not under_way(bench.commands):
            await asyncio.sleep(0)
        await acking.stop()
        assert bench.ends.waiting == [task]
        assert bench.ends.is_in_doubt(task)
        assert bench.ends.queues_in_doubt() == {QUEUE}

    on_bench(db, url, test)


def test_it_starts_and_stops_again_and_again(db: Redis, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        tasks = bench.hold(*(str(number) for number in range(50)))
        for number, task in enumerate(tasks):
            acking = acker(bench, pool_is_dry=number % 2 == 0)
            acking.start()
            acking.add([end(task)])
            for _ in range(number % 8):
                await asyncio.sleep(0)
            await acking.stop()
            await acking.tick()
        left = bench.ends.waiting
        assert {task.id for task in left} == set(bench.in_flight_ids())
        assert bench.queue.places().get("active", []) == [] or left

    caplog.set_level(logging.INFO, "fastq")
    on_bench(db, url, test)
