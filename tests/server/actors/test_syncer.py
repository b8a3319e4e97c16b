"""The syncer, joined to the acker for real: what Redis failed to take is written once it is back, and only once."""

import asyncio
import logging
import threading
from typing import Any

import pytest
from redis import Redis

from fastq.broker.scripts import SCRIPTS
from fastq.server.actors.acker import Acker
from fastq.server.actors.syncer import Syncer
from fastq.wire import keys
from tests.broker.harness import QUEUE
from tests.faulty_proxy import Act, faulty_proxy
from tests.redis_servers import RedisServer, redis_server
from tests.server.actors.fetching import Pool, fetcher
from tests.server.actors.test_acker import ENDS, WRITES, end_all
from tests.server.harness import Bench, ScriptFault, logged, no_news, on_bench
from tests.waiting import until

PROCESSED = {"done": 2, "complete": 2, "retry": 2, "archive": 2}


def load_all(db: Any) -> None:
    for name in SCRIPTS:
        db.script_load(SCRIPTS[name].text)


def joined(bench: Bench) -> tuple[Acker, Syncer]:
    syncer = Syncer(bench.writer, bench.in_flight)
    return Acker(bench.writer, bench.in_flight, lambda: True, no_news, syncer.wake_soon), syncer


def check_ended(bench: Bench, way: str) -> None:
    """See that two tasks ended as one try would have ended them, and that nothing of ours is left."""
    assert bench.queue.places() == ({ENDS[way]: bench.queue.places()[ENDS[way]]} if way in ENDS else {})
    assert sorted(bench.queue.states()) == (["a", "b"] if way in ENDS else [])
    assert bench.queue.counters().get("processed", 0) == PROCESSED.get(way, 0)
    assert bench.in_flight_ids() == []
    assert bench.ends.queues_in_doubt() == frozenset()


# Lost replies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REQUEST, Act.CUT_BEFORE_REPLY, Act.CUT_IN_REPLY])
@pytest.mark.parametrize("way", WRITES)
def test_a_write_whose_reply_was_lost_counts_once(
    way: str, act: Act, db: Redis, shared_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    load_all(db)
    with faulty_proxy(shared_server.socket_path, ScriptFault(way, act)) as proxy:

        async def test(bench: Bench) -> None:
            acker, syncer = joined(bench)
            acker.add(end_all(bench.hold("a", "b"), way))
            await acker.tick()
            assert sorted(task.id for task in bench.ends.waiting) == ["a", "b"]
            assert bench.in_flight_ids() == ["a", "b"]
            await syncer.tick()
            assert bench.ends.waiting == []
            check_ended(bench, way)
            await syncer.tick()
            check_ended(bench, way)

        on_bench(db, shared_server.url, test, through=proxy.url)
    (said,) = logged(caplog)
    assert said.startswith("cannot save the outcomes of 2 tasks yet")


@pytest.mark.parametrize("way", WRITES)
def test_a_write_that_is_carried_out_late_counts_once(way: str, db: Redis, shared_server: RedisServer) -> None:
    load_all(db)
    with faulty_proxy(shared_server.socket_path, ScriptFault(way, Act.HOLD)) as proxy:

        async def test(bench: Bench) -> None:
            acker, syncer = joined(bench)
            acker.add(end_all(bench.hold("a", "b"), way))
            await acker.tick()
            await syncer.tick()
            check_ended(bench, way)
            proxy.release()
            check_ended(bench, way)

        on_bench(db, shared_server.url, test, through=proxy.url)


@pytest.mark.parametrize("way", ["requeue", "retry", "done"])
def test_a_task_that_comes_back_is_not_ended_by_the_write_of_its_run_before(
    way: str, db: Redis, shared_server: RedisServer
) -> None:
    load_all(db)
    with faulty_proxy(shared_server.socket_path, ScriptFault(way, Act.CUT_BEFORE_REPLY)) as proxy:

        async def test(bench: Bench) -> None:
            acker, syncer = joined(bench)
            pool = Pool(bench)
            fetching = fetcher(bench, pool)
            acker.add(end_all(bench.hold("a"), way))
            await acker.tick()
            # It was carried out, and the task is there again: by a forwarder, or enqueued anew under the same id.
            if way != "requeue":
                bench.db.delete(keys.retry(QUEUE))
                bench.queue.pend("a")
            await fetching.tick()
            assert pool.ids == [], "its queue is left alone while the write is in doubt"
            await syncer.tick()
            await fetching.tick()
            assert pool.ids == ["a"]
            await syncer.tick()
            assert bench.queue.places() == {"active": ["a"], "lease": ["a"]}
            assert bench.in_flight_ids() == ["a"]

        on_bench(db, shared_server.url, test, through=proxy.url)


def test_a_fetch_and_an_ack_that_share_a_lost_pipeline_lose_no_task(db: Redis, shared_server: RedisServer) -> None:
    load_all(db)
    with faulty_proxy(shared_server.socket_path, ScriptFault("dequeue", Act.CUT_BEFORE_REPLY)) as proxy:

        async def test(bench: Bench) -> None:
            acker, syncer = joined(bench)
            pool = Pool(bench)
            fetching = fetcher(bench, pool)
            bench.queue.pend("c", "d")
            acker.add(end_all(bench.hold("a", "b"), "requeue"))
            await asyncio.gather(acker.tick(), fetching.tick())
            await syncer.tick()
            bench.clock.advance(1)
            await fetching.tick()
            await fetching.tick()
            bench.clock.advance(6)
            await fetching.tick()
            assert sorted(pool.ids) == ["a", "b", "c", "d"]
            assert bench.in_flight_ids() != []
            assert sorted(bench.queue.places()["active"]) == ["a", "b", "c", "d"]
            assert set(bench.queue.scores("lease")) == {"a", "b", "c", "d"}

        on_bench(db, shared_server.url, test, through=proxy.url)


# Outages ----------------------------------------------------------------------------------------------------------


def test_results_outlive_an_outage_of_redis(caplog: pytest.LogCaptureFixture) -> None:
    # asynq's syncer never succeeds: the tasks run again after their leases.
    async def test(bench: Bench) -> None:
        acker, syncer = joined(bench)
        tasks = {way: bench.hold(f"{way}-1", f"{way}-2") for way in WRITES}
        bench.db.config_set("maxclients", 1)
        await bench.broker.close()
        acker.add([one for way, both in tasks.items() for one in end_all(both, way)])
        await acker.tick()
        assert len(bench.ends.waiting) == 10
        for _ in range(3):
            bench.clock.advance(5)
            await syncer.tick()
        assert len(bench.ends.waiting) == 10
        bench.db.config_set("maxclients", 100)
        await syncer.tick()
        assert bench.ends.waiting == []
        assert bench.in_flight_ids() == []
        assert "active" not in bench.queue.places()
        assert bench.queue.counters()["processed"] == 8

    caplog.set_level(logging.INFO, "fastq")
    with redis_server() as server, server.client() as db:
        on_bench(db, server.url, test)
    said = logged(caplog, logging.INFO)
    assert len(said) == 2, "an outage is said once, and its end"
    assert said[1] == "all outcomes that waited for Redis are saved"


@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize("away_s", [59, 600])
def test_an_outage_longer_than_the_lease_does_not_make_a_task_run_again(
    away_s: int, way: str, db: Redis, url: str
) -> None:
    async def test(bench: Bench) -> None:
        _, syncer = joined(bench)
        bench.ends.add(end_all(bench.hold("a", "b"), way))
        bench.clock.advance(away_s)
        await syncer.tick()
        check_ended(bench, way)

    on_bench(db, url, test)


REFUSALS = {"a read-only replica": "REPLICAOF 127.0.0.1 1", "too few replicas": "CONFIG SET min-replicas-to-write 1"}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_results_are_kept_for_as_long_as_redis_takes_no_writes(refusal: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(bench: Bench) -> None:
        acker, syncer = joined(bench)
        tasks = {way: bench.hold(f"{way}-1", f"{way}-2") for way in WRITES}
        bench.db.execute_command(*REFUSALS[refusal].split())
        acker.add([one for way, both in tasks.items() for one in end_all(both, way)])
        await acker.tick()
        for _ in range(10):
            bench.clock.advance(60)
            await syncer.tick()
        assert len(bench.ends.waiting) == len(bench.tasks) == 10
        bench.db.config_set("min-replicas-to-write", 0)
        bench.db.execute_command("REPLICAOF", "NO", "ONE")
        await syncer.tick()
        assert (bench.ends.waiting, bench.in_flight_ids()) == ([], [])
        assert "active" not in bench.queue.places()
        assert bench.queue.counters()["processed"] == 8

    with redis_server() as server, server.client() as db:
        on_bench(db, server.url, test)
    (said,) = logged(caplog)
    assert said.startswith("cannot save the outcomes of 2 tasks yet")


def test_a_write_that_redis_refuses_for_good_ends_with_the_lease_and_is_said_once(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The heartbeater goes on extending the leases of what is held: without an end of its own it would stay so."""

    async def test(bench: Bench) -> None:
        acker, syncer = joined(bench)
        tasks = bench.hold(*(f"id-{number:02}" for number in range(12)))
        other = bench.hold("other")
        bench.db.set(keys.retry(QUEUE), "not a sorted set")
        acker.add([*end_all(tasks, "retry"), *end_all(other, "done")])
        await acker.tick()
        assert len(bench.ends.waiting) == 12
        for _ in range(3):
            bench.clock.advance(9.5)
            for task in tasks:
                task.leased_until_s = bench.clock.monotonic_s() + 30  # what the heartbeater does
            await syncer.tick()
            assert len(bench.ends.waiting) == len(bench.tasks) == 12
        bench.clock.advance(2)
        await syncer.tick()
        assert (bench.ends.waiting, len(bench.tasks)) == ([], 0)
        assert bench.ends.queues_in_doubt() == frozenset()
        await syncer.tick()
        ids = sorted(task.id for task in tasks)
        assert (sorted(bench.db.lrange(keys.active(QUEUE), 0, -1)), len(bench.queue.scores("lease"))) == (
            [task_id.encode() for task_id in ids],
            12,
        ), "where a recoverer finds them"

    caplog.set_level(logging.INFO, "fastq")
    on_bench(db, url, test)
    waiting, given_up = logged(caplog, logging.WARNING)
    assert waiting.startswith("cannot save the outcomes of 12 tasks yet: retry: Redis refused the operation: WRONGTYPE")
    assert given_up.startswith(
        "queue default: Redis refused to save the outcomes of 12 tasks until their leases expired: retry: "
    )
    ids = ", ".join(f"id-{number:02}" for number in range(10))
    assert given_up.endswith(f"; a recoverer will treat them as lost: {ids}, …")


def test_a_defect_in_a_write_does_not_hold_its_tasks_for_ever(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*given: object, **more: object) -> None:
        raise ZeroDivisionError("a defect")

    async def test(bench: Bench) -> None:
        acker, syncer = joined(bench)
        tasks = bench.hold("a", "b")
        with monkeypatch.context() as patch:
            patch.setattr("fastq.server.inflight.ack_writer.plan_acks", stumble)
            acker.add(end_all(tasks, "done"))
            with pytest.raises(ZeroDivisionError):
                await acker.tick()
            with pytest.raises(ZeroDivisionError):
                await syncer.tick()
        assert bench.in_flight_ids() == ["a", "b"]
        await syncer.tick()
        assert (bench.in_flight_ids(), bench.queue.places()) == ([], {})
        assert acker.tasks() == set(), "what the defect met is not under way any more"

    on_bench(db, url, test)


def test_a_task_that_was_taken_away_meanwhile_is_never_written(
    db: Redis, shared_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    load_all(db)
    faults = [ScriptFault(way, Act.CUT_BEFORE_REQUEST) for way in WRITES]
    with faulty_proxy(shared_server.socket_path, *faults) as proxy:

        async def test(bench: Bench) -> None:
            acker, syncer = joined(bench)
            for way in WRITES:
                acker.add(end_all(bench.hold(way), way))
                await acker.tick()
                bench.take_away(way)
            before = (bench.queue.places(), bench.queue.scores("lease"), bench.queue.states())
            await syncer.tick()
            assert (bench.queue.places(), bench.queue.scores("lease"), bench.queue.states()) == before
            assert bench.queue.counters() == {}
            assert bench.in_flight_ids() == []

        on_bench(db, shared_server.url, test, through=proxy.url)


def test_outcomes_are_not_said_to_be_saved_while_one_is_being_written_again(
    db: Redis, shared_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    load_all(db)
    again = threading.Event()
    late = ScriptFault("done", Act.DELAY, then=again.set)
    with faulty_proxy(shared_server.socket_path, ScriptFault("done", Act.CUT_BEFORE_REQUEST), late) as proxy:

        async def test(bench: Bench) -> None:
            acker, syncer = joined(bench)
            acker.add(end_all(bench.hold("a"), "done"))
            await acker.tick()
            writing = asyncio.create_task(syncer.tick())
            await until(again.is_set)
            acker.add(end_all(bench.hold("b"), "retry"))
            await acker.tick()
            assert "all outcomes that waited for Redis are saved" not in caplog.messages
            late.until.set()
            await writing
            assert caplog.messages.count("all outcomes that waited for Redis are saved") == 1

        on_bench(db, shared_server.url, test, through=proxy.url)


# Life -------------------------------------------------------------------------------------------------------------


def test_a_failed_write_wakes_it_after_a_while(
    db: Redis, shared_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.server.actors.syncer.INTERVAL_S", 0.01)
    load_all(db)
    with faulty_proxy(shared_server.socket_path, ScriptFault("done", Act.CUT_BEFORE_REQUEST, times=3)) as proxy:

        async def test(bench: Bench) -> None:
            acker, syncer = joined(bench)
            syncer.start()
            acker.add(end_all(bench.hold("a"), "done"))
            await acker.tick()
            await until(lambda: not len(bench.tasks))
            assert syncer.ticks == 3
            assert bench.queue.places() == {}
            await syncer.stop()

        on_bench(db, shared_server.url, test, through=proxy.url)


def test_it_writes_at_once_when_redis_is_known_to_be_back(
    db: Redis, shared_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.server.actors.syncer.INTERVAL_S", 3600.0)
    load_all(db)
    with faulty_proxy(shared_server.socket_path, ScriptFault("done", Act.CUT_BEFORE_REQUEST)) as proxy:

        async def test(bench: Bench) -> None:
            acker, syncer = joined(bench)
            syncer.start()
            acker.add(end_all(bench.hold("a", "b"), "done"))
            await acker.tick()
            assert len(bench.ends.waiting) == 2
            bench.stats.outage.try_again()
            await until(lambda: not len(bench.tasks))
            check_ended(bench, "done")
            await syncer.stop()

        on_bench(db, shared_server.url, test, through=proxy.url)


def test_it_is_let_finish_and_keeps_what_it_could_not_write(db: Redis, shared_server: RedisServer) -> None:
    with faulty_proxy(shared_server.socket_path) as proxy:

        async def test(bench: Bench) -> None:
            acker, syncer = joined(bench)
            proxy.vanish()
            acker.add(end_all(bench.hold("a", "b"), "done"))
            await acker.tick()
            syncer.start()
            syncer.wake()
            await asyncio.sleep(0)
            await syncer.finish(5)
            assert len(bench.ends.waiting) == 2

        on_bench(db, shared_server.url, test, through=proxy.url)


def test_it_starts_and_stops_again_and_again_and_forgets_nothing(db: Redis, shared_server: RedisServer) -> None:
    load_all(db)
    fault = ScriptFault("done", Act.CUT_BEFORE_REQUEST)
    with faulty_proxy(shared_server.socket_path, fault) as proxy:

        async def test(bench: Bench) -> None:
            acker, first = joined(bench)
            acker.add(end_all(bench.hold("a", "b"), "done"))
            await acker.tick()
            for number in range(50):
                syncer = Syncer(bench.writer, bench.in_flight)
                syncer.start()
                syncer.wake()
                for _ in range(number % 9):
                    await asyncio.sleep(0)
                await syncer.stop()
            await first.tick()
            assert bench.in_flight_ids() == []
            assert bench.queue.places() == {}
            assert bench.queue.counters()["processed"] == 2

        on_bench(db, shared_server.url, test, through=proxy.url)
