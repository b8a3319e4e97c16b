"""Several schedulers with the same named entries: each tick's task is enqueued once, whatever is lost on the way."""

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from fastq.broker.scripts import SCRIPTS
from fastq.cron import parse
from fastq.errors import BrokerConnectionError, BrokerError
from fastq.scheduler.entry import Entry, check_registration
from fastq.wire import keys
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.redis_servers import RedisServer
from tests.scheduler.harness import NOON, bench_on, history, listed, pending, tick_counts, unix

HOUR_S = 3600


def test_each_tick_of_a_named_entry_is_enqueued_once_among_schedulers(url: str, db: Redis) -> None:
    with bench_on(url, count=3) as benches:
        entries = [bench.add("* * * * *", name="nightly") for bench in benches]
        for minute in range(4):
            benches[0].clock.advance(60)
            for bench in sorted(benches, key=lambda _: random.random()):
                bench.engine.turn()
            assert len(pending(db)) == minute + 1
        enqueued = [info.id for bench in benches for info in bench.heard.infos]
        assert sorted(enqueued) == sorted(message.id for message in pending(db))
        recorded = [event.task_id for entry in entries for event, _ in history(db, entry)]
        assert sorted(recorded) == sorted(enqueued)
        assert [bench.heard.errors for bench in benches] == [[], [], []]
        for entry in entries:
            assert entry.prev == NOON + timedelta(minutes=4)


def test_entries_without_a_name_are_each_scheduler_s_own_as_in_asynq(url: str, db: Redis) -> None:
    with bench_on(url, count=2) as benches:
        for bench in benches:
            bench.add("* * * * *")
        benches[0].clock.advance(60)
        for bench in benches:
            bench.engine.turn()
    assert len(pending(db)) == 2
    left: Any = db.keys("*:tick:*")
    assert left == []
    assert tick_counts(db) == {"enqueued:t": 2}


def test_ticks_that_several_schedulers_slept_through_are_counted_by_the_one_that_goes_on(url: str, db: Redis) -> None:
    with bench_on(url, count=2) as benches:
        for bench in benches:
            bench.add("* * * * *", name="n")
            bench.turn()
        benches[0].clock.advance(300)
        for bench in benches:
            bench.engine.turn()
    assert tick_counts(db) == {"enqueued:t": 1, "missed:t": 4}


def test_other_names_and_other_queues_are_other_ticks(url: str, db: Redis) -> None:
    with bench_on(url, count=2) as (one, two):
        one.add("* * * * *", name="a")
        two.add("* * * * *", name="b")
        two.add("* * * * *", name="c", queue="low")
        one.add("* * * * *", name="c")
        one.turn(after=60)
        two.turn()
    assert len(pending(db)) == 3
    assert len(pending(db, "low")) == 1


def test_intervals_of_named_entries_fall_together_whenever_their_schedulers_began(url: str, db: Redis) -> None:
    with bench_on(url, count=2) as (one, two):
        one.add("@every 20s", name="n")
        one.clock.advance(7.5)
        two.add("@every 20s", name="n")
        for _ in range(20):
            one.turn(after=5)
            two.turn()
        assert len(pending(db)) == 5
        assert {len(bench.heard.errors) for bench in (one, two)} == {0}


def test_a_scheduler_whose_clock_is_behind_enqueues_no_tick_again(url: str, db: Redis) -> None:
    with bench_on(url) as (ahead,), bench_on(url, now=NOON - timedelta(seconds=40)) as (behind,):
        ahead.add("0 * * * *", name="n")
        behind.add("0 * * * *", name="n")
        ahead.turn(after=HOUR_S)
        behind.turn(after=HOUR_S + 40)
        assert len(pending(db)) == 1
        assert behind.heard.infos == []


def test_a_killed_scheduler_s_tick_is_another_s(url: str, db: Redis) -> None:
    """It enqueued the task and died before it could say so, or died before: nothing tells the two apart."""
    with bench_on(url, count=2) as (killed, other):
        for bench in (killed, other):
            bench.add("* * * * *", name="n")
        killed.turn(after=60)
        other.turn()
        other.turn(after=60)
        assert len(pending(db)) == 2
        assert len(other.heard.infos) == 1


@pytest.mark.parametrize(("missed", "expected"), [("skip", 1), ("once", 2), ("all", 4)])
def test_ticks_missed_while_no_scheduler_ran_follow_the_policy(url: str, db: Redis, missed: str, expected: int) -> None:
    with bench_on(url) as (before,):
        before.add("0 * * * *", name="n", missed=missed)
        before.turn(after=HOUR_S)
        before.engine.clear()
    with bench_on(url, count=2, now=NOON + timedelta(hours=4, minutes=5)) as benches:
        for bench in benches:
            bench.add("0 * * * *", name="n", missed=missed)
            bench.engine.turn()
        assert len(pending(db)) == expected


def test_no_ticks_are_made_up_for_another_zone(url: str, db: Redis) -> None:
    with bench_on(url) as (first,):
        first.add("0 * * * *", name="n", missed="all")
        first.turn(after=HOUR_S)
    with bench_on(url, now=NOON + timedelta(hours=4, minutes=5)) as (second,):
        entry = Entry(check_registration(parse("0 * * * *", "Asia/Tokyo"), "t", {}, "n", "all"), second.engine.now())
        second.engine.add(entry)
        second.turn()
    assert len(pending(db)) == 1


def test_no_ticks_are_made_up_by_another_spec_or_without_any_before(url: str, db: Redis) -> None:
    with bench_on(url) as (first,):
        first.add("0 * * * *", name="n", missed="all")
        first.turn(after=60)
        assert pending(db) == []
        first.turn(after=HOUR_S - 60)
    with bench_on(url, now=NOON + timedelta(hours=4, minutes=5)) as (second,):
        second.add("*/10 * * * *", name="n", missed="all")
        second.turn()
        assert len(pending(db)) == 1
        second.turn(after=300)
        assert len(pending(db)) == 2


@pytest.mark.parametrize("began_without_redis", [False, True])
def test_one_that_was_suspended_does_not_repeat_ticks_that_redis_has_forgotten(
    url: str, db: Redis, began_without_redis: bool
) -> None:
    begin, spec = NOON.replace(hour=8, minute=59), "* 9 * * *"
    with bench_on(url, now=begin) as (awake,), bench_on(url, now=begin) as (suspended,):
        entries = [bench.add(spec, name="n", missed="all") for bench in (awake, suspended)]
        awake.turn()
        if not began_without_redis:
            suspended.turn()
        for _ in range(61):
            awake.turn(after=60)
        assert len(pending(db)) == 60
        gone_s = 19 * HOUR_S
        for key in db.scan_iter("asynq:{default}:tick:*"):
            if int(str(db.ttl(key))) < gone_s - 2 * HOUR_S:
                db.delete(key)
        suspended.turn(after=gone_s)
        assert len(pending(db)) == 60
        assert suspended.heard.infos == []
        suspended.turn(after=5 * HOUR_S + 60)
        assert len(pending(db)) == 61
        assert entries[1].prev == begin + timedelta(days=1, minutes=1)


def test_one_that_was_suspended_makes_up_what_nobody_did_meanwhile(url: str, db: Redis) -> None:
    with bench_on(url, count=2) as (ended, suspended):
        for bench in (ended, suspended):
            bench.add("*/10 * * * *", name="n", missed="all")
            bench.turn()
        for _ in range(6):
            ended.turn(after=600)
        suspended.turn(after=HOUR_S)
        assert len(pending(db)) == 12


def test_a_late_scheduler_without_redis_does_not_take_its_ticks_for_done(shared_server: RedisServer, db: Redis) -> None:
    with faulty_proxy(shared_server.socket_path) as proxy, bench_on(proxy.url) as (bench,):
        bench.add("*/10 * * * *", name="n", missed="all")
        bench.turn()
        for command in ("GET", "EVALSHA", "ZADD", "EVAL"):
            proxy.faults.append(Fault(command, Act.CUT_BEFORE_REQUEST, times=None))
        bench.turn(after=HOUR_S)
        bench.turn(after=5)
        assert pending(db) == []
        proxy.faults.clear()
        bench.turn(after=5)
        assert len(pending(db)) == 6


# Lost replies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REQUEST, Act.CUT_BEFORE_REPLY, Act.CUT_IN_REPLY])
@pytest.mark.parametrize("name", [None, "n"])
@pytest.mark.parametrize("times", [1, 6])
def test_a_lost_reply_neither_drops_a_tick_nor_doubles_it(
    shared_server: RedisServer, db: Redis, act: Act, name: str | None, times: int
) -> None:
    for script in ("enqueue", "enqueue_tick", "write_scheduler_entries"):
        db.script_load(SCRIPTS[script].text)
    with faulty_proxy(shared_server.socket_path) as proxy, bench_on(proxy.url) as (bench,):
        bench.add("* * * * *", name=name)
        bench.turn()
        proxy.faults.append(Fault("EVALSHA", act, times=times))
        bench.turn(after=60)
        while not bench.heard.infos:
            bench.turn(after=5)
        (message,) = pending(db)
        assert [info.id for info in bench.heard.infos] == [message.id]
        assert len(bench.heard.errors) <= 1
        bench.turn(after=60)
        assert len(pending(db)) == 2


def test_a_task_that_ran_before_its_lost_reply_was_settled_is_not_enqueued_again(
    shared_server: RedisServer, db: Redis
) -> None:
    """Of a named entry: the tick is remembered, where the task is gone."""

    def work_off() -> None:
        for message in pending(db):
            db.delete(keys.task("default", message.id))
        db.delete(keys.pending("default"))
        worked_off.append(True)

    worked_off: list[bool] = []
    db.script_load(SCRIPTS["enqueue_tick"].text)
    with faulty_proxy(shared_server.socket_path) as proxy, bench_on(proxy.url) as (bench,):
        bench.add("* * * * *", name="n")
        bench.turn()
        proxy.faults.append(Fault("EVALSHA", Act.CUT_BEFORE_REPLY, then=work_off))
        bench.turn(after=60)
        assert worked_off == [True]
        assert pending(db) == []
        assert len(bench.heard.infos) == 1


# An outage ---------------------------------------------------------------------------------------------------------


def test_an_outage_is_said_once_and_its_ticks_follow(
    shared_server: RedisServer, db: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fastq")
    way = shared_server.directory / "way"
    way.symlink_to(shared_server.socket_path)
    announced: list[str] = []
    with bench_on(f"unix://{way}", pre_enqueue=lambda task, _: announced.append(task.type)) as (bench,):
        bench.add("* * * * *", "skip")
        bench.add("* * * * *", "once", missed="once")
        bench.add("* * * * *", "all", missed="all")
        bench.add("* * * * *", "named", missed="all", name="n")
        bench.add("3 12 * * *", "late", missed="skip")
        bench.turn()
        way.unlink()
        db.client_kill_filter(_type="normal", skipme=True)
        for _ in range(6):
            assert bench.turn(after=50) <= 5
        assert {type(error) for error in bench.heard.errors} == {BrokerConnectionError}
        assert len(bench.heard.errors) == 5 + 5 + 1 + 1 + 1  # a tick each, or the one that holds up the others
        way.symlink_to(shared_server.socket_path)
        bench.turn(after=15)
    way.unlink()
    assert Counter(announced) == {"skip": 5, "once": 5, "all": 5, "named": 5, "late": 1}  # once a tick, if tried often
    counts = Counter(message.type for message in pending(db))
    assert counts == {"skip": 1, "once": 1, "all": 5, "named": 5}
    assert tick_counts(db) == {
        **{f"enqueued:{kind}": count for kind, count in counts.items()},
        **{"missed:skip": 4, "missed:once": 4, "missed:late": 1},
    }
    assert caplog.text.count("trying again until it works") == 1
    assert caplog.text.count("Redis operations succeed again") == 1
    assert caplog.text.count("late): ticks up to 2026-03-02 12:03:00+00:00 were missed") == 1


def test_a_skipped_tick_is_tried_for_a_minute_after_its_first_failure(
    shared_server: RedisServer, db: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """How late the first try is does not count: a suspended machine has not tried yet."""
    with faulty_proxy(shared_server.socket_path) as proxy, bench_on(proxy.url) as (bench,):
        bench.add("0 13 * * *", "answered")
        bench.turn()
        proxy.faults += [Fault(name, Act.CUT_BEFORE_REQUEST, times=None) for name in ("EVALSHA", "EVAL", "SADD")]
        bench.turn(after=HOUR_S + 300)
        bench.turn(after=59)
        proxy.faults.clear()
        bench.turn(after=1)
        assert [message.type for message in pending(db)] == ["answered"]
        bench.add("0 14 * * *", "left out")
        proxy.faults += [Fault(name, Act.CUT_BEFORE_REQUEST, times=None) for name in ("EVALSHA", "EVAL", "SADD")]
        bench.turn(after=HOUR_S)
        proxy.faults.clear()
        bench.turn(after=61)
        assert [message.type for message in pending(db)] == ["answered"]
        assert "left out): ticks up to 2026-03-02 14:00:00+00:00 were missed" in caplog.text


def test_an_entry_that_redis_refuses_stops_no_other(url: str, db: Redis) -> None:
    in_the_way = keys.tick("default", "broken", unix(NOON) + 60)
    db.lpush(in_the_way, "no string")
    with bench_on(url) as (bench,):
        broken = bench.add("0-1 * * * *", "broken", name="broken", missed="once")
        bench.add("* * * * *", "n", name="n")
        bench.turn(after=60)
        assert [type(error) for error in bench.heard.errors] == [BrokerError]
        assert [message.type for message in pending(db)] == ["n"]
        assert [found.id for found in listed(db)].count(broken.id) == 1
        bench.turn(after=60)
        assert [message.type for message in pending(db)] == ["n", "n"]
        db.delete(in_the_way)
        bench.turn(after=5)
        assert [message.type for message in pending(db)] == ["n", "n", "broken"]


def test_a_scheduler_that_begins_without_redis_asks_for_the_last_tick_once_it_is_there(
    shared_server: RedisServer, db: Redis
) -> None:
    with bench_on(shared_server.url) as (before,):
        before.add("0 * * * *", name="n", missed="all")
        before.turn(after=HOUR_S)
    now = NOON + timedelta(hours=2, minutes=59)
    with faulty_proxy(shared_server.socket_path) as proxy, bench_on(proxy.url, now=now) as (bench,):
        for command in ("GET", "EVALSHA", "ZADD", "EVAL"):
            proxy.faults.append(Fault(command, Act.CUT_BEFORE_REQUEST, times=None))
        bench.add("0 * * * *", name="n", missed="all")
        bench.turn()
        bench.turn(after=HOUR_S)
        assert len(pending(db)) == 1
        proxy.faults.clear()
        bench.turn(after=5)
        assert len(pending(db)) == 3
