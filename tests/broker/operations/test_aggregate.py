"""Aggregate: a group is taken when it is due; its tasks are replaced by one or given back, whatever is sent twice."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from fastq.broker.operations.aggregate import (
    MAX_SET,
    STRETCH,
    AggregationSet,
    CommitOutcome,
    GroupRule,
    GroupScan,
    Unlisted,
    archive_members,
    commit_set,
    delete_members,
    list_sets,
    read_set,
    reclaim_set,
    relist_groups,
    scan_groups,
    take_set,
    unlist_due_groups,
)
from fastq.broker.operations.enqueue import EnqueueBatch, NewTask, enqueue_operations
from fastq.broker.operations.lease import Leased, LeasedTask
from fastq.broker.operations.ticks import NamedTick, enqueue_tick
from fastq.common.states import TaskState
from fastq.errors import BrokerOutOfMemoryError
from fastq.wire import keys
from tests.broker.harness import NOW_NS, NOW_S, QUEUE, QueueBench, message, queue_bench

ONE = AggregationSet(QUEUE, "g", "set-1")
RULE = GroupRule(60)
DEADLINE_S = NOW_S + 120
LOCK = keys.unique(QUEUE, "t", b"x")
WHOLE = NewTask("whole", message("whole"))


@pytest.fixture
def bench(db: Redis, url: str) -> Iterator[QueueBench]:
    with queue_bench(db, url) as made:
        yield made


def join(bench: QueueBench, scores: dict[str, float], group: str = "g") -> None:
    """Let tasks be in a group."""
    for task_id in scores:
        bench.put(task_id, "aggregating", group_key=group)
        bench.db.hset(keys.task(QUEUE, task_id), "group", group)
    bench.db.zadd(keys.group(QUEUE, group), scores)
    bench.db.sadd(keys.groups(QUEUE), group)


def many(count: int) -> dict[str, float]:
    return {f"{number:05d}": float(number // 7) for number in range(count)}


def listed(bench: QueueBench) -> set[bytes]:
    members: set[bytes] = bench.db.smembers(keys.groups(QUEUE))
    return members


def sets(bench: QueueBench) -> dict[str, float]:
    return bench.scores("aggregation_sets")


def take(bench: QueueBench, rule: GroupRule = RULE, one: AggregationSet = ONE) -> int:
    return bench.run(take_set(one, rule, NOW_S, DEADLINE_S))


def commit(bench: QueueBench, task: NewTask = WHOLE, expected: int = 2, state: str = "pending") -> CommitOutcome:
    return bench.run(commit_set(ONE, expected, task, TaskState(state), NOW_NS))


# Which groups are due ---------------------------------------------------------------------------------------------

DUE = [
    (GroupRule(60), {"a": NOW_S - 60}, NOW_S - 60 + 60),
    (GroupRule(60), {"a": NOW_S - 59}, NOW_S + 1),
    (GroupRule(60), {"a": NOW_S - 500, "b": NOW_S - 59}, NOW_S + 1),
    (GroupRule(60, max_delay_s=500), {"a": NOW_S - 500, "b": NOW_S - 59}, NOW_S),
    (GroupRule(60, max_delay_s=500), {"a": NOW_S - 499, "b": NOW_S}, NOW_S + 1),
    (GroupRule(60, max_delay_s=500), {"a": NOW_S - 60}, NOW_S),
    (GroupRule(60, max_size=2), {"a": NOW_S, "b": NOW_S}, NOW_S),
    (GroupRule(60, max_size=2), {"a": NOW_S, "b": NOW_S, "c": NOW_S}, NOW_S),
    (GroupRule(60, max_size=3), {"a": NOW_S, "b": NOW_S}, NOW_S + 60),
]


@pytest.mark.parametrize(("rule", "scores", "due_s"), DUE)
def test_a_group_is_due_by_size_or_delay_or_grace(
    rule: GroupRule, scores: dict[str, float], due_s: int, bench: QueueBench
) -> None:
    join(bench, scores)
    is_due = due_s <= NOW_S
    expected = GroupScan(0, None, ["g"]) if is_due else GroupScan(0, due_s, [])
    assert bench.run(scan_groups(QUEUE, 0, rule, NOW_S)) == expected
    taken = min(len(scores), rule.max_size or MAX_SET) if is_due else 0
    assert take(bench, rule) == taken
    assert len(bench.scores("g:g")) == len(scores) - taken
    assert len(bench.scores("g:g:set-1")) == taken


def test_a_scan_looks_at_every_group_a_stretch_at_a_time(bench: QueueBench) -> None:
    names = {f"due-{number}" for number in range(1500)}
    for name in names:
        join(bench, {f"t-{name}": 1}, name)
    join(bench, {"x": NOW_S - 10}, "soon")
    join(bench, {"y": NOW_S - 1}, "later")
    bench.db.sadd(keys.groups(QUEUE), "empty", b"\xff")
    bench.db.set(keys.group(QUEUE, "odd"), "no set")
    bench.db.sadd(keys.groups(QUEUE), "odd")
    before = bench.db.dbsize()
    found, next_due, cursor, calls = set[str](), set[float | None](), 0, 0
    while True:
        scan = bench.run(scan_groups(QUEUE, cursor, RULE, NOW_S))
        found.update(scan.due)
        next_due.add(scan.next_due_s)
        cursor, calls = scan.cursor, calls + 1
        if not cursor:
            break
    assert found == names
    assert {NOW_S + 50} <= next_due <= {None, NOW_S + 50, NOW_S + 59}
    assert calls > 2
    assert bench.db.dbsize() == before
    assert bench.run(unlist_due_groups(QUEUE)) == Unlisted(0, 0, 1505, 0)


def test_a_rule_in_seconds_is_rounded_up() -> None:
    assert GroupRule.of_seconds(1.5, 0.2, 7) == GroupRule(2, 1, 7)
    assert GroupRule.of_seconds(60.0, 0.0, 0) == GroupRule(60, 0, 0)


# Taking -----------------------------------------------------------------------------------------------------------


def test_all_tasks_of_a_group_become_a_set_with_a_deadline_and_the_group_is_no_more(bench: QueueBench) -> None:
    join(bench, {"b": 2, "a": 1})
    states = bench.states()
    assert take(bench) == 2
    assert bench.scores("g:g:set-1") == {"a": 1, "b": 2}
    assert sets(bench) == {ONE.key: DEADLINE_S}
    assert listed(bench) == set()
    assert bench.scores("g:g") == {}
    assert bench.states() == states


def test_the_oldest_are_taken_and_the_rest_stays_listed(bench: QueueBench) -> None:
    join(bench, {"c": 3, "b": 2, "a": 1})
    assert take(bench, GroupRule(60, max_size=2)) == 2
    assert (bench.scores("g:g:set-1"), bench.scores("g:g")) == ({"a": 1, "b": 2}, {"c": 3})
    assert listed(bench) == {b"g"}


def test_no_set_is_larger_than_5000(bench: QueueBench) -> None:
    scores = many(MAX_SET + 3)
    bench.db.zadd(keys.group(QUEUE, "g"), scores)
    bench.db.sadd(keys.groups(QUEUE), "g")
    assert take(bench) == MAX_SET == 5000
    ids = sorted(scores)
    assert list(bench.scores("g:g:set-1")) == ids[:MAX_SET]
    assert list(bench.scores("g:g")) == ids[MAX_SET:]
    assert listed(bench) == {b"g"}


def test_taking_again_is_to_have_taken_once(bench: QueueBench) -> None:
    join(bench, {"c": 3, "b": 2, "a": 1})
    rule = GroupRule(60, max_size=2)
    assert [take(bench, rule), take(bench, rule)] == [2, 2]
    assert (bench.scores("g:g:set-1"), bench.scores("g:g")) == ({"a": 1, "b": 2}, {"c": 3})


def test_a_redis_out_of_memory_takes_nothing(bench: QueueBench) -> None:
    join(bench, {"a": 1, "b": 2})
    bench.db.config_set("maxmemory", 1)
    try:
        with pytest.raises(BrokerOutOfMemoryError):
            take(bench)
    finally:
        bench.db.config_set("maxmemory", 0)
    assert (bench.scores("g:g"), sets(bench), listed(bench)) == ({"a": 1, "b": 2}, {}, {b"g"})


# Reading ----------------------------------------------------------------------------------------------------------


def test_a_set_is_read_in_its_order_and_from_a_rank_on(bench: QueueBench) -> None:
    join(bench, {"c": 1, "a": 1, "b": 0})
    take(bench)
    read = bench.run(read_set(ONE, 0))
    assert read == Leased.of(LeasedTask(id, message(id, group_key="g")) for id in "bac")
    assert [task.id for task in bench.run(read_set(ONE, 2)).tasks] == ["c"]
    assert bench.run(read_set(ONE, 3)) == Leased([], [])


def test_one_call_reads_a_bounded_number_of_tasks_and_bytes(bench: QueueBench) -> None:
    join(bench, many(STRETCH + 1))
    take(bench)
    assert len(bench.run(read_set(ONE, 0)).tasks) == STRETCH
    join(bench, {"small": 1, "x-big": 2, "y": 3}, "h")
    bench.put("x-big", "aggregating", payload=bytes(300_000))
    big = AggregationSet(QUEUE, "h", "s")
    take(bench, one=big)
    assert [task.id for task in bench.run(read_set(big, 0)).tasks] == ["small", "x-big"]


def test_ids_without_a_task_are_dropped_and_counted(bench: QueueBench) -> None:
    join(bench, {"a": 1, "b": 2, "c": 3, "d": 4})
    take(bench)
    bench.db.delete(keys.task(QUEUE, "b"), keys.task(QUEUE, "d"))
    bench.db.set(keys.task(QUEUE, "d"), "no hash")
    read = bench.run(read_set(ONE, 0))
    assert ([task.id for task in read.tasks], read.dangling) == (["a", "c"], 2)
    assert list(bench.scores("g:g:set-1")) == ["a", "c"]


# Putting one task in their place ----------------------------------------------------------------------------------


def test_the_new_task_is_enqueued_and_the_set_is_marked(bench: QueueBench) -> None:
    join(bench, {"a": 1, "b": 2})
    take(bench)
    bench.pend("before")
    assert commit(bench) is CommitOutcome.DONE
    assert bench.places() == {"pending": ["whole", "before"]}
    assert bench.task("whole") == {"msg": WHOLE.message, "state": b"pending", "pending_since": str(NOW_NS).encode()}
    assert sets(bench) == {ONE.key: float("inf")}
    assert commit(bench) is CommitOutcome.DONE_BEFORE
    assert bench.places() == {"pending": ["whole", "before"]}


def test_a_marked_set_is_deleted_in_stretches_and_locks_go_if_they_are_the_tasks_own(bench: QueueBench) -> None:
    join(bench, {"a": 1, "b": 2, "c": 3})
    bench.db.set("asynq:{default}:unique:1", "a")
    bench.db.set("asynq:{default}:unique:2", "another")
    take(bench)
    assert bench.run(delete_members(ONE, {"a": "", "b": "", "c": ""})) == -1
    assert bench.states() == dict.fromkeys("abc", "aggregating")
    commit(bench, expected=3)
    locks = {"a": "asynq:{default}:unique:1", "b": "asynq:{default}:unique:2"}
    for _ in range(2):
        assert bench.run(delete_members(ONE, locks)) == 1
        assert bench.states() == {"c": "aggregating", "whole": "pending"}
        assert sets(bench) == {ONE.key: float("inf")}
        assert bench.db.keys("asynq:{default}:unique:*") == [b"asynq:{default}:unique:2"]
    assert bench.run(delete_members(ONE, {"c": ""})) == 0
    assert (bench.states(), sets(bench), bench.scores("g:g:set-1")) == ({"whole": "pending"}, {}, {})
    assert bench.run(delete_members(ONE, {"c": ""})) == -1


def test_an_empty_marked_set_goes_with_a_call_that_names_no_task(bench: QueueBench) -> None:
    bench.db.zadd(keys.aggregation_sets(QUEUE), {ONE.key: float("inf")})
    assert bench.run(delete_members(ONE, {})) == 0
    assert sets(bench) == {}


@pytest.mark.parametrize("state", ["scheduled", "aggregating"])
def test_the_new_task_goes_where_its_options_say(state: str, bench: QueueBench) -> None:
    join(bench, {"a": 1, "b": 2})
    take(bench)
    task = NewTask("whole", message("whole"), run_at_s=NOW_S + 60, group="h")
    assert commit(bench, task, state=state) is CommitOutcome.DONE
    assert bench.task("whole") == {"msg": task.message, "state": state.encode(), "group": b"h"}
    assert listed(bench) == {b"h"}
    assert bench.scores("scheduled") == ({"whole": NOW_S + 60} if state == "scheduled" else {})
    assert bench.scores("scheduled_groups") == ({"h": NOW_S + 60} if state == "scheduled" else {})
    assert bench.scores("g:h") == ({"whole": NOW_S} if state == "aggregating" else {})


def test_an_id_that_exists_changes_nothing(bench: QueueBench) -> None:
    join(bench, {"a": 1, "b": 2})
    take(bench)
    bench.pend("whole")
    before = bench.task("whole")
    assert commit(bench, WHOLE._replace(lock=LOCK, lock_ttl_s=60)) is CommitOutcome.ID_CONFLICT
    assert (bench.task("whole"), bench.places(), bench.db.exists(LOCK)) == (before, {"pending": ["whole"]}, 0)
    assert sets(bench) == {ONE.key: DEADLINE_S}


@pytest.mark.parametrize(
    ("holder", "outcome"),
    [("stranger", CommitOutcome.DUPLICATE), ("b", CommitOutcome.DONE), (None, CommitOutcome.DONE)],
)
def test_a_lock_is_taken_if_it_is_free_or_a_task_of_the_set_holds_it(
    holder: str | None, outcome: CommitOutcome, bench: QueueBench
) -> None:
    join(bench, {"a": 1, "b": 2})
    take(bench)
    if holder:
        bench.db.set(LOCK, holder)
    assert commit(bench, WHOLE._replace(lock=LOCK, lock_ttl_s=60)) is outcome
    if outcome is CommitOutcome.DUPLICATE:
        assert (bench.places(), bench.db.get(LOCK), sets(bench)) == ({}, b"stranger", {ONE.key: DEADLINE_S})
        return
    assert bench.task("whole")["unique_key"] == LOCK.encode()
    assert 0 < bench.db.ttl(LOCK) <= 60
    bench.run(delete_members(ONE, {"a": "", "b": LOCK}))
    assert bench.db.get(LOCK) == b"whole"


@pytest.mark.parametrize("expected", [1, 3])
def test_a_set_of_another_size_is_not_replaced(expected: int, bench: QueueBench) -> None:
    join(bench, {"a": 1, "b": 2})
    take(bench)
    assert commit(bench, expected=expected) is CommitOutcome.GONE
    assert (bench.places(), sets(bench)) == ({}, {ONE.key: DEADLINE_S})


def test_a_set_that_was_given_back_is_not_replaced(bench: QueueBench) -> None:
    join(bench, {"a": 1, "b": 2})
    take(bench)
    bench.run(reclaim_set(ONE))
    assert commit(bench) is CommitOutcome.GONE
    assert bench.places() == {}


# Giving back ------------------------------------------------------------------------------------------------------


def test_tasks_go_back_with_their_scores_and_the_group_is_listed_again(bench: QueueBench) -> None:
    join(bench, {"a": 1, "b": 2})
    take(bench)
    join(bench, {"c": 5})
    bench.db.srem(keys.groups(QUEUE), "g")
    for moved in (2, 0):
        assert bench.run(reclaim_set(ONE)) == moved
        assert bench.scores("g:g") == {"a": 1, "b": 2, "c": 5}
        assert (sets(bench), bench.db.exists(ONE.key), listed(bench)) == ({}, 0, {b"g"})


def test_a_large_set_goes_back_a_stretch_at_a_time_and_is_listed_until_the_end(bench: QueueBench) -> None:
    scores = many(STRETCH + 5)
    join(bench, scores)
    take(bench)
    assert bench.run(reclaim_set(ONE)) == STRETCH
    assert sets(bench) == {ONE.key: DEADLINE_S}
    assert bench.run(reclaim_set(ONE)) == 5
    assert (sets(bench), bench.scores("g:g")) == ({}, scores)


def test_only_the_tail_goes_back_if_a_rank_is_given(bench: QueueBench) -> None:
    join(bench, {"a": 1, "b": 2, "c": 3})
    take(bench)
    assert bench.run(reclaim_set(ONE, 1)) == 2
    assert (bench.scores("g:g:set-1"), bench.scores("g:g")) == ({"a": 1}, {"b": 2, "c": 3})
    assert sets(bench) == {ONE.key: DEADLINE_S}


def test_a_set_that_was_aggregated_is_not_given_back(bench: QueueBench) -> None:
    join(bench, {"a": 1, "b": 2})
    take(bench)
    commit(bench)
    assert bench.run(reclaim_set(ONE)) == -1
    assert (bench.scores("g:g"), listed(bench)) == ({}, set())


def test_sets_are_listed_by_their_deadline_or_as_aggregated(bench: QueueBench) -> None:
    names = {"old": NOW_S - 1, "now": NOW_S, "later": NOW_S + 1, "done": float("inf")}
    made = {name: AggregationSet(QUEUE, "g:with:colons", name) for name in names}
    bench.db.zadd(keys.aggregation_sets(QUEUE), {made[name].key: score for name, score in names.items()})
    bench.db.zadd(keys.aggregation_sets(QUEUE), {b"asynq:{default}:g:\xff:x": 1})
    assert bench.run(list_sets(QUEUE, NOW_S, 10)) == ([made["old"], made["now"]], [b"asynq:{default}:g:\xff:x"])
    assert bench.run(list_sets(QUEUE, NOW_S, 2)).sets == [made["old"]]
    assert bench.run(list_sets(QUEUE, None, 10)) == ([made["done"]], [])


def test_the_key_of_a_set_says_its_group_as_go_reads_it() -> None:
    one = AggregationSet(QUEUE, "a:b", "c0ffee")
    assert one.key == "asynq:{default}:g:a:b:c0ffee"
    assert AggregationSet.of_key(QUEUE, one.key) == one
    for foreign in ("garbage", "a:b", "asynq:{default}:g:no-set-id", "asynq:{other}:g:g:id", ""):
        assert AggregationSet.of_key(QUEUE, foreign) is None


# What cannot be read, what is not listed --------------------------------------------------------------------------


def test_tasks_that_cannot_be_read_go_to_the_archive_which_is_kept_within_bounds(bench: QueueBench) -> None:
    join(bench, {"a": 1, "b": 2})
    take(bench)
    bench.archive({f"old-{number}": NOW_S - 10 + number for number in range(3)} | {"ancient": 1})
    lock = keys.unique(QUEUE, "t", b"ancient")
    bench.db.hset(keys.task(QUEUE, "ancient"), "unique_key", lock)
    bench.db.set(lock, "ancient")
    archived = [("a", b"rewritten"), ("stranger", b"not in the set")]
    assert bench.run(archive_members(ONE, archived, NOW_S)) == 1
    assert list(bench.scores("archived")) == ["old-0", "old-1", "old-2", "a"]
    assert bench.task("a") == {"msg": b"rewritten", "state": b"archived", "group": b"g"}
    assert (bench.task("stranger"), bench.task("ancient"), bench.db.exists(lock)) == ({}, {}, 0)
    assert list(bench.scores("g:g:set-1")) == ["b"]
    assert bench.counters() == {}


def relist(bench: QueueBench, queue: str = QUEUE) -> int:
    cursor, groups = 0, 0
    while True:
        found = bench.run(relist_groups(queue, cursor))
        cursor, groups = found.cursor, groups + found.groups
        if not cursor:
            return groups


def test_groups_with_tasks_that_are_not_listed_are_listed(bench: QueueBench) -> None:
    join(bench, {"a": 1}, "lost")
    join(bench, {"b": 1}, "lost:too")
    join(bench, {"d": 1, "e": 2}, "listed")
    join(bench, {"c": 1})
    take(bench)  # its set looks like a group named g:set-1
    join(bench, {"f": 1}, "odd")
    bench.db.delete(keys.task(QUEUE, "f"))
    bench.db.set(keys.task(QUEUE, "f"), "no hash")
    bench.db.srem(keys.groups(QUEUE), "lost", "lost:too", "odd")
    bench.pend(*(f"p-{number}" for number in range(3000)))
    assert relist(bench) == 2
    assert listed(bench) == {b"listed", b"lost", b"lost:too"}
    assert relist(bench) == 0


def test_an_id_without_a_task_does_not_hide_a_group_that_is_not_listed(bench: QueueBench) -> None:
    join(bench, dict.fromkeys("abcdefghi", 1.0) | {"j": 2}, "lost")
    bench.db.delete(*(keys.task(QUEUE, dangling) for dangling in "abcdefghi"))
    bench.db.srem(keys.groups(QUEUE), "lost")
    assert relist(bench) == 1
    assert listed(bench) == {b"lost"}


def test_the_name_of_a_queue_is_no_pattern(db: Redis, url: str) -> None:
    with queue_bench(db, url, "q*[a]?\\") as bench:
        key = bench.key("g:x")
        bench.db.zadd(key, {"a": 1})
        bench.db.hset(bench.key("t:a"), "group", "x")
        bench.db.zadd("asynq:{qqa}:g:y", {"a": 1})
        assert relist(bench, bench.queue) == 1
        assert bench.db.smembers(bench.key("groups")) == {b"x"}


def test_every_state_of_a_set_is_seen_by_go_s_own_command(bench: QueueBench) -> None:
    """Go reclaims what ``ZRANGEBYSCORE -inf now`` finds: never a set that was aggregated."""
    join(bench, {"a": 1, "b": 2})
    take(bench)
    look: Any = bench.db.zrangebyscore
    key = keys.aggregation_sets(QUEUE)
    assert (look(key, "-inf", DEADLINE_S), look(key, "-inf", DEADLINE_S - 1)) == ([ONE.key.encode()], [])
    commit(bench)
    assert look(key, "-inf", 2**53) == []


def test_a_group_of_another_kind_of_key_is_an_error_that_changes_nothing(bench: QueueBench) -> None:
    bench.db.set(keys.group(QUEUE, "g"), "no set")
    assert take(bench) == 0
    with pytest.raises(ResponseError):
        bench.db.zcard(keys.group(QUEUE, "g"))


@pytest.mark.parametrize("way", ["schedule", "tick"])
def test_whoever_schedules_for_a_group_takes_groups_that_have_no_tasks_any_more_off_their_lists(
    way: str, bench: QueueBench
) -> None:
    """Where all servers are Go's, nothing else does."""

    def put(group: str, at_s: int) -> None:
        new = NewTask(group, message(group), run_at_s=at_s, group=group)
        batch = EnqueueBatch(QUEUE, TaskState.SCHEDULED, [new], NOW_NS)
        if way == "tick":
            bench.run(enqueue_tick(NamedTick(group, "entry", at_s, 60, "", 0), batch))
        else:
            for operation in enqueue_operations([batch], []):
                bench.run(operation)

    for at in range(30):
        put(f"gone{at}", NOW_S + at)
    put("grouped", NOW_S + 40)
    put("waits", NOW_S + 50)
    for name in [f"gone{at}" for at in range(30)] + ["grouped"]:
        bench.db.zrem(bench.key("scheduled"), name)
    bench.db.zadd(keys.group(QUEUE, "grouped"), {"grouped": NOW_S})  # by Go's forwarder
    for at in range(4):
        put(f"new{at}", NOW_S + 100)
    new = {f"new{at}".encode() for at in range(4)}
    assert {*bench.db.zrange(bench.key("scheduled_groups"), 0, -1)} == {b"waits", *new}
    assert bench.db.smembers(bench.key("groups")) == {b"grouped", b"waits", *new}
