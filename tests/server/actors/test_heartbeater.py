"""The heartbeater: what is held stays leased, what was lost is let go of, and the server is seen."""

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.presence import ServerIdentity, ServerState
from fastq.broker.scripts import SCRIPTS
from fastq.errors import BrokerError
from fastq.server.actors.heartbeater import Heartbeater
from fastq.server.inflight.tasks import InFlightTask
from fastq.wire import keys
from fastq.wire.marks import Mark
from tests.broker.harness import GOS, NOW_S, OURS, QUEUE, THEIRS, message
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.redis_servers import RedisServer
from tests.server.actors.test_acker import acker, end
from tests.server.harness import Bench, ScriptFault, logged, lose_replies, on_bench

ME = ServerIdentity("host", 7, "id")


def heartbeater(
    bench: Bench,
    lost: Callable[[InFlightTask], None] | None = None,
    presence: Callable[[], ServerState] = lambda: ServerState(b"info", {}, b"notice"),
) -> Heartbeater:
    return Heartbeater(bench.broker, ME, presence, bench.in_flight, lost or bench.tasks.drop)


def test_a_beat_extends_every_held_lease_and_no_other(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.hold("a", "b")
        bench.queue.activate("not-held")
        bench.queue.activate("theirs", owner=THEIRS)
        bench.queue.activate("gos", owner=GOS)
        before = bench.queue.scores("lease")
        bench.clock.advance(5)
        assert await heartbeater(bench).tick() == 5.0
        extended = NOW_S + 35 + OURS.fraction
        assert bench.queue.scores("lease") == before | {"a": extended, "b": extended}

    on_bench(db, url, test)


def test_a_beat_prolongs_the_time_for_which_a_lease_is_surely_ours(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        (task,) = bench.hold("a")
        bench.clock.advance(5)
        assert task.leased_until_s == 30
        await heartbeater(bench).tick()
        assert task.leased_until_s == 35

    on_bench(db, url, test)


@pytest.mark.parametrize("jump_s", [60, 3600, -3600])
def test_after_a_jump_of_the_wall_clock_what_is_another_s_is_let_go_of_and_not_written(
    jump_s: int, db: Redis, url: str
) -> None:
    """A suspended machine wakes so: its monotonic clock stood still, and its leases have passed to others."""

    async def test(bench: Bench) -> None:
        taken, ours = bench.hold("taken", "ours")
        bench.take_away("taken")
        before = bench.queue.task("taken")
        bench.clock.jump(jump_s)
        beating = heartbeater(bench)
        acking = acker(bench)
        if jump_s > 0:
            # The outcome that comes before the first beat.
            acking.add([end(taken)])
            await acking.tick()
            assert bench.queue.task("taken") == before
        await beating.tick()
        assert bench.in_flight_ids() == ["ours"]
        assert bench.queue.scores("lease")["ours"] == NOW_S + jump_s + 30 + OURS.fraction
        acking.add([end(taken), end(ours)])
        await acking.tick()
        assert bench.queue.places() == {"active": ["taken"], "lease": ["taken"]}
        assert bench.queue.task("taken") == before

    on_bench(db, url, test)


def test_leases_of_all_queues_are_extended_in_stretches(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        ids = [f"{number:04d}" for number in range(1201)]
        bench.hold(*ids)
        for queue in ("q1", "q2"):
            bench.add("same-id", queue=queue)
            bench.db.zadd(keys.lease(queue), {"same-id": NOW_S + OURS.fraction})
        bench.clock.advance(5)
        await heartbeater(bench).tick()
        assert set(bench.queue.scores("lease").values()) == {NOW_S + 35 + OURS.fraction}
        for queue in ("q1", "q2"):
            assert bench.db.zscore(keys.lease(queue), "same-id") == NOW_S + 35 + OURS.fraction

    on_bench(db, url, test)


@pytest.mark.parametrize("how", ["theirs", "Go's", "gone"])
def test_a_lost_task_is_let_go_of_and_the_others_are_kept(
    how: str, db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(bench: Bench) -> None:
        lost: list[InFlightTask] = []
        _, taken, _ = bench.hold("a", "taken", "b")
        scores = {"theirs": NOW_S + THEIRS.fraction, "Go's": float(NOW_S)}
        bench.db.zrem(keys.lease(QUEUE), "taken")
        if how in scores:
            bench.db.zadd(keys.lease(QUEUE), {"taken": scores[how]})
            bench.db.hset(keys.task(QUEUE, "taken"), "msg", message("taken", retried=1))
        await heartbeater(bench, lost.append).tick()
        assert lost == [taken]
        assert bench.queue.scores("lease").get("taken") == scores.get(how)

    on_bench(db, url, test)
    assert logged(caplog) == ["lost the lease of task taken of queue default; canceling it here"]


def test_a_lease_whose_mark_a_late_heartbeat_of_asynqs_has_wiped_is_ours_again(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        lost: list[InFlightTask] = []
        (task,) = bench.hold("a")
        bench.clock.advance(5)
        bench.wipe_mark("a")
        await heartbeater(bench, lost.append).tick()
        assert (lost, task.leased_until_s) == ([], 35)
        assert bench.queue.scores("lease") == {"a": NOW_S + 35 + OURS.fraction}

    on_bench(db, url, test)


@pytest.mark.parametrize("how", ["the lease has ended", "the machine was suspended", "a task by key"])
def test_a_lease_without_mark_is_asynqs_where_the_task_may_have_been_enqueued_again(
    how: str, db: Redis, url: str
) -> None:
    async def test(bench: Bench) -> None:
        lost: list[InFlightTask] = []
        (task,) = bench.hold("a")
        if how == "the lease has ended":
            bench.clock.advance(30)
        elif how == "the machine was suspended":
            bench.clock.jump(600)
        else:
            task.marks = Mark.KEYED
        bench.wipe_mark("a")
        await heartbeater(bench, lost.append).tick()
        assert lost == [task]

    on_bench(db, url, test)


def test_while_redis_does_not_say_whose_a_lease_is_its_task_is_kept(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        lost: list[InFlightTask] = []
        task, ours = bench.hold("a", "ours")
        bench.clock.advance(5)
        bench.wipe_mark("a")
        lose_replies(bench.broker, "restore_owner")
        with pytest.raises(BrokerError, match="no reply"):
            await heartbeater(bench, lost.append).tick()
        assert (lost, task.leased_until_s, ours.leased_until_s, task.in_flight) == ([], 30, 35, True)

    on_bench(db, url, test)


def test_nothing_is_restored_for_a_task_that_has_ended(db: Redis, url: str) -> None:
    """Its end does so, if it needs to."""

    async def test(bench: Bench) -> None:
        (task,) = bench.hold("a")
        end(task)
        bench.wipe_mark("a")
        before = bench.queue.scores("lease")
        await heartbeater(bench).tick()
        assert bench.queue.scores("lease") == before

    on_bench(db, url, test)


def test_a_task_that_ended_meanwhile_is_not_taken_for_lost(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        lost: list[InFlightTask] = []
        (task,) = bench.hold("a")
        end(task)
        bench.db.zrem(keys.lease(QUEUE), "a")
        await heartbeater(bench, lost.append).tick()
        assert lost == []

    on_bench(db, url, test)


def test_each_beat_counts_the_servers_that_there_are(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        beating = heartbeater(bench)
        await beating.tick()
        assert beating.servers == 1
        bench.db.zadd("asynq:servers", {"another": NOW_S + 3, "one that is gone": NOW_S - 1})
        await beating.tick()
        assert beating.servers == 2

    on_bench(db, url, test)


def test_a_beat_is_whole_where_the_servers_may_not_be_counted(db: Redis, shared_server: RedisServer) -> None:
    refusal = b"-NOPERM this user has no permissions to run the 'zcount' command\r\n"
    with faulty_proxy(shared_server.socket_path, Fault("ZCOUNT", Act.ANSWER, answer=refusal)) as proxy:

        async def test(bench: Bench) -> None:
            beating = heartbeater(bench)
            assert await beating.tick() == 5.0
            assert beating.servers == 1
            bench.db.zadd("asynq:servers", {"another": NOW_S + 3})
            await beating.tick()
            assert beating.servers == 2

        on_bench(db, shared_server.url, test, through=proxy.url)


def test_each_beat_shows_what_the_server_is_and_runs(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        workers = {"a": b"worker"}
        beating = heartbeater(bench, presence=lambda: ServerState(b"info", workers, b"notice"))
        await beating.tick()
        assert (bench.db.get(ME.info_key), bench.db.get(ME.notice_key)) == (b"info", b"notice")
        assert bench.db.hgetall(ME.workers_key) == {b"a": b"worker"}
        assert bench.db.zscore("asynq:servers", ME.info_key) == NOW_S + 10
        assert bench.db.zscore("asynq:workers", ME.workers_key) == NOW_S + 10
        workers.clear()
        bench.clock.advance(5)
        await beating.tick()
        assert not bench.db.exists(ME.workers_key)
        assert bench.db.zscore("asynq:servers", ME.info_key) == NOW_S + 15

    on_bench(db, url, test)


def test_leases_are_extended_although_the_server_cannot_describe_itself(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        def fail() -> ServerState:
            raise ValueError("a defect")

        bench.hold("a")
        bench.clock.advance(5)
        with pytest.raises(ValueError, match="a defect"):
            await heartbeater(bench, presence=fail).tick()
        assert bench.queue.scores("lease") == {"a": NOW_S + 35 + OURS.fraction}

    on_bench(db, url, test)


def test_one_queue_that_fails_does_not_keep_the_others_from_being_extended(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.add("odd", queue="odd")
        bench.db.set(keys.lease("odd"), "not a set")
        (task,) = bench.hold("a")
        bench.clock.advance(5)
        with pytest.raises(BrokerError, match="extend_leases"):
            await heartbeater(bench).tick()
        assert bench.queue.scores("lease") == {"a": NOW_S + 35 + OURS.fraction}
        assert task.leased_until_s == 35
        assert bench.db.get(ME.info_key) == b"info"
        assert bench.in_flight_ids() == ["odd", "a"], "what could not be asked for is not lost"

    on_bench(db, url, test)


def test_a_stall_is_over_once_all_leases_were_found_ours(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        bench.hold("a")
        bench.clock.advance(6)
        assert bench.stall.suspect
        bench.db.set(keys.lease("odd"), "not a set")
        odd = bench.add("odd", queue="odd")
        with pytest.raises(BrokerError):
            await heartbeater(bench).tick()
        assert bench.stall.suspect, "one queue's leases are not known"
        bench.tasks.drop(odd)
        await heartbeater(bench).tick()
        assert not bench.stall.suspect

    on_bench(db, url, test)


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REPLY, Act.CUT_BEFORE_REQUEST, Act.CUT_IN_REPLY])
def test_a_lost_reply_is_asked_for_again_at_once(act: Act, db: Redis, shared_server: RedisServer) -> None:
    load_all(db)
    with faulty_proxy(shared_server.socket_path, Fault("EVALSHA", act)) as proxy:

        async def test(bench: Bench) -> None:
            (kept, _) = bench.hold("a", "taken")
            bench.take_away("taken")
            bench.clock.advance(5)
            await heartbeater(bench).tick()
            assert bench.queue.scores("lease") == {
                "a": NOW_S + 35 + OURS.fraction,
                "taken": NOW_S + 60 + THEIRS.fraction,
            }
            assert bench.in_flight_ids() == ["a"]
            assert kept.leased_until_s == 35

        on_bench(db, shared_server.url, test, through=proxy.url)


def load_all(db: Any) -> None:
    for name in ("extend_leases", "write_server_state"):
        db.script_load(SCRIPTS[name].text)


def test_an_outage_costs_no_lease_that_is_ours_afterwards(db: Redis, shared_server: RedisServer) -> None:
    with faulty_proxy(shared_server.socket_path, Fault("EVALSHA", Act.CUT_BEFORE_REQUEST, times=4)) as proxy:
        load_all(db)

        async def test(bench: Bench) -> None:
            (task,) = bench.hold("a")
            beating = heartbeater(bench)
            bench.clock.advance(5)
            with pytest.raises(BrokerError):
                await beating.tick()
            assert task.in_flight
            assert task.leased_until_s == 30
            bench.clock.advance(50)
            await beating.tick()
            assert task.in_flight
            assert bench.queue.scores("lease") == {"a": NOW_S + 85 + OURS.fraction}

        on_bench(db, shared_server.url, test, through=proxy.url)


@pytest.mark.parametrize("way", ["done", "retry"])
def test_an_outcome_whose_write_had_no_reply_is_known_to_be_written_once_the_lease_is_gone(
    way: str, db: Redis, shared_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a result that the link is too slow for would be sent again for ever."""
    db.script_load(SCRIPTS[way].text)
    with faulty_proxy(shared_server.socket_path, ScriptFault(way, Act.CUT_BEFORE_REPLY)) as proxy:

        async def test(bench: Bench) -> None:
            acking = acker(bench)
            (task,) = bench.hold("a")
            acking.add([end(task, way)])
            await acking.tick()
            assert (bench.in_flight_ids(), bench.ends.queues_in_doubt()) == (["a"], frozenset({QUEUE}))
            await heartbeater(bench).tick()
            assert (bench.in_flight_ids(), bench.ends.queues_in_doubt()) == ([], frozenset())

        on_bench(db, shared_server.url, test, through=proxy.url)
    (said,) = logged(caplog)
    assert said.startswith("cannot save the outcomes of 1 tasks yet")


def test_an_outcome_whose_write_is_in_doubt_is_kept_while_the_lease_is_ours(
    db: Redis, shared_server: RedisServer
) -> None:
    db.script_load(SCRIPTS["done"].text)
    with faulty_proxy(shared_server.socket_path, ScriptFault("done", Act.CUT_BEFORE_REQUEST)) as proxy:

        async def test(bench: Bench) -> None:
            acking = acker(bench)
            (task,) = bench.hold("a")
            acking.add([end(task, "done")])
            await acking.tick()
            await heartbeater(bench).tick()
            assert (bench.in_flight_ids(), len(bench.ends.waiting)) == (["a"], 1)

        on_bench(db, shared_server.url, test, through=proxy.url)
