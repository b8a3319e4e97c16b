"""Finish: each way in which a task's run ends, for many tasks in one call, with an outcome for each."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operation import Operation
from fastq.broker.operations.finish import (
    ANY_OWNER,
    ARCHIVE_MAX_SIZE,
    Archived,
    Completed,
    Done,
    FinishOutcome,
    Guard,
    Retried,
    archive,
    complete,
    done,
    requeue,
    retry,
)
from fastq.broker.operations.lease import Owner
from fastq.errors import BrokerError
from fastq.wire import keys
from tests.broker.harness import GOS, NOW, NOW_NS, NOW_S, OURS, QUEUE, THEIRS, QueueBench, message, queue_bench

OK, NOT_ACTIVE, NOT_OURS = FinishOutcome.OK, FinishOutcome.NOT_ACTIVE, FinishOutcome.NOT_OURS
DAY = "2096-10-02"
MAX_INT64 = 2**63 - 1

Way = Callable[[Sequence[str], Guard], Operation[list[FinishOutcome]]]

WAYS: dict[str, Way] = {
    "done": lambda ids, guard: done(QUEUE, [Done(task_id) for task_id in ids], NOW, guard.owner),
    "complete": lambda ids, guard: complete(
        QUEUE, [Completed(task_id, message(task_id), NOW_S + 60) for task_id in ids], NOW, guard.owner
    ),
    "retry": lambda ids, guard: retry(
        QUEUE, [Retried(task_id, message(task_id), NOW_S + 60) for task_id in ids], NOW, guard
    ),
    "archive": lambda ids, guard: archive(QUEUE, [Archived(task_id, message(task_id)) for task_id in ids], NOW, guard),
    "requeue": lambda ids, guard: requeue(QUEUE, ids, NOW_NS, guard),
}
ENDS = {"complete": "completed", "retry": "retry", "archive": "archived", "requeue": "pending"}
"""Where a task is afterwards; a task that was done is nowhere."""
GUARDED = ["retry", "archive", "requeue"]
"""The ways that know more of a guard than its owner."""


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


def seen(bench: QueueBench) -> tuple[Any, ...]:
    return bench.places(), bench.scores("lease"), bench.states(), bench.counters()


# Batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_each_task_of_a_batch_has_its_own_outcome(way: str, bench: QueueBench) -> None:
    bench.activate("a", "b")
    bench.activate("theirs", owner=THEIRS)
    bench.activate("gos", owner=GOS)
    bench.put("no-lease", "active")
    bench.db.lpush(keys.active(QUEUE), "no-lease")
    bench.activate("not-active", "c")
    bench.db.lrem(keys.active(QUEUE), 0, "not-active")
    ids = ["a", "theirs", "gos", "no-lease", "not-active", "nosuch", "c", "b"]
    outcomes = bench.run(WAYS[way](ids, Guard(OURS)))
    assert outcomes == [OK, NOT_OURS, NOT_OURS, NOT_OURS, NOT_ACTIVE, NOT_OURS, OK, OK]
    # What was not ours to end is as it was, in its order.
    places = bench.places()
    assert places["active"] == ["no-lease", "gos", "theirs"]
    assert bench.scores("lease") == {
        "gos": NOW_S + 30,
        "theirs": NOW_S + 30 + THEIRS.fraction,
        "not-active": NOW_S + 30 + OURS.fraction,
    }
    kept = {"gos": "active", "no-lease": "active", "not-active": "active", "theirs": "active"}
    if end := ENDS.get(way):
        assert sorted(places[end]) == ["a", "b", "c"]
        kept |= dict.fromkeys("abc", end)
    assert bench.states() == kept


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_that_went_well_says_so_for_each_task(way: str, bench: QueueBench) -> None:
    ids = [f"{number:03d}" for number in range(500)]
    bench.activate(*ids)
    assert bench.run(WAYS[way](ids, Guard(OURS))) == [OK] * 500
    places = bench.places()
    assert "active" not in places
    assert "lease" not in places
    if way != "requeue":
        assert bench.counters()["processed"] == 500


@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_is_twice_in_a_batch_ends_once(way: str, bench: QueueBench) -> None:
    bench.activate("a")
    assert sorted(bench.run(WAYS[way](["a", "a"], Guard(OURS)))) == [NOT_ACTIVE, OK]
    assert bench.places().get(ENDS.get(way, ""), []) == ([] if way == "done" else ["a"])
    assert bench.counters().get("processed", 1) == 1


def test_a_task_that_was_done_twice_in_a_batch_counts_once(bench: QueueBench) -> None:
    bench.activate("a")
    assert bench.run(done(QUEUE, [Done("a"), Done("a")], NOW)) == [OK, NOT_ACTIVE]
    assert bench.counters() == {"processed": 1, f"processed:{DAY}": 1}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_happens_when_no_task_is_ours(way: str, bench: QueueBench) -> None:
    bench.activate("a", owner=THEIRS)
    before = seen(bench)
    assert bench.run(WAYS[way](["a", "nosuch"], Guard(OURS))) == [NOT_OURS, NOT_OURS]
    assert seen(bench) == before


@pytest.mark.parametrize("way", WAYS)
def test_without_a_guard_a_task_ends_whoever_holds_it(way: str, bench: QueueBench) -> None:
    bench.activate("ours")
    bench.activate("theirs", owner=THEIRS)
    bench.activate("gos", owner=GOS, until_s=1)
    assert bench.run(WAYS[way](["gos", "ours", "theirs", "nosuch"], ANY_OWNER)) == [OK, OK, OK, NOT_ACTIVE]
    assert set(bench.places()) <= {ENDS.get(way)}


@pytest.mark.parametrize("way", WAYS)
def test_active_keeps_the_order_of_what_stays(way: str, bench: QueueBench) -> None:
    ids = [f"{number:02d}" for number in range(30)]
    bench.activate(*ids)
    bench.run(WAYS[way](ids[3:20:3], Guard(OURS)))
    left = [task_id for task_id in ids if task_id not in ids[3:20:3]]
    assert bench.places()["active"] == left[::-1]


@pytest.mark.parametrize("side", [-1, 1])
def test_a_done_task_is_found_from_either_end(side: int, bench: QueueBench) -> None:
    bench.activate("a", "b", "c")
    assert bench.run(done(QUEUE, [Done("b")], NOW, side=side)) == [OK]
    completed = [Completed("c", message("c"), NOW_S)]
    assert bench.run(complete(QUEUE, completed, NOW, side=side)) == [OK]
    assert bench.places() == {"active": ["a"], "lease": ["a"], "completed": ["c"]}


@pytest.mark.parametrize("way", ["done", "complete", "retry", "archive"])
def test_tasks_behind_another_servers_long_ones_are_looked_for_from_the_other_end(way: str, bench: QueueBench) -> None:
    # The id stands twice in active: which of the two is gone tells from where it was looked for.
    active = keys.active(QUEUE)
    bench.activate("ours")
    bench.db.rpush(active, *(f"long-{number}" for number in range(2000)))
    bench.db.linsert(active, "after", "long-100", "ours")
    assert bench.run(WAYS[way](["ours"], Guard(OURS))) == [OK]
    left = bench.db.lrange(active, 0, -1)
    assert (left.index(b"ours"), left.count(b"ours"), len(left)) == (101, 1, 2001)


# Guards -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", GUARDED)
def test_only_leases_that_ended_by_then_are_touched_by_who_recovers(way: str, bench: QueueBench) -> None:
    for task_id, until_s, owner in (("long-ago", 1, THEIRS), ("just", NOW_S, GOS), ("fraction", NOW_S, THEIRS)):
        bench.activate(task_id, until_s=until_s, owner=owner)
    bench.activate("later", until_s=NOW_S + 1, owner=GOS)
    outcomes = bench.run(WAYS[way](["long-ago", "just", "fraction", "later", "nosuch"], Guard(expired_at=NOW_S)))
    assert outcomes == [OK, OK, NOT_OURS, NOT_OURS, NOT_OURS]
    assert sorted(bench.places()[ENDS[way]]) == ["just", "long-ago"]
    assert bench.places()["active"] == ["later", "fraction"]


@pytest.mark.parametrize("way", ["retry", "archive"])
def test_who_recovers_a_task_counts_it_as_lost_and_its_owner_does_not(way: str, bench: QueueBench) -> None:
    bench.activate("recovered", "garbage", until_s=1, owner=THEIRS)
    bench.activate("ours")
    bench.db.hset(keys.task(QUEUE, "garbage"), "lost", "many")
    assert bench.run(WAYS[way](["recovered", "garbage"], Guard(expired_at=NOW_S))) == [OK, OK]
    assert bench.run(WAYS[way](["ours"], Guard(OURS))) == [OK]
    assert (bench.task("recovered")["lost"], bench.task("garbage")["lost"]) == (b"1", b"many")
    assert "lost" not in bench.task("ours")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("nonce", [1, 2**20 - 1])
def test_a_neighbour_of_our_mark_is_not_us(way: str, nonce: int, bench: QueueBench) -> None:
    us, them = Owner(nonce / 2**20), Owner((nonce + 1) % 2**20 / 2**20)
    bench.activate("a", owner=us)
    assert bench.run(WAYS[way](["a"], Guard(them))) == [NOT_OURS]
    assert bench.run(WAYS[way](["a"], Guard(us))) == [OK]


# Done -------------------------------------------------------------------------------------------------------------


def test_a_done_task_leaves_nothing_but_its_count(bench: QueueBench) -> None:
    bench.activate("a")
    bench.db.hset(keys.task(QUEUE, "a"), "result", "r")
    assert bench.run(done(QUEUE, [Done("a")], NOW)) == [OK]
    assert sorted(bench.db.keys("*")) == [f"asynq:{{{QUEUE}}}:processed".encode(), keys.processed(QUEUE, NOW).encode()]


LOCKED: dict[str, Callable[[Sequence[str]], Operation[list[FinishOutcome]]]] = {
    "done": lambda ids: done(QUEUE, [Done(task_id, f"lock-{task_id}") for task_id in ids], NOW, OURS),
    "complete": lambda ids: complete(
        QUEUE, [Completed(task_id, message(task_id), NOW_S, f"lock-{task_id}") for task_id in ids], NOW, OURS
    ),
}


@pytest.mark.parametrize("way", LOCKED)
def test_locks_are_released_if_they_are_the_tasks_own(way: str, bench: QueueBench) -> None:
    bench.activate("own", "anothers", "gone", "plain")
    bench.activate("theirs", owner=THEIRS)
    bench.db.mset({"lock-own": "own", "lock-anothers": "somebody", "lock-theirs": "theirs", "lock-plain": "x"})
    outcomes = bench.run(LOCKED[way](["own", "anothers", "gone", "theirs"]))
    assert outcomes == [OK, OK, OK, NOT_OURS]
    assert sorted(bench.db.keys("lock-*")) == [b"lock-anothers", b"lock-plain", b"lock-theirs"]


@pytest.mark.parametrize("way", LOCKED)
def test_a_lock_that_is_no_string_does_not_stop_the_batch(way: str, bench: QueueBench) -> None:
    bench.activate("odd", "own")
    bench.db.lpush("lock-odd", "odd")
    bench.db.set("lock-own", "own")
    assert bench.run(LOCKED[way](["odd", "own"])) == [OK, OK]
    assert bench.db.keys("lock-*") == [b"lock-odd"]
    assert bench.counters()["processed"] == 2


# Complete ---------------------------------------------------------------------------------------------------------


def test_a_completed_task_is_kept_with_its_result_until_its_time(bench: QueueBench) -> None:
    bench.activate("a", "b", "c")
    bench.db.hset(keys.task(QUEUE, "c"), "result", "of an earlier run")
    new = message("a", completed_at=NOW_S)
    tasks = [
        Completed("a", new, NOW_S + 7, result=b"\x00\xff"),
        Completed("b", new, NOW_S + 5, result=b""),
        Completed("c", new, NOW_S + 6),
    ]
    assert bench.run(complete(QUEUE, tasks, NOW)) == [OK, OK, OK]
    assert bench.scores("completed") == {"b": NOW_S + 5, "c": NOW_S + 6, "a": NOW_S + 7}
    assert bench.task("a") == {"msg": new, "state": b"completed", "result": b"\x00\xff"}
    assert bench.task("b") == {"msg": new, "state": b"completed", "result": b""}
    assert bench.task("c") == {"msg": new, "state": b"completed"}


# Retry ------------------------------------------------------------------------------------------------------------


def test_a_failed_task_waits_with_its_new_message(bench: QueueBench) -> None:
    bench.activate("a", "b")
    bench.db.hset(keys.task(QUEUE, "a"), "unique_key", "lock")
    bench.db.set("lock", "a")
    tasks = [Retried("a", b"new a", NOW_S + 9), Retried("b", b"new b", NOW_S + 8, is_failure=False)]
    assert bench.run(retry(QUEUE, tasks, NOW, Guard(OURS))) == [OK, OK]
    assert bench.scores("retry") == {"b": NOW_S + 8, "a": NOW_S + 9}
    assert bench.task("a") == {"msg": b"new a", "state": b"retry", "unique_key": b"lock"}
    assert bench.task("b") == {"msg": b"new b", "state": b"retry"}
    assert bench.db.get("lock") == b"a", "the lock of a task that will run again stays"
    assert bench.counters() == {"failed": 1, f"failed:{DAY}": 1, "processed": 1, f"processed:{DAY}": 1}


def test_what_is_no_failure_leaves_no_count(bench: QueueBench) -> None:
    bench.activate("a")
    assert bench.run(retry(QUEUE, [Retried("a", b"m", NOW_S, is_failure=False)], NOW, ANY_OWNER)) == [OK]
    assert bench.counters() == {}


# Requeue ----------------------------------------------------------------------------------------------------------


def test_tasks_given_back_are_the_next_to_run_in_their_order(bench: QueueBench) -> None:
    bench.activate("a", "b", "c", "d")
    bench.pend("later")
    assert bench.run(requeue(QUEUE, ["a", "c", "d"], NOW_NS + 5, Guard(OURS))) == [OK, OK, OK]
    assert bench.places() == {"pending": ["later", "d", "c", "a"], "active": ["b"], "lease": ["b"]}
    assert bench.task("c") == {"msg": message("c"), "state": b"pending", "pending_since": str(NOW_NS + 5).encode()}
    assert bench.counters() == {}


# Counters ---------------------------------------------------------------------------------------------------------

COUNTED = {
    "done": ("processed",),
    "complete": ("processed",),
    "retry": ("processed", "failed"),
    "archive": ("processed", "failed"),
}


@pytest.mark.parametrize("way", COUNTED)
def test_days_are_counted_in_utc_and_expire_90_days_after_their_first_task(way: str, bench: QueueBench) -> None:
    bench.activate("a", "b", "c")
    assert bench.run(WAYS[way](["a", "b"], ANY_OWNER)) == [OK, OK]
    expected = {key: 2 for name in COUNTED[way] for key in (name, f"{name}:{DAY}")}
    assert bench.counters() == expected
    for name in COUNTED[way]:
        day_key = bench.key(f"{name}:{DAY}")
        expires = datetime.now(UTC) + timedelta(seconds=bench.db.ttl(day_key))
        assert abs(expires - (NOW + timedelta(days=90))) < timedelta(seconds=60)
        assert bench.db.ttl(bench.key(name)) == -1
        # The expiry is set once, not with every task.
        bench.db.expire(day_key, 1000)
    assert bench.run(WAYS[way](["c"], ANY_OWNER)) == [OK]
    for name in COUNTED[way]:
        assert bench.counters()[f"{name}:{DAY}"] == 3
        assert 0 < bench.db.ttl(bench.key(f"{name}:{DAY}")) <= 1000


def test_the_day_is_that_of_utc_wherever_the_server_is(bench: QueueBench) -> None:
    bench.activate("a")
    early = datetime.fromisoformat("2096-10-03T01:00:00+02:00")
    bench.run(done(QUEUE, [Done("a")], early))
    assert bench.counters() == {"processed": 1, "processed:2096-10-02": 1}


@pytest.mark.parametrize("way", COUNTED)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (0, 2),
        (MAX_INT64 - 10_000, MAX_INT64 - 9_998),
        # asynq compares as Lua does, in doubles; from here on the next task wraps.
        (2**63 - 1025, 2**63 - 1023),
        (2**63 - 512, 2),
        (MAX_INT64, 2),
    ],
)
def test_totals_wrap_before_they_overflow(way: str, before: int, after: int, bench: QueueBench) -> None:
    bench.activate("a", "b")
    for name in COUNTED[way]:
        bench.db.set(bench.key(name), before)
    assert bench.run(WAYS[way](["a", "b"], ANY_OWNER)) == [OK, OK]
    assert [bench.counters()[name] for name in COUNTED[way]] == [after] * len(COUNTED[way])


@pytest.mark.parametrize("way", ["retry", "archive"])
def test_when_processed_wraps_failed_begins_anew_with_it(way: str, bench: QueueBench) -> None:
    # As asynq has it: else more tasks would have failed than were processed.
    bench.activate("a", "b")
    bench.db.set(bench.key("processed"), MAX_INT64)
    bench.db.set(bench.key("failed"), 1000)
    assert bench.run(WAYS[way](["a", "b"], ANY_OWNER)) == [OK, OK]
    assert bench.counters()["processed"] == 2
    assert bench.counters()["failed"] == 2


# Archive ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ENDS)
def test_a_place_that_is_none_costs_no_task(way: str, bench: QueueBench) -> None:
    """The error of a key of another type, half-way, would leave a task in no list at all, and one more at each try."""
    bench.activate("a", "b")
    before = (bench.places(), bench.scores("lease"), bench.states())
    bench.db.hset(bench.key(ENDS[way]), "not", "what it should be")
    for _ in range(2):
        with pytest.raises(BrokerError, match="WRONGTYPE"):
            bench.run(WAYS[way](["a", "b"], Guard(OURS)))
    bench.db.delete(bench.key(ENDS[way]))
    assert (bench.places(), bench.scores("lease"), bench.states()) == before
    assert bench.counters() == {}


@pytest.mark.parametrize("way", ENDS)
def test_a_task_whose_key_is_another_s_by_now_fails_alone(way: str, bench: QueueBench) -> None:
    """The error of a key of another type, half-way, would leave the tasks after it without their new state."""
    bench.activate("a", "b", "c")
    bench.db.delete(keys.task(QUEUE, "b"))
    bench.db.set(keys.task(QUEUE, "b"), "not a task")
    assert bench.run(WAYS[way](["a", "b", "c"], Guard(OURS))) == [OK, NOT_ACTIVE, OK]
    assert {place: sorted(ids) for place, ids in bench.places().items()} == {ENDS[way]: ["a", "c"]}
    assert {bench.task(task_id)["state"] for task_id in "ac"} == {ENDS[way].encode()}


def test_an_archived_task_is_kept_with_its_new_message(bench: QueueBench) -> None:
    bench.activate("a", "b")
    assert bench.run(archive(QUEUE, [Archived("a", b"new a"), Archived("b", b"new b")], NOW, Guard(OURS))) == [OK, OK]
    assert bench.scores("archived") == {"a": NOW_S, "b": NOW_S}
    assert bench.task("a") == {"msg": b"new a", "state": b"archived"}


def test_the_archive_never_holds_more_than_10_000_and_hashes_go_with_their_ids(bench: QueueBench) -> None:
    bench.archive({f"old-{number:05d}": NOW_S - 20_000 + number for number in range(ARCHIVE_MAX_SIZE)})
    bench.activate("a", "b", "c")
    assert bench.run(archive(QUEUE, [Archived(task_id, b"m") for task_id in "abc"], NOW, ANY_OWNER)) == [OK, OK, OK]
    places = bench.places()["archived"]
    assert len(places) == ARCHIVE_MAX_SIZE
    assert places[0] == "old-00003"
    assert sorted(places[-3:]) == ["a", "b", "c"]
    assert len(bench.db.keys(f"{keys.task_prefix(QUEUE)}*")) == ARCHIVE_MAX_SIZE
    assert [bench.task(f"old-0000{number}") for number in range(3)] == [{}, {}, {}]


def lock_of(task_id: str) -> str:
    return keys.unique(QUEUE, "t", task_id.encode())


def test_what_the_archive_drops_leaves_no_unique_lock_and_takes_no_other_s(bench: QueueBench) -> None:
    cutoff_s = int((NOW - timedelta(days=90)).timestamp())
    bench.archive({"expired": cutoff_s - 1, "other": cutoff_s - 1, "wrong": cutoff_s - 1})
    bench.archive({f"old-{number:05d}": NOW_S - 20_000 + number for number in range(ARCHIVE_MAX_SIZE)})
    for task_id, owner in {"expired": "expired", "other": "new one", "old-00000": "old-00000", "a": "a"}.items():
        bench.db.hset(keys.task(QUEUE, task_id), "unique_key", lock_of(task_id))
        bench.db.set(lock_of(task_id), owner)
    bench.db.hset(keys.task(QUEUE, "wrong"), "unique_key", keys.archived(QUEUE))
    bench.activate("a")
    bench.db.hset(keys.task(QUEUE, "a"), "unique_key", lock_of("a"))
    assert bench.run(archive(QUEUE, [Archived("a", b"m")], NOW, ANY_OWNER)) == [OK]
    assert sorted(bench.db.keys(bench.key("unique:*"))) == [lock_of("a").encode(), lock_of("other").encode()]
    assert len(bench.places()["archived"]) == ARCHIVE_MAX_SIZE
    assert sorted(bench.states()) == sorted(bench.places()["archived"])


def test_an_archive_that_others_overfilled_shrinks_to_its_size_in_bounded_steps(bench: QueueBench) -> None:
    """One call for a million tasks too many would hold Redis for seconds; each takes 750 off and adds 500 at most."""
    bench.archive({f"old-{number:05d}": NOW_S - 20_000 + number for number in range(ARCHIVE_MAX_SIZE + 1700)})
    sizes = []
    for task_id in ("a", "b", "c", "d"):
        bench.activate(task_id)
        assert bench.run(archive(QUEUE, [Archived(task_id, b"m")], NOW, ANY_OWNER)) == [OK]
        sizes.append(bench.db.zcard(keys.archived(QUEUE)))
    assert sizes == [ARCHIVE_MAX_SIZE + more for more in (951, 202, 0, 0)]
    places = bench.places()["archived"]
    assert places[0] == "old-01704", "the oldest go"
    assert sorted(bench.states()) == sorted(places), "hashes go with their ids"


def test_what_was_archived_90_days_ago_is_deleted_in_bounded_batches(bench: QueueBench) -> None:
    # asynq's own script breaks above 7 999 of them, with the task already taken off active.
    cutoff_s = int((NOW - timedelta(days=90)).timestamp())
    bench.archive({f"old-{number:05d}": cutoff_s - 9_500 + number for number in range(9_502)})
    gone = []
    for number in range(21):
        bench.activate(f"new-{number:02d}")
        before = len(bench.places()["archived"])
        assert bench.run(archive(QUEUE, [Archived(f"new-{number:02d}", b"m")], NOW, ANY_OWNER)) == [OK]
        gone.append(before + 1 - len(bench.places()["archived"]))
    assert gone == [500] * 19 + [1, 0]
    # The one at the limit to the second has gone, too; the one after it has not.
    assert bench.places()["archived"][0] == "old-09501"
    assert len(bench.db.keys(f"{keys.task_prefix(QUEUE)}*")) == 22


def test_an_id_that_is_not_utf_8_reaches_the_archive(bench: QueueBench) -> None:
    raw = b"bad-\xff"
    bench.db.hset(keys.task_prefix(QUEUE).encode() + raw, mapping={"msg": b"?", "state": "active"})
    bench.db.lpush(keys.active(QUEUE), raw)
    bench.db.zadd(keys.lease(QUEUE), {raw: NOW_S + OURS.fraction})
    assert bench.run(archive(QUEUE, [Archived("bad-\udcff", b"valid")], NOW, Guard(OURS))) == [OK]
    assert bench.db.zrange(keys.archived(QUEUE), 0, -1) == [raw]
    assert bench.db.hgetall(keys.task_prefix(QUEUE).encode() + raw) == {b"msg": b"valid", b"state": b"archived"}
