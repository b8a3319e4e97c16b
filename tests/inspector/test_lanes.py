"""Lanes through both inspectors: what they wait for, their limits and pauses."""

import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from fastq import Inspector, LaneInfo, LaneState, LaneStateError, Limit
from fastq.wire import keys
from tests.broker.harness import THEIRS
from tests.inspector.harness import Ask, Seeded

Q = "default"
LATER_US = 4_000_000_000_000_000
HOUR_US = 3_600_000_000


def lane(queue: Seeded, name: str, waiting: int = 1, *, turn: float | None = 1.0, full: float | None = None) -> None:
    """Let tasks wait in a lane, which has its turn or is full."""
    queue.group(name, {f"{name}-{n}": 1.0 for n in range(waiting)})
    if full is not None:
        queue.db.zadd(keys.full(Q), {name: full})
    elif turn is not None:
        queue.db.zadd(keys.turns(Q), {name: turn})


def rule(queue: Seeded, **rules: str) -> None:
    queue.db.hset(keys.limits(Q), mapping={{"every": "*", "whole": ""}.get(name, name): rules[name] for name in rules})


def hold(queue: Seeded, name: str, *ids: str, **more: Any) -> None:
    """Let running tasks have places."""
    queue.activate(*ids, until_s=int(time.time()) + 30, **more)
    queue.db.sadd(keys.held(Q, name), *ids)


def in_half_an_hour_us() -> int:
    return int(time.time() * 1e6) + HOUR_US // 2


def why(ask: Ask, name: str | None) -> tuple[str, str, tuple[str, ...]]:
    found: LaneInfo = ask("get_lane", Q, name)
    assert found.lane == (name or "")
    return found.state.value, found.by, found.holders


def test_each_lane_tells_why_it_waits(ask: Ask, queue: Seeded) -> None:
    rule(queue, every="2:0:1:1", calm="0:200000:1:1", still="1:0:1:1:paused", open="0:0:1:1")
    for name in ("new", "open"):
        lane(queue, name)
    lane(queue, "acme", 3, full=LATER_US)
    hold(queue, "acme", "r1", "r2")
    lane(queue, "calm", turn=LATER_US)
    lane(queue, "still", full=LATER_US)
    hold(queue, "done", "r3")
    infos, cursor = ask("lanes", Q)
    assert cursor == ""
    two, at = Limit(2), datetime.fromtimestamp(LATER_US / 1e6, UTC)
    assert sorted(infos, key=lambda info: info.lane) == [
        LaneInfo(Q, "*", 0, 0, two, True, LaneState.IDLE),
        LaneInfo(Q, "acme", 3, 2, two, False, LaneState.FULL, "acme", holders=("r1", "r2")),
        LaneInfo(Q, "calm", 1, None, Limit(rate="5/s"), True, LaneState.RATE, "calm", until=at),
        LaneInfo(Q, "new", 1, 0, two, False, LaneState.READY),
        LaneInfo(Q, "open", 1, None, Limit(), True, LaneState.READY),
        LaneInfo(Q, "still", 1, 0, Limit(1), True, LaneState.PAUSED, "still"),
    ]
    assert ask("get_lane", Q, "done") == LaneInfo(Q, "done", 0, 1, two, False, LaneState.IDLE)


def test_a_rate_is_known_before_the_lane_is_looked_at(ask: Ask, queue: Seeded) -> None:
    """Its turn may be older than the tokens that its last tasks took."""
    rule(queue, every=f"0:{HOUR_US}:3:1")
    lane(queue, "acme")
    token_us = in_half_an_hour_us()
    queue.db.hset(keys.rates(Q), "acme", token_us + 2 * HOUR_US)
    found = ask("get_lane", Q, "acme")
    assert (found.state, found.until) == ("rate", datetime.fromtimestamp(token_us / 1e6, UTC))


def test_a_pool_holds_back_its_lanes(ask: Ask, queue: Seeded) -> None:
    queue.db.hset(keys.limits(Q), mapping={"openai:*": "2:0:1:1"})
    lane(queue, "openai:acme", turn=None)
    lane(queue, "other")
    hold(queue, "openai:*", "r1", "r2")
    assert why(ask, "openai:acme") == ("full", "openai:*", ("r1", "r2"))
    assert why(ask, "openai:*") == ("full", "openai:*", ("r1", "r2"))
    assert [info.lane for info in ask("lanes", Q)[0]] == ["openai:*", "openai:acme"]  # the other one is a mere group
    queue.db.srem(keys.held(Q, "openai:*"), "r2")
    assert why(ask, "openai:acme") == ("ready", "", ())
    queue.db.hset(keys.limits(Q), "openai:*", f"0:{HOUR_US}:1:1")
    queue.db.hset(keys.rates(Q), "openai:*", in_half_an_hour_us())
    assert why(ask, "openai:acme") == ("rate", "openai:*", ())
    assert why(ask, "openai:*") == ("idle", "", ())
    queue.db.hset(keys.limits(Q), "openai:*", "0:200000:1:1:paused")
    assert why(ask, "openai:acme") == ("paused", "openai:*", ())
    assert why(ask, "openai:*") == ("paused", "openai:*", ())


def test_a_queue_holds_back_its_lanes(ask: Ask, queue: Seeded) -> None:
    rule(queue, whole="2:0:1:1", every="1:0:1:1")
    lane(queue, "acme")
    queue.activate("r1", "r2")
    assert why(ask, "acme") == ("full", "", ())
    assert why(ask, None) == ("full", "", ())
    assert why(ask, "*") == ("idle", "", ())
    assert ask("get_lane", Q, None).running == 2
    queue.db.set(keys.paused(Q), 1)
    assert why(ask, "acme") == ("paused", "", ())


def test_places_of_tasks_that_were_lost_are_told(ask: Ask, queue: Seeded) -> None:
    rule(queue, every="2:0:1:1")
    lane(queue, "acme", full=LATER_US)
    hold(queue, "acme", "alive")
    queue.activate("gone", owner=THEIRS, until_s=1)
    queue.db.sadd(keys.held(Q, "acme"), "gone")
    found = ask("get_lane", Q, "acme")
    assert (found.holders, found.lost_holders) == (("alive", "gone"), ("gone",))


def test_for_what_a_sequence_waits_is_told(ask: Ask, queue: Seeded) -> None:
    rule(queue, every="1:0:1:1:strict", plain="1:0:1:1")
    for name in ("acme", "plain"):
        lane(queue, name, full=LATER_US)
        queue.db.sadd(keys.held(Q, name), f"{name}-retried")
    found = ask("get_lane", Q, "acme")
    assert (found.limit, found.state) == (Limit(1, order="strict"), LaneState.FULL)
    assert (found.holders, found.retried_holders) == (("acme-retried",), ("acme-retried",))
    assert ask("get_lane", Q, "plain").retried_holders == ()


def test_of_many_holders_none_is_named(ask: Ask, queue: Seeded) -> None:
    rule(queue, every="21:0:1:1")
    lane(queue, "acme", full=LATER_US)
    queue.db.sadd(keys.held(Q, "acme"), *range(21))
    assert why(ask, "acme") == ("full", "acme", ())


def test_lanes_come_in_pages(ask: Ask, queue: Seeded) -> None:
    queue.db.hset(keys.limits(Q), mapping={"*": "1:0:1:1", **{f"own{n}": "2:0:1:1" for n in range(1000)}})
    queue.db.sadd(keys.groups(Q), *(f"lane{n}" for n in range(900)), *(f"own{n}" for n in range(0, 1000, 2)))
    names, cursor, pages = [], "", 0
    while pages == 0 or cursor:
        page, cursor = ask("lanes", Q, cursor=cursor, page_size=200)
        assert 200 <= len(page) < 400 or not cursor
        names += [info.lane for info in page]
        pages += 1
    assert sorted(names) == sorted({"*", *(f"own{n}" for n in range(1000)), *(f"lane{n}" for n in range(900))})
    for wrong in ("x", "r:", "r:-1", f"l:{2**64}", "0"):
        with pytest.raises(ValueError, match=re.escape(repr(wrong))):
            ask("lanes", Q, cursor=wrong)
    with pytest.raises(ValueError, match="page_size"):
        ask("lanes", Q, page_size=0)


def test_names_and_rules_of_others_do_no_harm(ask: Ask, queue: Seeded) -> None:
    queue.db.hset(keys.limits(Q), mapping={"*": "1:0:1:1", b"\xff": "what", "odd": "2:x"})
    queue.db.sadd(keys.groups(Q), b"\xfe")
    assert sorted((info.lane, str(info.limit)) for info in ask("lanes", Q)[0]) == [
        ("*", "1"),
        ("odd", "1"),
        ("\udcfe", "1"),
        ("\udcff", "1"),
    ]


def test_a_queue_without_limits_has_no_lanes(ask: Ask, queue: Seeded) -> None:
    queue.group("mails", {"g1": 1.0})
    assert ask("lanes", Q) == ([], "")
    assert ask("lanes", "nosuch") == ([], "")
    assert ask("get_lane", Q, "mails").limit is None


def test_a_rate_that_was_used_up_under_another_limit_is_no_reason_to_wait(ask: Ask, queue: Seeded) -> None:
    rule(queue, acme=f"0:{HOUR_US}:1:1")
    lane(queue, "acme")
    queue.db.hset(keys.rates(Q), "acme", in_half_an_hour_us())
    assert why(ask, "acme") == ("rate", "acme", ())
    ask("set_limit", Q, "acme", Limit(rate="5/s"))
    assert why(ask, "acme") == ("ready", "", ())


def test_a_limit_is_set_changed_and_removed(ask: Ask, queue: Seeded) -> None:
    assert ask("set_limit", Q, "acme", Limit(2, "5/s", burst=3, weight=4)) is True
    assert ask("set_limit", Q, "*", Limit(1)) is True
    assert ask("set_limit", Q, "openai:*", Limit(50)) is True
    assert ask("set_limit", Q, None, Limit(100)) is True
    assert queue.db.hgetall(keys.limits(Q)) == {
        b"acme": b"2:200000:3:4",
        b"*": b"1:0:1:1",
        b"openai:*": b"50:0:1:1",
        b"": b"100:0:1:1",
    }
    assert ask("get_lane", Q, "acme").limit == Limit(2, "5/s", burst=3, weight=4)
    assert ask("set_limit", Q, "acme", Limit()) is True
    assert ask("get_lane", Q, "acme").limit == Limit()
    for name in ("acme", "*", "openai:*", None):
        assert ask("set_limit", Q, name, None) is True
        assert ask("set_limit", Q, name, None) is False
    assert not queue.db.exists(keys.limits(Q))


def test_a_pause_keeps_the_limit_and_ends_with_it(ask: Ask, queue: Seeded) -> None:
    rule(queue, every="1:0:1:1", acme="2:0:1:1")
    ask("pause_lane", Q, "acme")
    assert queue.db.hget(keys.limits(Q), "acme") == b"2:0:1:1:paused"
    with pytest.raises(LaneStateError, match=r"lane is already paused \(queue='default', lane='acme'\)"):
        ask("pause_lane", Q, "acme")
    ask("set_limit", Q, "acme", Limit(3))
    assert queue.db.hget(keys.limits(Q), "acme") == b"3:0:1:1:paused"
    ask("resume_lane", Q, "acme")
    assert queue.db.hget(keys.limits(Q), "acme") == b"3:0:1:1"
    with pytest.raises(LaneStateError, match=r"not paused itself; .*lane ls.*\(queue='default', lane='acme'\)"):
        ask("resume_lane", Q, "acme")


def test_a_lane_without_a_limit_of_its_own_has_none_after_its_pause(ask: Ask, queue: Seeded) -> None:
    rule(queue, every="1:0:1:1")
    ask("pause_lane", Q, "acme")
    found = ask("get_lane", Q, "acme")
    assert (found.state, found.limit, found.has_own_limit) == ("paused", Limit(1), False)
    assert ask("set_limit", Q, "acme", None) is False
    ask("resume_lane", Q, "acme")
    assert queue.db.hgetall(keys.limits(Q)) == {b"*": b"1:0:1:1"}


def test_a_limit_that_is_removed_under_a_pause_leaves_the_pause(ask: Ask, queue: Seeded) -> None:
    rule(queue, every="1:0:1:1", acme="2:0:1:1:paused")
    assert ask("set_limit", Q, "acme", None) is True
    found = ask("get_lane", Q, "acme")
    assert (found.state, found.limit) == ("paused", Limit(1))
    ask("pause_lane", Q, "openai:*")
    ask("pause_lane", Q, "*")
    assert why(ask, "other") == ("paused", "other", ())


@pytest.mark.parametrize("last", ["acme", "openai:acme", "*", "openai:*"])
def test_the_last_rule_of_tasks_that_wait_becomes_one_that_limits_nothing(ask: Ask, queue: Seeded, last: str) -> None:
    """Without a rule they would be a group, which waits for an aggregator."""
    queue.db.hset(keys.limits(Q), last, "1:0:1:1")
    lane(queue, "openai:acme" if last == "openai:*" else "any" if last == "*" else last)
    ask("set_limit", Q, last, None)
    assert queue.db.hgetall(keys.limits(Q)) == {last.encode(): b"0:0:1:1"}
    queue.db.hset(keys.limits(Q), "*", "1:0:1:1")
    if last != "*":
        ask("set_limit", Q, last, None)
        assert queue.db.hgetall(keys.limits(Q)) == {b"*": b"1:0:1:1"}


@pytest.mark.parametrize("last", ["acme", "*", "openai:*"])
@pytest.mark.parametrize("where", ["pending", "active", "scheduled", "retry"])
def test_the_last_rule_stays_while_tasks_may_come_into_a_lane(ask: Ask, queue: Seeded, last: str, where: str) -> None:
    """One that is to be retried comes back as a task of a group, which would be combined with others."""
    queue.db.hset(keys.limits(Q), last, "1:0:1:1")
    if where in ("pending", "active"):
        queue.db.lpush(f"asynq:{{{Q}}}:{where}", "a")
    else:
        queue.db.zadd(f"asynq:{{{Q}}}:{where}", {"a": LATER_US})
    assert ask("set_limit", Q, last, None) is True
    assert queue.db.hgetall(keys.limits(Q)) == {last.encode(): b"0:0:1:1"}
    queue.db.delete(f"asynq:{{{Q}}}:{where}")
    assert ask("set_limit", Q, last, None) is True
    assert not queue.db.exists(keys.limits(Q))


def test_with_the_last_rule_all_goes_that_was_kept_for_lanes(ask: Ask, queue: Seeded) -> None:
    queue.db.hset(keys.limits(Q), mapping={"a": "1:0:1:1", "b": "0:9:1:1"})
    queue.db.hset(keys.rates(Q), "b", LATER_US)
    queue.db.zadd(keys.turns(Q), {"b": LATER_US})
    queue.db.zadd(keys.full(Q), {"c": LATER_US})
    kept = keys.rates(Q), keys.turns(Q), keys.full(Q)
    ask("set_limit", Q, "a", None)
    assert queue.db.exists(*kept) == 3
    ask("set_limit", Q, "b", None)
    assert queue.db.exists(*kept, keys.bell(Q), keys.limits(Q)) == 0


@pytest.mark.parametrize("change", ["set", "remove", "resume"])
def test_what_waits_for_a_limit_is_looked_at_when_it_is_changed(ask: Ask, queue: Seeded, change: str) -> None:
    full, turns, bell = keys.full(Q), keys.turns(Q), keys.bell(Q)
    named = {"*": "1:0:1:1", "a": "1:0:1:1", "b": "0:9:1:1", "p:*": "1:0:1:1", "": "1:0:1:1"}
    queue.db.hset(keys.limits(Q), mapping={name: f"{rule}:paused" for name, rule in named.items()})
    lane(queue, "a", full=LATER_US)
    lane(queue, "b", turn=LATER_US)
    lane(queue, "d", full=LATER_US)
    lane(queue, "e", turn=LATER_US)
    queue.db.zadd(full, {"p:*": LATER_US, "": LATER_US})

    def changed(name: str | None) -> bytes | None:
        if change == "set":
            ask("set_limit", Q, name, Limit(5))
        elif change == "remove":
            ask("set_limit", Q, name, None)
        else:
            ask("resume_lane", Q, name)
        rung: bytes | None = queue.db.lpop(bell)
        return rung

    for name in ("a", "b"):
        assert changed(name) == b"1"
        assert queue.db.zscore(turns, name) < LATER_US
        assert queue.db.zscore(full, name) is None
    assert changed("p:*") == b"1"
    assert queue.db.zscore(full, "p:*") < LATER_US
    if change != "resume":
        assert changed(None) == b"1"
        assert queue.db.zscore(full, "") is None
    assert (queue.db.zscore(full, "d"), queue.db.zscore(turns, "e")) == (LATER_US, LATER_US)
    assert changed("*") == b"1"
    assert queue.db.zscore(turns, "d") < LATER_US
    assert queue.db.zscore(turns, "e") < LATER_US
    if change == "set":
        lane(queue, "p:c", turn=None)  # it waits for its pool, or for a sweep
        assert changed("p:c") is None
        assert queue.db.zscore(turns, "p:c") is None


def test_all_lanes_are_looked_at_however_many_there_are(ask: Ask, queue: Seeded) -> None:
    rule(queue, every="1:0:1:1")
    queue.db.zadd(keys.full(Q), {f"full{n}": LATER_US for n in range(1_234)})
    queue.db.zadd(keys.turns(Q), {f"rated{n}": LATER_US for n in range(777)})
    ask("set_limit", Q, "*", Limit(2))
    assert queue.db.zcard(keys.turns(Q)) == 2_011
    assert queue.db.zcount(keys.turns(Q), LATER_US, "+inf") == 0
    assert queue.db.zcard(keys.full(Q)) == 0


def test_servers_are_told_of_a_change(ask: Ask, queue: Seeded) -> None:
    heard = queue.db.pubsub()
    heard.subscribe(keys.due_channel(Q))
    assert heard.get_message(timeout=5)["type"] == "subscribe"
    ask("set_limit", Q, "acme", Limit(2))
    assert heard.get_message(timeout=5)["data"] == b"limits"
    heard.close()


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (("set_limit", "", "acme", Limit(2)), ValueError, "queue must contain one or more characters"),
        (("set_limit", Q, "a*", Limit(2)), ValueError, "'a*' is neither a lane"),
        (("set_limit", Q, 5, Limit(2)), TypeError, "lane must be a str, not int: 5"),
        (("set_limit", Q, None, Limit(rate="5/s")), ValueError, "has a concurrency only, not '5/s'"),
        (("set_limit", Q, "acme", "2"), TypeError, "limit must be a Limit or None, not '2'; Limit.parse('2') reads it"),
        (("pause_lane", Q, None), TypeError, "pause_queue pauses a queue as a whole"),
        (("resume_lane", Q, ""), ValueError, "lane must contain one or more characters"),
        (("get_lane", Q, " "), ValueError, "lane must contain one or more characters"),
    ],
)
def test_bad_arguments_are_named(ask: Ask, queue: Seeded, call: Any, kind: type[Exception], said: str) -> None:
    before = queue.all_keys()
    with pytest.raises(kind, match=re.escape(said)):
        ask(*call)
    assert queue.all_keys() == before


def test_no_call_takes_long_among_many_lanes(queue: Seeded, url: str) -> None:
    """The commands of Redis that one script call makes stay few, whatever the number of lanes."""
    rule(queue, every="1:0:1:1")
    queue.db.sadd(keys.groups(Q), *(f"lane{n}" for n in range(5_000)))
    queue.db.zadd(keys.turns(Q), {f"lane{n}": LATER_US for n in range(5_000)})
    queue.db.config_resetstat()
    with Inspector(url) as inspector:
        inspector.lanes(Q)
    stats = queue.db.info("commandstats")
    assert stats["cmdstat_zcard"]["calls"] < 300
