"""Tasks in lanes: what they become in Redis, which of them are taken, and what becomes of their places."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.dequeue import NoTasks, Taken, take
from fastq.broker.operations.enqueue import EnqueueBatch, EnqueueOutcome, NewTask, _operation
from fastq.broker.operations.finish import (
    ANY_OWNER,
    Archived,
    Completed,
    Done,
    Guard,
    Parked,
    PutBack,
    Retried,
    archive,
    complete,
    done,
    park,
    put_back,
    requeue,
    retry,
)
from fastq.broker.operations.lanes import in_lanes
from fastq.broker.operations.limits import LANES_A_CALL, Change, change_limit, set_limit, write_limit
from fastq.broker.operations.maintain import forward
from fastq.common.states import TaskState
from fastq.wire import keys
from fastq.wire.codec import view_task_message
from fastq.wire.limit import Limit
from tests.broker.harness import NOW, NOW_NS, NOW_S, OURS, QUEUE, THEIRS, QueueBench, message, queue_bench

SCORE = OURS.score(NOW_S)


class LaneBench:
    """A queue with lanes."""

    def __init__(self, bench: QueueBench) -> None:
        self.bench, self.db = bench, bench.db

    def limit(self, **rules: str) -> None:
        for name, rule in rules.items():
            self.rule(name, rule)

    def rule(self, name: str, rule: str) -> None:
        self.db.hset(keys.limits(QUEUE), name, rule)

    def add(self, lane: str, *ids: str, state: TaskState = TaskState.AGGREGATING, **more: Any) -> Sequence[Any]:
        tasks = [NewTask(one, message(one, group_key=lane), group=lane, **more) for one in ids]
        return self.bench.run(_operation(EnqueueBatch(QUEUE, state, tasks, NOW_NS, in_lane=True)))

    def take(self, count: int = 100) -> list[str]:
        taken = self.taken(count)
        return [task.id for task in taken.leased.tasks]

    def taken(self, count: int = 100) -> Taken:
        taken = self.bench.run(take(QUEUE, count, SCORE))
        assert isinstance(taken, Taken)
        return taken

    def done(self, *ids: str) -> None:
        lanes = [view_task_message(self.bench.task(one)["msg"]).group_key for one in ids]
        outcomes = self.bench.run(done(QUEUE, [Done(one) for one in ids], NOW, lanes=lanes))
        assert set(outcomes) == {1}

    def places(self, lane: str) -> set[str]:
        return {one.decode() for one in self.db.smembers(keys.held(QUEUE, lane))}

    def turns(self) -> set[str]:
        return {one.decode() for one in self.db.zrange(keys.turns(QUEUE), 0, -1)}

    def full(self) -> set[str]:
        return {one.decode() for one in self.db.zrange(keys.full(QUEUE), 0, -1)}

    def rings(self) -> bool:
        return bool(self.db.exists(keys.bell(QUEUE)))


@pytest.fixture
def lanes(db: Redis, url: str) -> Iterator[LaneBench]:
    with queue_bench(db, url) as bench:
        yield LaneBench(bench)


# Enqueue ------------------------------------------------------------------------------------------------------------


def test_a_task_waits_in_its_lane_as_in_a_group(lanes: LaneBench) -> None:
    assert lanes.add("openai:acme", "a", "b") == [EnqueueOutcome.ENQUEUED] * 2
    assert lanes.bench.task("a") == {
        "msg": message("a", group_key="openai:acme"),
        "state": b"aggregating",
        "group": b"openai:acme",
    }
    assert lanes.db.zrange(keys.group(QUEUE, "openai:acme"), 0, -1, withscores=True) == [(b"a", NOW_S), (b"b", NOW_S)]
    assert lanes.db.smembers(keys.groups(QUEUE)) == {b"openai:acme"}
    assert lanes.turns() == {"openai:acme"}
    assert lanes.rings()


def test_the_first_task_makes_the_queue_one_with_lanes_and_tells_servers(lanes: LaneBench) -> None:
    with lanes.db.pubsub() as told:
        told.subscribe(keys.due_channel(QUEUE))
        told.get_message(timeout=5)
        lanes.add("x", "a")
        assert lanes.db.hgetall(keys.limits(QUEUE)) == {b"*": b"0:0:1:1"}
        assert told.get_message(timeout=5)["data"] == b"limits"


@pytest.mark.parametrize("field", ["openai:acme", "openai:*", "*"])
def test_a_lane_with_a_rule_makes_none(field: str, lanes: LaneBench) -> None:
    lanes.rule(field, "1:0:1:1")
    lanes.add("openai:acme", "a")
    assert lanes.db.hgetall(keys.limits(QUEUE)) == {field.encode(): b"1:0:1:1"}


def test_ids_and_locks_are_refused_as_elsewhere(lanes: LaneBench) -> None:
    lock = keys.unique(QUEUE, "t", b"")
    assert lanes.add("x", "a", lock=lock, lock_ttl_s=60) == [1]
    assert lanes.add("x", "b", lock=lock, lock_ttl_s=60) == [-1]
    assert lanes.add("y", "a") == [0]
    assert lanes.turns() == {"x"}
    assert lanes.bench.task("a")["unique_key"] == lock.encode()


def test_a_scheduled_task_reaches_its_lane_and_gets_a_turn(lanes: LaneBench) -> None:
    lanes.add("x", "a", state=TaskState.SCHEDULED, run_at_s=NOW_S - 1)
    assert lanes.db.hgetall(keys.limits(QUEUE)) == {b"*": b"0:0:1:1"}
    assert lanes.turns() == set()
    lanes.bench.run(in_lanes(forward(QUEUE, NOW_NS, 10), QUEUE))
    assert lanes.turns() == {"x"}
    assert lanes.rings()
    assert lanes.take() == ["a"]


def test_a_new_limit_of_each_lane_also_reaches_lanes_behind_a_full_pool(lanes: LaneBench) -> None:
    lanes.rule("*", "1:0:1:1")
    behind = [f"lane{nth:03}" for nth in range(LANES_A_CALL)]
    lanes.db.zadd(keys.full(QUEUE), {"pool:*": "9e15", **dict.fromkeys(behind, "9.1e15")})
    lanes.bench.drive(set_limit(QUEUE, "*", Limit(5)))
    assert lanes.turns() == set(behind)
    assert lanes.db.zrange(keys.full(QUEUE), 0, -1, withscores=True) == [(b"pool:*", 0)]


def test_the_last_rule_stays_while_the_archive_may_give_a_task_back(lanes: LaneBench) -> None:
    """Without a rule its lane would be a group, which is combined. Found by seed 542501 of any-lanes."""
    lanes.rule("*", "1:0:1:1")
    lanes.db.zadd(keys.archived(QUEUE), {"a": NOW_S})
    assert lanes.bench.drive(change_limit(QUEUE, "*", Change.REMOVE))
    assert lanes.db.hgetall(keys.limits(QUEUE)) == {b"*": b"0:0:1:1"}
    lanes.db.delete(keys.archived(QUEUE))
    assert lanes.bench.drive(change_limit(QUEUE, "*", Change.REMOVE))
    assert lanes.db.hgetall(keys.limits(QUEUE)) == {}


def test_a_group_without_a_rule_gets_no_turn(lanes: LaneBench) -> None:
    lanes.rule("x", "1:0:1:1")
    lanes.bench.put("a", "scheduled")
    lanes.db.hset(keys.task(QUEUE, "a"), "group", "combined")
    lanes.db.zadd(keys.scheduled(QUEUE), {"a": NOW_S - 1})
    lanes.bench.run(in_lanes(forward(QUEUE, NOW_NS, 10), QUEUE))
    assert lanes.bench.states() == {"a": "aggregating"}
    assert lanes.turns() == set()


# Take ---------------------------------------------------------------------------------------------------------------


def test_a_taken_task_is_active_and_leased(lanes: LaneBench) -> None:
    lanes.add("x", "a")
    assert lanes.take() == ["a"]
    assert lanes.bench.states() == {"a": "active"}
    assert lanes.bench.places() == {"active": ["a"], "lease": ["a"]}
    assert lanes.bench.scores("lease") == {"a": float(SCORE)}
    assert lanes.turns() == set()
    assert lanes.db.smembers(keys.groups(QUEUE)) == set()
    assert not lanes.rings()


def test_pending_is_taken_too(lanes: LaneBench) -> None:
    lanes.rule("*", "0:0:1:1")
    lanes.bench.pend("p1", "p2")
    lanes.add("x", "a", "b")
    taken = lanes.taken(3)
    assert [task.id for task in taken.leased.tasks] == ["p1", "p2", "a"]
    assert taken.leased.pending_since_ns == (NOW_NS, NOW_NS)
    assert "pending_since" not in lanes.bench.task("p1")
    assert lanes.take() == ["b"]


def test_a_paused_queue_and_one_without_rules_give_nothing(lanes: LaneBench) -> None:
    assert lanes.bench.run(take(QUEUE, 10, SCORE)) is NoTasks.WITHOUT_RULES
    lanes.add("x", "a")
    lanes.db.set(keys.paused(QUEUE), 1)
    assert lanes.bench.run(take(QUEUE, 10, SCORE)) is NoTasks.PAUSED


def test_a_lane_gets_as_many_as_it_has_places(lanes: LaneBench) -> None:
    lanes.rule("x", "2:0:1:1")
    lanes.add("x", "a", "b", "c")
    assert lanes.take() == ["a", "b"]
    assert lanes.places("x") == {"a", "b"}
    assert (lanes.turns(), lanes.full()) == (set(), {"x"})
    assert not lanes.rings()
    assert lanes.take() == []
    lanes.done("a")
    assert lanes.rings()
    assert lanes.take() == ["c"]
    assert lanes.places("x") == {"b", "c"}


def test_the_rule_of_all_lanes_is_each_ones_own(lanes: LaneBench) -> None:
    lanes.rule("*", "1:0:1:1")
    lanes.add("x", "a", "b")
    lanes.add("y", "c", "d")
    assert sorted(lanes.take()) == ["a", "c"]


def test_a_pool_bounds_its_lanes_together(lanes: LaneBench) -> None:
    lanes.limit(**{"openai:*": "3:0:1:1", "openai:a": "2:0:1:1"})
    for lane in "abc":
        lanes.add(f"openai:{lane}", *(f"{lane}{n}" for n in range(3)))
    first = lanes.take()
    assert len(first) == 3
    assert lanes.places("openai:*") == set(first)
    assert lanes.take() == []
    lanes.done(first[0])
    second = lanes.take()
    assert len(second) == 1
    seen = [*first, *second]
    running = {*first[1:], *second}
    while running:
        lanes.done(one := running.pop())
        more = lanes.take()
        assert len(more) <= 1
        seen += more
        running |= {*more}
        assert len(running) <= 3
        assert sum(other.startswith("a") for other in running) <= 2, one
    assert sorted(seen) == sorted(f"{lane}{n}" for lane in "abc" for n in range(3))


def test_a_queues_own_concurrency_counts_all_leases(lanes: LaneBench) -> None:
    lanes.limit(**{"": "3:0:1:1", "*": "0:0:1:1"})
    lanes.bench.activate("theirs", owner=THEIRS)
    lanes.bench.pend("p1", "p2")
    lanes.add("x", "a", "b")
    taken = lanes.taken()
    assert len(taken.leased.ids) == 2
    assert taken.is_full
    assert not lanes.rings()
    lanes.add("y", "c")
    assert not lanes.rings()
    assert lanes.take() == []
    lanes.done("p1")
    assert lanes.rings()
    assert len(lanes.take()) == 1


def test_turns_are_fair(lanes: LaneBench) -> None:
    lanes.add("hot", *(f"h{n:03}" for n in range(200)))
    lanes.add("cold", "c0", "c1")
    assert sorted(lanes.take(4)) == ["c0", "c1", "h000", "h001"]


def test_a_call_visits_no_more_lanes_than_redis_has_time_for(lanes: LaneBench) -> None:
    lanes.limit(**{"*": "1:0:1:1"})
    for n in range(120):
        lanes.add(f"lane{n}", f"task{n}")
    taken = lanes.taken(500)
    assert (len(taken.leased.tasks), taken.due_s) == (100, 0)
    assert lanes.rings()
    assert len(lanes.take(500)) == 20


def test_a_take_that_finds_nothing_due_stills_the_bell_and_says_when_to_come(lanes: LaneBench) -> None:
    lanes.limit(full="1:0:1:1", slow="0:3600000000:1:1")
    lanes.add("full", "a", "b")
    lanes.add("slow", "c", "d")
    assert sorted(lanes.take()) == ["a", "c"]
    lanes.db.lpush(keys.bell(QUEUE), "1")
    taken = lanes.taken()
    assert taken.leased.tasks == []
    assert taken.due_s
    assert not taken.is_full
    assert not lanes.rings()
    assert (lanes.turns(), lanes.full()) == ({"slow"}, {"full"})


def test_each_lane_has_its_turn_one_by_one(lanes: LaneBench) -> None:
    for lane in "xyz":
        lanes.add(lane, *(f"{lane}{n}" for n in range(3)))
    order = [lanes.take(1)[0] for _ in range(9)]
    assert [{one[0] for one in order[at : at + 3]} for at in (0, 3, 6)] == [{*"xyz"}] * 3


def test_a_lane_gets_its_weight(lanes: LaneBench) -> None:
    lanes.limit(x="0:0:1:3", y="0:0:1:1")
    lanes.add("x", *(f"x{n:03}" for n in range(100)))
    lanes.add("y", *(f"y{n:03}" for n in range(100)))
    taken = lanes.take(40)
    assert sum(one.startswith("x") for one in taken) == 30


def test_a_rate_is_kept(lanes: LaneBench) -> None:
    lanes.rule("x", "0:3600000000:2:1")
    lanes.add("x", "a", "b", "c")
    taken = lanes.taken()
    assert [task.id for task in taken.leased.tasks] == ["a", "b"]
    assert taken.rated == [0, 1]
    assert taken.due_s is not None
    assert 3500 < taken.due_s <= 3600
    assert not lanes.rings()
    lanes.done("a", "b")
    assert lanes.take() == []


def test_a_rate_that_is_changed_holds_at_once(lanes: LaneBench) -> None:
    lanes.rule("x", "0:3600000000:3:1")
    lanes.rule("api:*", "0:3600000000:3:1")
    lanes.add("x", *"abcdef")
    lanes.add("api:a", *"ghijkl")
    assert sorted(lanes.take()) == [*"abc", *"ghi"]
    for name in ("x", "api:*"):
        lanes.bench.run(write_limit(QUEUE, name, "set", "0:600000000:2:1"))
    assert sorted(lanes.take() + lanes.take()) == ["d", "j"]  # what waits for a pool gets its turn by the first one
    assert lanes.take() == []


def test_a_pools_rate_is_shared(lanes: LaneBench) -> None:
    lanes.rule("api:*", "0:3600000000:3:1")
    lanes.add("api:a", "a1", "a2")
    lanes.add("api:b", "b1", "b2")
    taken = lanes.taken()
    assert len(taken.leased.ids) == 3
    assert taken.rated == [0, 1, 2]
    assert lanes.take() == []
    lanes.done(taken.leased.tasks[0].id)
    assert lanes.take() == []


def test_a_paused_lane_waits(lanes: LaneBench) -> None:
    lanes.limit(x="0:0:1:1:paused")
    lanes.add("x", "a")
    lanes.add("y", "b")
    assert lanes.take() == ["b"]
    assert lanes.full() == {"x"}


# Ends ---------------------------------------------------------------------------------------------------------------

ENDS = {
    "done": done(QUEUE, [Done("a")], NOW, lanes=["p:x"]),
    "complete": in_lanes(complete(QUEUE, [Completed("a", message("a"), NOW_S + 60)], NOW), QUEUE),
    "retry": in_lanes(retry(QUEUE, [Retried("a", message("a"), NOW_S + 60)], NOW, ANY_OWNER), QUEUE),
    "archive": in_lanes(archive(QUEUE, [Archived("a", message("a"))], NOW, ANY_OWNER), QUEUE),
}


@pytest.mark.parametrize("name", ENDS)
def test_an_end_frees_the_place(name: str, lanes: LaneBench) -> None:
    lanes.limit(**{"p:*": "1:0:1:1", "p:x": "1:0:1:1"})
    lanes.add("p:x", "a", "b")
    lanes.add("p:y", "c")
    assert lanes.take() == ["a"]
    assert lanes.bench.run(ENDS[name]) == [1]
    assert (lanes.places("p:x"), lanes.places("p:*")) == (set(), set())
    assert lanes.rings()
    assert len(lanes.take()) == 1


@pytest.mark.parametrize("name", ENDS)
def test_an_end_that_is_not_ours_frees_none(name: str, lanes: LaneBench) -> None:
    lanes.limit(x="1:0:1:1")
    lanes.add("x", "a", "b")
    lanes.take()
    theirs = Guard(THEIRS)
    refused = {
        "done": done(QUEUE, [Done("a")], NOW, THEIRS, lanes=["x"]),
        "complete": in_lanes(complete(QUEUE, [Completed("a", message("a"), NOW_S + 60)], NOW, THEIRS), QUEUE),
        "retry": in_lanes(retry(QUEUE, [Retried("a", message("a"), NOW_S + 60)], NOW, theirs), QUEUE),
        "archive": in_lanes(archive(QUEUE, [Archived("a", message("a"))], NOW, theirs), QUEUE),
    }
    assert lanes.bench.run(refused[name]) == [-1]
    assert lanes.places("x") == {"a"}
    assert lanes.take() == []


def test_a_call_of_ends_frees_each_place_releases_each_lock_and_may_be_sent_again(lanes: LaneBench) -> None:
    lanes.limit(x="1:0:1:1", y="1:0:1:1")
    lock = keys.unique(QUEUE, "t", b"")
    lanes.add("x", "a", "next", lock="", lock_ttl_s=0)
    lanes.add("y", "b", lock=lock, lock_ttl_s=60)
    lanes.bench.pend("p")
    assert lanes.take() == ["p", "a", "b"]
    written = done(QUEUE, [Done("a"), Done("b", lock), Done("p"), Done("gone")], NOW, lanes=["x", "y", "", "x"])
    assert lanes.bench.run(written) == [1, 1, 1, 0]
    assert (lanes.places("x"), lanes.places("y")) == (set(), set())
    assert not lanes.db.exists(lock)
    assert lanes.take() == ["next"]
    assert lanes.bench.run(written) == [0, 0, 0, 0]
    assert lanes.places("x") == {"next"}


def test_an_end_with_the_lane_that_its_task_had_before_harms_none(lanes: LaneBench) -> None:
    """A late end may meet a task that another server has taken from another lane: a look frees its place."""
    lanes.limit(x="1:0:1:1", y="1:0:1:1")
    lanes.add("x", "m", "n")
    lanes.add("y", "a", "b")
    assert sorted(lanes.take()) == ["a", "m"]
    assert lanes.bench.run(done(QUEUE, [Done("a")], NOW, lanes=["x"])) == [1]
    assert lanes.places("x") == {"m"}
    assert lanes.take() == []
    lanes.db.zadd(keys.full(QUEUE), {"y": 1})  # the time of the look has come
    assert lanes.take() == ["b"]


@pytest.mark.parametrize("name", ["requeue", "put_back"])
def test_what_was_not_run_goes_to_the_front_of_its_lane(name: str, lanes: LaneBench) -> None:
    lanes.limit(x="2:0:1:1")
    lanes.add("x", "b", "c", "d")
    lanes.bench.pend("p")
    assert lanes.take() == ["p", "b", "c"]
    ids = ["b", "c", "p"]
    operation = {
        "requeue": requeue(QUEUE, ids, NOW_NS, Guard(OURS)),
        "put_back": put_back(QUEUE, [PutBack(one, message(one)) for one in ids], NOW_NS, Guard(OURS, NOW_S + 60)),
    }[name]
    assert lanes.bench.run(in_lanes(operation, QUEUE)) == [1, 1, 1]
    assert lanes.bench.states() == {"b": "aggregating", "c": "aggregating", "d": "aggregating", "p": "pending"}
    assert lanes.bench.places() == {"pending": ["p"]}
    assert lanes.places("x") == set()
    assert lanes.take() == ["p", "b", "c"]


def test_a_lane_whose_task_was_told_to_slow_down_rests(lanes: LaneBench) -> None:
    lanes.limit(x="2:0:1:1", p="1:0:1:1")
    lanes.add("x", "a", "b", "c")
    lanes.add("y", "d")
    assert set(lanes.take(3)) == {"a", "b", "d"}
    ends = [Parked("b", 60_000_000), Parked("a", 30_000_000)]
    assert lanes.bench.run(park(QUEUE, ends, NOW_NS, Guard(OURS))) == [1, 1]
    assert lanes.places("x") == set()
    assert lanes.rings(), "servers that rest are to ask until when"
    taken = lanes.taken()
    assert (taken.leased.tasks, lanes.full()) == ([], set())
    assert taken.due_s is not None
    assert 55 < taken.due_s <= 60
    assert not lanes.rings()
    lanes.add("x", "e")
    assert lanes.take() == [], "whoever adds to it finds it resting, too"
    lanes.db.zadd(keys.turns(QUEUE), {"x": 1})  # the time has come
    assert lanes.take() == ["a", "b"], "they are first, by their ids"
    assert lanes.bench.states()["a"] == "active"


def test_a_lane_that_rests_does_not_wait_for_its_pool(lanes: LaneBench) -> None:
    lanes.rule("pool:*", "1:0:1:1")
    lanes.add("pool:a", "a", "b")
    lanes.add("pool:b", "c")
    assert lanes.take() == ["a"]
    assert lanes.take() == []
    assert lanes.bench.run(park(QUEUE, [Parked("a", 30_000_000)], NOW_NS, Guard(OURS))) == [1]
    assert lanes.db.zrange(keys.pool_waiting(QUEUE, "pool"), 0, -1) == []
    assert lanes.take() == ["c"], "the place of the pool is free for others"
    assert lanes.take() == []


def test_a_lane_that_rests_gets_no_turn_when_its_pool_has_a_token(lanes: LaneBench) -> None:
    """Found by seed 410124 of the simulation's any-lanes: it waited for the token, and its rest was forgotten."""
    lanes.rule("pool:*", "0:60000000:1:1")
    lanes.add("pool:a", "a")
    lanes.add("pool:b", "b")
    assert lanes.take() == ["a"]
    assert lanes.take() == []
    assert lanes.bench.run(park(QUEUE, [Parked("a", 30_000_000)], NOW_NS, Guard(OURS))) == [1]
    lanes.add("pool:a", "c")
    assert lanes.db.zrange(keys.pool_waiting(QUEUE, "pool"), 0, -1) == [b"pool:b"]
    lanes.db.delete(keys.rates(QUEUE))
    lanes.db.zadd(keys.full(QUEUE), {"pool:*": 1})  # the time of a token has come
    assert lanes.take() + lanes.take() == ["b"]


def test_what_is_in_no_lane_any_more_is_pending_and_what_is_not_ours_stays(lanes: LaneBench) -> None:
    lanes.rule("x", "0:0:1:1")
    lanes.add("x", "a")
    assert lanes.take() == ["a"]
    lanes.bench.activate("other", owner=THEIRS)
    lanes.db.delete(keys.limits(QUEUE))
    ends = [Parked("other", 1), Parked("a", 1), Parked("none", 1)]
    assert lanes.bench.run(park(QUEUE, ends, NOW_NS, Guard(OURS))) == [-1, 1, -1]
    assert lanes.bench.states() == {"a": "pending", "other": "active"}
    assert lanes.bench.places()["pending"] == ["a"]


# Repairs ------------------------------------------------------------------------------------------------------------


def test_a_place_without_a_lease_is_free_at_the_next_look(lanes: LaneBench) -> None:
    lanes.limit(x="2:0:1:1")
    lanes.add("x", "a", "b", "c", "d")
    lanes.take()
    lanes.db.zrem(keys.lease(QUEUE), "a")  # as a peer's recoverer does
    assert lanes.take() == []
    lanes.db.zadd(keys.full(QUEUE), {"x": 1})  # the time of the look has come
    assert lanes.take() == ["c"]
    assert lanes.places("x") == {"b", "c"}


def test_a_lane_emptied_by_others_is_forgotten(lanes: LaneBench) -> None:
    lanes.add("x", "a")
    lanes.db.delete(keys.group(QUEUE, "x"), keys.task(QUEUE, "a"))
    assert lanes.take() == []
    assert lanes.turns() == set()
    assert not lanes.rings()


def test_an_id_without_a_task_is_dropped(lanes: LaneBench) -> None:
    lanes.limit(x="1:0:1:1")
    lanes.add("x", "a", "b")
    lanes.db.delete(keys.task(QUEUE, "a"))
    taken = lanes.taken()
    assert ([task.id for task in taken.leased.tasks], taken.leased.dangling) == (["b"], 1)
    assert lanes.places("x") == {"b"}


def test_no_more_bytes_are_taken_than_asked_for(lanes: LaneBench) -> None:
    big = [NewTask(f"a{n}", message(f"a{n}", group_key="x", payload=bytes(100_000)), group="x") for n in range(5)]
    lanes.bench.run(_operation(EnqueueBatch(QUEUE, TaskState.AGGREGATING, big, NOW_NS, in_lane=True)))
    assert lanes.take() == ["a0", "a1", "a2"]
    assert lanes.take() == ["a3", "a4"]
    assert lanes.turns() == set()
