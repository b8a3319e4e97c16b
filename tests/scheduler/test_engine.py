"""What a scheduler enqueues and publishes, turn by turn."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from fastq import Inspector
from fastq.common.states import TaskState
from fastq.errors import DuplicateTaskError, TaskIDConflictError
from fastq.task import Task
from fastq.wire import keys
from fastq.wire.records import encode_scheduler_entry
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.redis_servers import RedisServer, redis_cluster
from tests.scheduler.harness import NOON, Bench, bench_on, history, listed, pending, tick_counts, unix

HOUR_S = 3600


@pytest.fixture
def bench(url: str) -> Iterator[Bench]:
    with bench_on(url) as (bench,):
        yield bench


def test_a_task_is_enqueued_when_its_spec_is_due_and_not_before(bench: Bench, db: Redis) -> None:
    bench.add("*/5 * * * *", Task("report", b"x", max_retry=3, headers={"a": "b"}), queue="low", retention=60)
    bench.turn(after=299.9)
    assert pending(db, "low") == []
    bench.turn(after=0.1)
    (message,) = pending(db, "low")
    assert (message.type, message.payload, message.retry, message.retention) == ("report", b"x", 3, 60)
    assert message.headers == {"a": "b"}
    bench.turn(after=10)
    assert len(pending(db, "low")) == 1
    bench.turn(after=290)
    assert len({message.id for message in pending(db, "low")}) == 2
    assert db.smembers(keys.all_queues()) == {b"low"}


def test_an_interval_first_fires_one_period_after_it_was_registered(bench: Bench, db: Redis) -> None:
    bench.clock.advance(0.75)
    entry = bench.add("@every 3s")
    assert entry.next == NOON + timedelta(seconds=3)
    bench.turn(after=2.24)
    assert pending(db) == []
    bench.turn(after=0.01)
    assert len(pending(db)) == 1
    assert entry.next == NOON + timedelta(seconds=6)


@pytest.mark.parametrize(
    ("how", "fires"),
    [
        ({}, False),
        ({"missed": "all"}, False),
        ({"name": "n"}, False),
        ({"name": "n", "missed": "once"}, True),
        ({"name": "n", "missed": "all"}, True),
    ],
)
@pytest.mark.parametrize("spec", ["* * * * *", "@every 60s"])
def test_ticks_between_registration_and_start_do_not_fire_unless_they_are_made_up(
    bench: Bench, db: Redis, spec: str, how: dict[str, Any], fires: bool
) -> None:
    bench.add(spec, **how)
    bench.clock.advance(70)
    bench.engine.begin()
    bench.turn()
    assert bool(pending(db)) is fires
    bench.turn(after=60)
    assert len(pending(db)) == 1 + fires


def test_the_pause_is_until_the_next_tick_or_beat_and_never_long(bench: Bench) -> None:
    assert bench.turn() == 1.0
    bench.add("* * * * *")
    bench.turn(after=59.75)
    assert bench.engine.turn() == 0.25
    bench.turn(after=0.25)
    assert bench.engine.turn() == 0.75  # to the beat after a tick
    bench.turn(after=0.75)
    bench.turn(after=9.625)
    assert bench.engine.turn() == 0.375  # to the next one


def test_each_kind_of_start_is_possible_for_a_tick(bench: Bench, db: Redis) -> None:
    for name in (None, "named"):
        db.flushall()
        tag = name or "plain"
        bench.add("* * * * *", task_id=f"{tag}1", name=name, queue="a")
        bench.add("* * * * *", task_id=f"{tag}2", name=name and "n2", queue="a", process_in=90)
        bench.add("* * * * *", task_id=f"{tag}3", name=name and "n3", queue="a", group="g")
        bench.add("* * * * *", task_id=f"{tag}4", name=name and "n4", queue="a", group="g", process_in=90)
        bench.add("* * * * *", "u", task_id=f"{tag}5", name=name and "n5", queue="a", unique=600)
        bench.turn(after=60)
        now_s = bench.clock.unix_ns() // 10**9
        for number, state in enumerate(("pending", "scheduled", "aggregating", "scheduled", "pending"), 1):
            task: Any = db.hgetall(keys.task("a", f"{tag}{number}"))
            assert task[b"state"].decode() == state
            assert (b"pending_since" in task) is (state == "pending")
            assert (task.get(b"group") == b"g") is (number in (3, 4))
            assert (b"unique_key" in task) is (number == 5)
        assert db.zscore(keys.scheduled("a"), f"{tag}2") == now_s + 90
        assert db.zscore(keys.group("a", "g"), f"{tag}3") == now_s
        assert db.smembers(keys.groups("a")) == {b"g"}
        assert db.get(keys.unique("a", "u", None)) == f"{tag}5".encode()
        assert 500 <= int(str(db.ttl(keys.unique("a", "u", None)))) <= 600
        for entry_id in [entry.id for entry in bench.engine._followed()]:
            bench.engine.remove(entry_id)


def test_the_hooks_hear_what_is_to_be_and_what_was_enqueued(url: str, db: Redis) -> None:
    before: list[tuple[Task, dict[str, Any]]] = []

    def pre_enqueue(task: Task, options: Any) -> None:
        assert pending(db) == []
        before.append((task, dict(options)))

    with bench_on(url, pre_enqueue=pre_enqueue) as (bench,):
        task = Task("t", b"x")
        bench.add("* * * * *", task, timeout=20)
        bench.turn(after=60)
        assert before == [(task, {"timeout": 20})]
        (info,) = bench.heard.infos
        assert (info.id, info.state, info.timeout) == (pending(db)[0].id, TaskState.PENDING, timedelta(seconds=20))
        assert info.next_process_at == NOON + timedelta(minutes=1)
        assert bench.heard.errors == []


def test_a_hook_may_return_another_task(url: str, db: Redis) -> None:
    made = {"a": Task("b", b"2", headers={"n": "1"}), "wrong": b"2"}

    def pre_enqueue(task: Task, options: Any) -> Any:
        return made.get(task.type)

    with bench_on(url, pre_enqueue=pre_enqueue) as (bench,):
        for type in ("a", "same", "wrong"):
            bench.add("* * * * *", type, queue="low")
        bench.turn(after=60)
        found = [(message.type, message.payload, dict(message.headers)) for message in pending(db, "low")]
        assert found == [("b", b"2", {"n": "1"}), ("same", b"", {})]
        (error,) = bench.heard.errors
        assert str(error) == "pre_enqueue must return a Task or None, not b'2'"


def test_refusals_are_heard_and_stop_neither_other_entries_nor_later_ticks(bench: Bench, db: Redis) -> None:
    bench.add("* * * * *", "a", unique=90)
    bench.add("* * * * *", "b", task_id="fixed")
    entry = bench.add("* * * * *", "c")
    bench.turn(after=60)
    assert len(bench.heard.infos) == 3
    bench.turn(after=60)
    assert [type(error) for error in bench.heard.errors] == [DuplicateTaskError, TaskIDConflictError]
    assert "scheduler entry" in bench.heard.errors[0].__notes__[0]
    assert [message.type for message in pending(db)] == ["a", "b", "c", "c"]
    assert tick_counts(db) == {
        **{"enqueued:a": 1, "enqueued:b": 1, "enqueued:c": 2},
        **{"duplicate:a": 1, "duplicate:b": 1},
    }
    assert 89 * 86_400 < int(str(db.ttl(keys.scheduler_ticks()))) <= 90 * 86_400
    assert entry.prev == NOON + timedelta(minutes=2)
    db.flushall()
    bench.turn(after=60)
    assert [message.type for message in pending(db)] == ["a", "b", "c"]


def test_what_a_hook_raises_stops_at_most_its_own_tick(url: str, db: Redis, caplog: pytest.LogCaptureFixture) -> None:
    def pre_enqueue(task: Task, options: Any) -> None:
        if task.type == "bad":
            raise KeyError("not today")

    errors: list[Exception | None] = []

    def post_enqueue(info: Any, error: Exception | None) -> None:
        errors.append(error)
        raise RuntimeError("the hook is broken, too")

    with bench_on(url, pre_enqueue=pre_enqueue, post_enqueue=post_enqueue) as (bench,):
        bench.add("* * * * *", "bad")
        bench.add("* * * * *", "good")
        for _ in range(2):
            bench.turn(after=60)
    assert [message.type for message in pending(db)] == ["good", "good"]
    assert tick_counts(db) == {"failed:bad": 2, "enqueued:good": 2}
    assert [type(error) for error in errors] == [KeyError, type(None), KeyError, type(None)]
    assert caplog.text.count("post_enqueue raised an exception; the scheduler continues") == 4


@pytest.mark.parametrize(("missed", "expected"), [("skip", 1), ("once", 1), ("all", 5)])
def test_a_scheduler_that_slept_enqueues_the_latest_tick_or_all(
    bench: Bench, db: Redis, missed: str, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    entry = bench.add("0 * * * *", missed=missed)
    bench.turn(after=5 * HOUR_S + 61)
    assert len(pending(db)) == expected
    assert len(bench.heard.infos) == expected
    assert caplog.text.count("were missed, and some of them are skipped") == (missed != "all")
    assert tick_counts(db) == {"enqueued:t": expected, **({} if missed == "all" else {"missed:t": 4})}
    assert entry.next == NOON + timedelta(hours=6)
    bench.turn(after=HOUR_S - 61)
    assert len(pending(db)) == expected + 1


def test_a_clock_that_is_set_back_repeats_no_tick(bench: Bench, db: Redis) -> None:
    bench.add("*/5 * * * *")
    bench.turn(after=300)
    bench.clock.jump(-299)
    bench.turn()
    bench.turn(after=298)
    assert len(pending(db)) == 1
    bench.turn(after=301)
    assert len(pending(db)) == 2


def test_a_clock_that_is_set_back_while_a_tick_fails_leaves_pauses(bench: Bench, db: Redis) -> None:
    # Seed 27 of the simulation: the scheduler turned again and again at once until the tick was due anew.
    bench.add("*/5 * * * *")
    db.set(keys.pending("default"), "no list")
    bench.turn(after=300)
    bench.clock.jump(-100)
    assert bench.turn(after=9) == 1.0
    db.delete(keys.pending("default"))
    bench.turn(after=91)
    assert len(pending(db)) == 1


def test_a_clock_that_was_wrong_by_hours_does_not_silence_an_entry(bench: Bench, db: Redis) -> None:
    entry = bench.add("*/5 * * * *")
    bench.turn(after=300)
    bench.clock.jump(-10 * HOUR_S)
    bench.turn()
    assert entry.next == NOON - timedelta(hours=10) + timedelta(minutes=10)
    bench.turn(after=300)
    assert len(pending(db)) == 2


def test_a_spec_that_is_never_due_costs_nothing(bench: Bench, db: Redis) -> None:
    entry = bench.add("0 0 30 2 *")
    assert entry.next is None
    bench.turn(after=10)
    assert [found.next_enqueue_time for found in listed(db)] == [None]
    assert bench.turn(after=400 * 86_400) == 1.0
    assert pending(db) == []


def test_a_removed_entry_fires_no_more(bench: Bench, db: Redis) -> None:
    entry = bench.add("* * * * *")
    bench.turn(after=60)
    assert bench.engine.remove(entry.id)
    assert not bench.engine.remove(entry.id)
    bench.turn(after=60)
    assert len(pending(db)) == 1
    assert listed(db) == []


def test_two_entries_of_one_scheduler_cannot_have_one_name(bench: Bench) -> None:
    entry = bench.add("* * * * *", name="daily")
    with pytest.raises(ValueError, match="name 'daily' is already taken by another entry"):
        bench.add("* * * * *", name="daily")
    bench.engine.remove(entry.id)
    bench.add("* * * * *", name="daily")


# What is published -------------------------------------------------------------------------------------------------


def test_entries_are_published_as_asynq_does(bench: Bench, db: Redis) -> None:
    options = {"queue": "low", "task_id": "sched-1", "timeout": 20, "unique": timedelta(hours=1)}
    bench.add("@every 1h", Task("report", b"\x00\x01\x02", max_retry=9), **options)
    bench.add("0 0 30 2 *", "never")
    entry = bench.add("*/5 * * * *", "soon")
    bench.turn()
    first = listed(db)
    assert [found.task_type for found in first] == ["never", "report", "soon"]  # LPUSH: the next one due is the last
    report = first[1]
    assert report.enqueue_options == ('Queue("low")', 'TaskID("sched-1")', "Timeout(20s)", "Unique(1h0m0s)")
    assert (report.spec, report.task_payload) == ("@every 1h", b"\x00\x01\x02")
    assert report.prev_enqueue_time is None
    assert report.next_enqueue_time == NOON + timedelta(hours=1)
    key = keys.scheduler_entries("host:1:0")
    assert db.zrange(keys.all_schedulers(), 0, -1, withscores=True) == [(key.encode(), unix(NOON) + 20.0)]
    assert 10 < int(str(db.ttl(key))) <= 20
    bench.turn(after=9.9)
    bench.turn(after=300)
    soon = listed(db)[-1]
    assert soon == entry.message()
    assert (soon.prev_enqueue_time, soon.next_enqueue_time) == (
        NOON + timedelta(minutes=5),
        NOON + timedelta(minutes=10),
    )


def test_ticks_that_an_outage_left_out_are_told_once(
    shared_server: RedisServer, db: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with faulty_proxy(shared_server.socket_path) as proxy, bench_on(proxy.url) as (bench,):
        bench.add("@every 1s", name="n", missed="once")
        bench.turn(after=1)
        proxy.faults.append(Fault("EVALSHA", Act.PASS, then=lambda: bench.clock.advance(5)))
        bench.turn(after=3)
        bench.turn()
        assert caplog.text.count("were missed, and some of them are skipped") == 1
        bench.turn(after=1)
        bench.turn(after=5)
        assert caplog.text.count("were missed, and some of them are skipped") == 2


def test_a_new_entry_is_published_at_the_next_turn(bench: Bench, db: Redis) -> None:
    bench.turn()
    assert listed(db) == []
    entry = bench.add("@daily")
    bench.turn()
    assert [found.id for found in listed(db)] == [entry.id]


def test_an_entry_that_comes_during_a_beat_is_published_at_the_next_turn(shared_server: RedisServer, db: Redis) -> None:
    with faulty_proxy(shared_server.socket_path) as proxy, bench_on(proxy.url) as (bench,):
        proxy.faults.append(Fault("ZADD", Act.PASS, then=lambda: bench.add("@daily", "late")))
        bench.turn()
        assert listed(db) == []
        bench.turn()
        assert [found.task_type for found in listed(db)] == ["late"]


def test_entries_are_published_every_heartbeat_only(bench: Bench, db: Redis) -> None:
    bench.add("@daily")
    bench.turn()
    db.delete(keys.all_schedulers())
    bench.turn(after=9.9)
    assert not db.exists(keys.all_schedulers())
    bench.turn(after=0.1)
    assert db.exists(keys.all_schedulers())


def test_what_a_tick_changes_is_published_within_a_second(bench: Bench, db: Redis) -> None:
    bench.add("@every 2s")
    bench.turn()
    for _ in range(3):
        bench.turn(after=2)
        (entry,) = listed(db)
        assert (entry.prev_enqueue_time, entry.next_enqueue_time) == (
            bench.engine.now(),
            bench.engine.now() + timedelta(seconds=2),
        )


def test_a_heartbeat_that_is_no_whole_second_lives_its_whole_time(url: str, db: Redis) -> None:
    """asynq's EXPIRE fails then, and the list stays for ever."""
    with bench_on(url, heartbeat_s=0.75) as (bench,):
        bench.add("@daily")
        bench.turn()
        left = int(str(db.ttl(keys.scheduler_entries("host:1:0"))))
        assert left <= 2
        assert left != -1


def test_the_history_tells_what_was_enqueued_when(bench: Bench, db: Redis) -> None:
    entry = bench.add("* * * * *")
    bench.turn(after=60.25)
    ((event, score),) = history(db, entry)
    assert event.task_id == pending(db)[0].id
    assert event.enqueue_time == NOON + timedelta(seconds=60.25)
    assert score == unix(NOON) + 60


def test_the_history_keeps_the_newest_thousand(bench: Bench, db: Redis) -> None:
    entry = bench.add("@every 1s", missed="all")
    for _ in range(2):
        bench.turn(after=600)
    found = history(db, entry)
    assert len(found) == 1000
    assert found[-1][1] == unix(NOON) + 1200
    assert db.ttl(keys.scheduler_history(entry.id)) == -1


def test_clearing_takes_back_what_was_published_and_no_task(bench: Bench, db: Redis) -> None:
    gone = bench.add("* * * * *")
    bench.add("* * * * *", name="n")
    bench.turn(after=60)
    bench.engine.remove(gone.id)
    bench.turn(after=60)
    bench.engine.clear()
    left: Callable[[str], Any] = db.keys
    assert left("asynq:scheduler*") == [keys.scheduler_ticks().encode()]
    assert tick_counts(db) == {"enqueued:t": 3}
    assert len(pending(db)) == 3


@pytest.mark.slow
def test_a_cluster_takes_ticks_entries_and_histories() -> None:
    with redis_cluster() as nodes, bench_on(f"redis-cluster://127.0.0.1:{nodes[0].port}") as (bench,):
        for queue in ("a", "b", "c", "d"):
            bench.add("* * * * *", queue=queue, name="n" + queue, missed="all")
            bench.add("* * * * *", queue=queue, group="g")
        bench.turn()
        bench.turn(after=60)
        bench.turn(after=10)
        assert bench.heard.errors == []
        assert len(bench.heard.infos) == 8

        def left(pattern: str) -> int:
            with ExitStack() as stack:
                clients = [stack.enter_context(node.client()) for node in nodes]
                return sum(1 for client in clients for _ in client.scan_iter(pattern, count=1000))

        assert left("asynq:{*}:t:*") == 8
        assert left("asynq:scheduler*") == 2 + 8 + 1
        assert left("asynq:{*}:tick:*") == 4
        bench.engine.clear()
        assert left("asynq:scheduler*") == 1  # the counters of ticks


def test_a_deleted_queue_takes_its_ticks_along(bench: Bench, db: Redis, url: str) -> None:
    bench.add("* * * * *", name="n", missed="once", queue="low")
    bench.turn(after=60)
    left: Callable[[str], Any] = db.keys
    assert left("*{low}:tick:*") != []
    with Inspector(url) as inspector:
        inspector.delete_queue("low", force=True)
    assert left("*{low}*") == []


def test_the_entries_are_told_at_the_start(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastq")
    for number in range(25):
        bench.add("* * * * *", "report", name=str(number))
    bench.engine.begin()
    lines = caplog.messages
    assert lines[0] == "entry '0' (* * * * *, report): next at 2026-03-02 12:01:00 UTC"
    assert len(lines) == 21
    assert lines[-1] == "5 more entries"


def test_entries_are_told_apart_in_the_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fastq")
    bench.add("* * * * *", "report", name="nightly")
    bench.turn(after=60)
    assert "entry 'nightly' (* * * * *, report): enqueued task " in caplog.text


def test_an_entry_s_message_can_be_encoded_at_the_ends_of_time(bench: Bench) -> None:
    entry = bench.add("@every 2562047h")
    assert entry.next == datetime(2318, 6, 12, 11, 0, tzinfo=UTC)
    assert encode_scheduler_entry(entry.message())
