"""Leases: the owner's mark in the score, extending only what is ours, and finding what was leased."""

import secrets
from collections.abc import Iterator

import pytest
from redis import Redis

from fastq.broker.operations.lease import (
    LEASE_S,
    MAX_LISTED_BYTES,
    LeaseList,
    Owner,
    extend_leases,
    list_leases,
    restore_owner,
)
from fastq.broker.operations.repair import repair_active
from fastq.errors import BrokerReadOnlyError
from fastq.wire import keys
from tests.broker.harness import GOS, NOW_S, OURS, QUEUE, THEIRS, QueueBench, message, queue_bench
from tests.redis_servers import redis_server

IN_2100 = 4_133_980_799


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


# The mark ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unix_s", [0, 1_795_221_907, 2**31, NOW_S, IN_2100])
@pytest.mark.parametrize("nonce", [1, 3, 2**19 - 1, 2**19, 2**20 - 1])
def test_a_score_is_exact_as_text_in_a_double_and_in_redis(unix_s: int, nonce: int, bench: QueueBench) -> None:
    owner = Owner(nonce / 2**20)
    score = owner.score(unix_s)
    assert float(score) - (unix_s + LEASE_S) == owner.fraction
    assert float(str(owner)) == owner.fraction
    bench.db.zadd(keys.lease(QUEUE), {"a": 0})
    bench.db.execute_command("ZADD", keys.lease(QUEUE), score, "a")
    assert bench.scores("lease") == {"a": float(score)}
    as_lua_sees_it = "return redis.call('ZSCORE', KEYS[1], 'a') % 1 == tonumber(ARGV[1])"
    assert bench.db.eval(as_lua_sees_it, 1, keys.lease(QUEUE), str(owner)) == 1


def test_a_score_is_asynqs_second_plus_the_mark() -> None:
    assert OURS.score(100.999) == repr(130 + OURS.fraction)
    assert OURS.score(100.0, 7) == repr(107 + OURS.fraction)


def test_a_drawn_mark_is_a_20_bit_fraction_and_never_asynqs(monkeypatch: pytest.MonkeyPatch) -> None:
    for drawn in (0, 2**20 - 2):
        monkeypatch.setattr(secrets, "randbelow", lambda most, drawn=drawn: min(drawn, most - 1))
        fraction = Owner.draw().fraction
        assert 0 < fraction < 1
        assert (fraction * 2**20).is_integer()
        assert fraction != GOS.fraction


# Extending --------------------------------------------------------------------------------------------------------


def test_only_our_leases_are_extended_and_the_others_are_told(bench: QueueBench) -> None:
    bench.activate("a", "b")
    bench.activate("theirs", owner=THEIRS)
    bench.activate("gos", owner=GOS)
    before = bench.scores("lease")
    new = OURS.score(NOW_S + 5)
    lost = bench.run(extend_leases(QUEUE, OURS, new, ["a", "theirs", "nosuch", "gos", "b"]))
    assert lost == ["theirs", "nosuch", "gos"]
    extended = {"a": NOW_S + 35 + OURS.fraction, "b": NOW_S + 35 + OURS.fraction}
    assert bench.scores("lease") == before | extended


def test_a_lease_that_ended_is_extended_while_it_is_still_ours(bench: QueueBench) -> None:
    bench.activate("a", until_s=1)
    assert bench.run(extend_leases(QUEUE, OURS, OURS.score(NOW_S), ["a"])) == []
    assert bench.scores("lease") == {"a": NOW_S + 30 + OURS.fraction}


def test_a_mark_that_asynq_has_wiped_is_given_again_also_after_a_lost_reply(bench: QueueBench) -> None:
    bench.activate("a", owner=GOS)
    for _ in range(2):
        assert bench.run(restore_owner(QUEUE, "a", message("a"), OURS.score(NOW_S + 5)))
        assert bench.scores("lease") == {"a": NOW_S + 35 + OURS.fraction}


def test_no_mark_is_given_to_what_another_may_have_taken(bench: QueueBench) -> None:
    bench.activate("gos", owner=GOS)
    bench.activate("theirs", owner=THEIRS)
    bench.activate("ended", owner=GOS)
    bench.db.hset(keys.task(QUEUE, "ended"), "state", "retry")
    before = bench.scores("lease")
    for task_id, taken in (
        ("gos", message("gos", error_msg="lost")),
        ("theirs", message("theirs")),
        ("ended", message("ended")),
        ("nosuch", message("nosuch")),
    ):
        assert not bench.run(restore_owner(QUEUE, task_id, taken, OURS.score(NOW_S)))
    assert bench.scores("lease") == before


def test_no_lease_comes_to_be_by_extending(bench: QueueBench) -> None:
    assert bench.run(extend_leases(QUEUE, OURS, OURS.score(NOW_S), ["a", "b"])) == ["a", "b"]
    assert bench.places() == {}


def test_500_leases_are_extended_in_one_call(bench: QueueBench) -> None:
    ids = [f"{number:03d}" for number in range(500)]
    bench.activate(*ids)
    assert bench.run(extend_leases(QUEUE, OURS, OURS.score(NOW_S + 1), ids)) == []
    assert set(bench.scores("lease").values()) == {NOW_S + 31 + OURS.fraction}


# Listing ----------------------------------------------------------------------------------------------------------


def test_leases_are_extended_on_a_redis_that_is_out_of_memory(bench: QueueBench, db: Redis) -> None:
    bench.activate("a")
    try:
        db.config_set("maxmemory-policy", "noeviction")
        db.config_set("maxmemory", 1)
        assert bench.run(extend_leases(QUEUE, OURS, OURS.score(NOW_S + 5), ["a"])) == []
    finally:
        db.config_set("maxmemory", 0)
    assert bench.scores("lease") == {"a": NOW_S + 35 + OURS.fraction}


def ids_of(listed: LeaseList) -> list[str]:
    return [task.id for task in listed.tasks]


def test_leases_are_listed_by_their_end_inclusively(bench: QueueBench) -> None:
    for task_id, until_s in (("c", 30), ("b", 20), ("a", 10)):
        bench.activate(task_id, until_s=until_s, owner=GOS)
    bench.activate("fraction", until_s=20, owner=OURS)
    listed = bench.run(list_leases(QUEUE, "-inf", "20", 10))
    assert listed.tasks == [("a", message("a")), ("b", message("b"))]
    assert listed.dangling == 0
    assert ids_of(bench.run(list_leases(QUEUE, "20", "30", 10))) == ["b", "fraction", "c"]
    assert ids_of(bench.run(list_leases(QUEUE, "-inf", "inf", 2))) == ["a", "b"]
    assert len(bench.places()["lease"]) == 4, "what was listed is as it was"


def test_the_tasks_of_a_dequeue_are_found_by_its_very_score(bench: QueueBench) -> None:
    bench.activate("ours-1", "ours-2", until_s=NOW_S + 30)
    bench.activate("theirs", owner=THEIRS, until_s=NOW_S + 30)
    bench.activate("gos", owner=GOS, until_s=NOW_S + 30)
    bench.activate("later", until_s=NOW_S + 31)
    score = OURS.score(NOW_S)
    assert ids_of(bench.run(list_leases(QUEUE, score, score, 500))) == ["ours-1", "ours-2"]


def test_leases_without_a_task_are_dropped_from_lease_and_active(bench: QueueBench) -> None:
    bench.activate("a", "gone", "no-message", "odd", until_s=1)
    bench.db.delete(keys.task(QUEUE, "gone"), keys.task(QUEUE, "odd"))
    bench.db.hdel(keys.task(QUEUE, "no-message"), "msg")
    bench.db.set(keys.task(QUEUE, "odd"), "not a hash")
    bench.db.lpush(keys.active(QUEUE), "gone")
    listed = bench.run(list_leases(QUEUE, "-inf", "5", 10))
    assert (ids_of(listed), listed.dangling) == (["a"], 3)
    assert bench.places() == {"active": ["a"], "lease": ["a"]}


def test_of_a_long_active_only_some_ids_without_task_are_taken_off_at_once(bench: QueueBench) -> None:
    dangling = [f"dangling-{number}" for number in range(5)]
    bench.db.lpush(keys.active(QUEUE), *(f"other-{number}" for number in range(30_000)), *dangling)
    bench.db.zadd(keys.lease(QUEUE), dict.fromkeys(dangling, 1))
    assert bench.run(list_leases(QUEUE, "-inf", "5", 10)).dangling == 5
    assert bench.db.zcard(keys.lease(QUEUE)) == 0
    assert bench.db.llen(keys.active(QUEUE)) == 30_002
    assert bench.run(repair_active(QUEUE, 30_000, 500, NOW_S)).dropped == 2


def test_a_list_of_leases_ends_with_the_message_that_goes_beyond_256_kb(bench: QueueBench) -> None:
    ids = [f"{number:02d}" for number in range(60)]
    bench.activate(*ids, until_s=1, payload=bytes(10_000))
    listed = bench.run(list_leases(QUEUE, "-inf", "5", 100))
    size = len(message("00", payload=bytes(10_000)))
    assert (len(listed.tasks) - 1) * size < MAX_LISTED_BYTES <= len(listed.tasks) * size
    assert ids_of(listed) == ids[: len(listed.tasks)]


# Losses -----------------------------------------------------------------------------------------------------------


def test_how_often_each_task_was_lost_is_listed(bench: QueueBench) -> None:
    bench.activate("once", "never", "garbage", until_s=1)
    bench.db.hset(keys.task(QUEUE, "once"), "lost", 1)
    bench.db.hset(keys.task(QUEUE, "garbage"), "lost", "-1")
    listed = bench.run(list_leases(QUEUE, "-inf", "5", 10))
    assert dict(zip(ids_of(listed), listed.lost, strict=True)) == {"once": 1, "never": 0, "garbage": 0}


def test_a_look_for_no_task_tells_whether_leases_can_be_written() -> None:
    with redis_server() as server, server.client() as db, queue_bench(db, server.url) as bench:
        bench.activate("a", until_s=1)
        assert bench.run(list_leases(QUEUE, "-inf", "5", 0)) == ([], [], 0)
        db.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(BrokerReadOnlyError):
            bench.run(list_leases(QUEUE, "-inf", "5", 0))
