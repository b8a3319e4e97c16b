"""The orders of lanes: sequences that survive retries, whoever brings their tasks back, and the newest first."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from fastq.broker.inspect.actions import Target, archive_task, delete_task
from fastq.broker.inspect.bulk import _archive_some, delete_some
from fastq.broker.inspect.move import ParkedTask, claim_tasks, commit_move
from fastq.broker.operation import Operation
from fastq.broker.operations.enqueue import EnqueueBatch, NewTask, _put_keyed
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
from fastq.broker.operations.keyed import KeyTerms
from fastq.broker.operations.lanes import in_lanes, sweep_lanes
from fastq.broker.operations.limits import Change, change_limit, set_limit
from fastq.broker.operations.maintain import forward
from fastq.broker.operations.walk import Source
from fastq.common.states import TaskState
from fastq.wire import keys
from fastq.wire.limit import Limit
from tests.broker.harness import NOW, NOW_NS, NOW_S, OURS, QUEUE, message, queue_bench
from tests.broker.operations.test_lanes import LaneBench

STRICT, LIFO, DEADLINE = "1:0:1:1:strict", "0:0:1:1:lifo", "0:0:1:1:deadline"


@pytest.fixture
def lanes(db: Redis, url: str) -> Iterator[LaneBench]:
    with queue_bench(db, url) as bench:
        yield LaneBench(bench)


def failed(task_id: str, retry_at_s: int = NOW_S - 1) -> Operation[object]:
    """Return what lets a task be tried again: at once, or at a time."""
    return retry(QUEUE, [Retried(task_id, message(task_id, group_key="x"), retry_at_s)], NOW, ANY_OWNER)


def forwarded() -> Operation[object]:
    return forward(QUEUE, NOW_NS, 100)


def look_again(lanes: LaneBench) -> None:
    """Let the time of the next look at a full lane come."""
    lanes.db.zadd(keys.full(QUEUE), {"x": 1}, xx=True)


# Sequences ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["x", "*"])
def test_a_task_that_is_tried_again_keeps_its_sequence_waiting(field: str, lanes: LaneBench) -> None:
    lanes.rule(field, STRICT)
    lanes.add("x", "a", "b")
    assert lanes.take() == ["a"]
    lanes.bench.run(in_lanes(failed("a"), QUEUE))
    assert (lanes.places("x"), lanes.full()) == ({"a"}, {"x"})
    look_again(lanes)
    assert lanes.take() == [], "b waits for a"
    lanes.add("x", "c")
    assert lanes.take() == []
    lanes.bench.run(in_lanes(forwarded(), QUEUE))
    assert lanes.rings()
    assert lanes.take() == ["a"]
    lanes.done("a")
    assert lanes.take() == ["b"]


def test_a_sequence_whose_only_task_is_tried_again_waits_for_it(lanes: LaneBench) -> None:
    lanes.rule("x", STRICT)
    lanes.add("x", "a")
    assert lanes.take() == ["a"]
    lanes.bench.run(in_lanes(failed("a"), QUEUE))
    assert lanes.turns() == set()
    lanes.add("x", "b")
    assert lanes.take() == []
    lanes.bench.run(in_lanes(forwarded(), QUEUE))
    assert lanes.take() == ["a"]


def test_a_sequence_keeps_no_place_in_its_pool(lanes: LaneBench) -> None:
    lanes.limit(**{"*": STRICT, "p:*": "1:0:1:1"})
    lanes.add("p:x", "a", "b")
    lanes.add("p:y", "c")
    assert lanes.take() == ["a"]
    lanes.bench.run(in_lanes(failed("a", NOW_S + 60), QUEUE))
    assert (lanes.places("p:x"), lanes.places("p:*")) == ({"a"}, set())
    assert lanes.take() == ["c"]


def test_what_peers_bring_back_is_the_first_too(lanes: LaneBench) -> None:
    """Their recoverers and forwarders know nothing of places."""
    lanes.rule("x", STRICT)
    lanes.add("x", "a", "b")
    assert lanes.take() == ["a"]
    lanes.bench.run(failed("a"))
    look_again(lanes)
    assert lanes.take() == []
    lanes.bench.run(forwarded())
    assert lanes.take() == []
    look_again(lanes)
    assert lanes.take() == ["a"]


@pytest.mark.parametrize("state", ["archived", "gone"])
def test_a_sequence_goes_on_when_its_task_is_tried_no_more(state: str, lanes: LaneBench) -> None:
    lanes.rule("x", STRICT)
    lanes.add("x", "a", "b")
    assert lanes.take() == ["a"]
    lanes.bench.run(in_lanes(failed("a"), QUEUE))
    lanes.db.zrem(keys.retry(QUEUE), "a")  # as an inspector does
    if state == "gone":
        lanes.db.delete(keys.task(QUEUE, "a"))
    else:
        lanes.db.hset(keys.task(QUEUE, "a"), "state", state)
    assert lanes.take() == []
    look_again(lanes)
    assert lanes.take() == ["b"]


REPLACING = NewTask("a", message("a"), terms=KeyTerms("replace", "mark"))
RETRYING = Source(QUEUE, keys.retry(QUEUE), TaskState.RETRY)
LEAVING: dict[str, list[Operation[Any]]] = {
    "archived": [archive_task(Target(QUEUE, "a"), NOW)],
    "deleted": [delete_task(Target(QUEUE, "a"))],
    "archived with all": [_archive_some(NOW, RETRYING, 10)],
    "deleted with all": [delete_some(RETRYING, 10)],
    "moved": [claim_tasks(RETRYING, [b"a"], "token", "other", 0), commit_move(QUEUE, "token", [ParkedTask(b"a")])],
    "replaced": [_put_keyed(EnqueueBatch(QUEUE, TaskState.PENDING, [REPLACING], NOW_NS))],
}


@pytest.mark.parametrize("way", LEAVING)
def test_a_task_that_leaves_a_sequence_leaves_its_place(way: str, lanes: LaneBench) -> None:
    """If nothing waits in the lane, nobody looks at its places again. Found by seed 540403 of any-lanes."""
    lanes.rule("x", STRICT)
    lanes.add("x", "a")
    assert lanes.take() == ["a"]
    lanes.bench.run(in_lanes(failed("a", NOW_S + 60), QUEUE))
    assert lanes.places("x") == {"a"}
    for step in LEAVING[way]:
        lanes.bench.run(step)
    assert lanes.places("x") == set()


def test_a_sequence_does_not_wait_for_what_has_replaced_its_task(lanes: LaneBench) -> None:
    lanes.rule("x", STRICT)
    lanes.add("x", "a", "b")
    assert lanes.take() == ["a"]
    lanes.bench.run(in_lanes(failed("a", NOW_S + 60), QUEUE))
    lanes.db.hdel(keys.task(QUEUE, "a"), "group")  # as an older version replaces it by key
    look_again(lanes)
    assert lanes.take() == ["b"]


ENDS = {
    "done": done(QUEUE, [Done("a")], NOW, lanes=["x"]),
    "complete": in_lanes(complete(QUEUE, [Completed("a", message("a"), NOW_S + 60)], NOW), QUEUE),
    "archive": in_lanes(archive(QUEUE, [Archived("a", message("a"))], NOW, ANY_OWNER), QUEUE),
}


@pytest.mark.parametrize("name", ENDS)
def test_an_end_lets_the_next_one_of_a_sequence_start(name: str, lanes: LaneBench) -> None:
    lanes.rule("x", STRICT)
    lanes.add("x", "a", "b")
    assert lanes.take() == ["a"]
    lanes.bench.run(ENDS[name])
    assert lanes.take() == ["b"]


@pytest.mark.parametrize("rule", [STRICT, LIFO, DEADLINE])
@pytest.mark.parametrize("name", ["requeue", "put_back", "park"])
def test_what_was_not_run_is_the_next_of_its_lane(name: str, rule: str, lanes: LaneBench) -> None:
    lanes.rule("x", rule)
    lanes.add("x", "a", "b", "c")
    (first,) = lanes.take(1)
    guard = Guard(OURS, NOW_S + 60)
    operation: Operation[object] = {
        "requeue": in_lanes(requeue(QUEUE, [first], NOW_NS, guard), QUEUE),
        "put_back": in_lanes(put_back(QUEUE, [PutBack(first, message(first))], NOW_NS, guard), QUEUE),
        "park": park(QUEUE, [Parked(first, 0)], NOW_NS, guard),
    }[name]
    lanes.bench.run(operation)
    assert lanes.take(1) == [first]


def test_a_task_that_was_run_at_once_keeps_its_place_meanwhile(lanes: LaneBench) -> None:
    lanes.rule("x", STRICT)
    lanes.add("x", "a", "b")
    assert lanes.take() == ["a"]
    lanes.bench.run(in_lanes(failed("a", NOW_S + 60), QUEUE))
    lanes.db.zrem(keys.retry(QUEUE), "a")  # as `fastq task run` does
    lanes.db.hset(keys.task(QUEUE, "a"), "state", "pending")
    look_again(lanes)
    assert lanes.take() == []
    lanes.db.lpush(keys.pending(QUEUE), "a")
    assert lanes.take() == ["a"]
    look_again(lanes)
    assert lanes.take() == []
    lanes.done("a")
    assert lanes.take() == ["b"]


def test_a_pause_of_a_lane_leaves_the_order_of_each_in_force(lanes: LaneBench) -> None:
    lanes.rule("*", STRICT)
    lanes.add("x", "a", "b")
    assert lanes.take() == ["a"]
    assert lanes.bench.drive(change_limit(QUEUE, "x", Change.PAUSE))
    lanes.bench.run(in_lanes(failed("a", NOW_S + 60), QUEUE))
    assert lanes.bench.drive(change_limit(QUEUE, "x", Change.RESUME))
    assert lanes.take() == []
    assert lanes.places("x") == {"a"}


def test_an_order_that_is_set_or_removed_holds_from_then_on(lanes: LaneBench) -> None:
    lanes.add("x", "a", "b", "c")
    lanes.bench.drive(set_limit(QUEUE, "x", Limit(1, order="strict")))
    assert lanes.take() == ["a"]
    lanes.bench.run(in_lanes(failed("a", NOW_S + 60), QUEUE))
    assert lanes.take() == []
    lanes.bench.drive(set_limit(QUEUE, "x", Limit(order="lifo")))
    assert lanes.take() == ["c", "b"]


class Days:
    """Steps of two lanes of one task at a time each: x is a sequence, y is not."""

    def __init__(self, lanes: LaneBench, seed: int) -> None:
        self.lanes, self.dice = lanes, random.Random(seed)
        self.names = {lane: [f"{lane}{n:02}" for n in range(40)] for lane in "xy"}
        self.to_come = {lane: list(ids) for lane, ids in self.names.items()}
        self.running: list[str] = []
        self.started: list[str] = []
        self.ended: list[str] = []
        lanes.limit(x=STRICT, y="1:0:1:1")

    def ends(self, *, is_for_good: bool = True) -> str | None:
        if not self.running:
            return None
        self.running.remove(task_id := self.dice.choice(self.running))
        self.ended += [task_id] * is_for_good
        return task_id

    def run(self, operation: Operation[object], *, by_peer: bool = False) -> None:
        is_ours = not by_peer or self.dice.random() < 0.5
        self.lanes.bench.run(in_lanes(operation, QUEUE) if is_ours else operation)

    def add(self) -> None:
        for lane, ids in self.to_come.items():
            for task_id in ids[:3]:
                self.lanes.add(lane, task_id)
            del ids[:3]

    def take(self) -> None:
        taken = self.lanes.take(self.dice.choice((1, 10)))
        self.started += [task_id for task_id in taken if task_id not in self.started]
        self.running += taken
        assert len({one[0] for one in self.running}) == len(self.running)
        for task_id in taken:
            before = [one for one in self.names["x"] if one < task_id]
            assert task_id[0] == "y" or {*before} <= {*self.ended}

    def done(self) -> None:
        if task_id := self.ends():
            self.lanes.done(task_id)

    def archive(self) -> None:
        if task_id := self.ends():
            self.run(archive(QUEUE, [Archived(task_id, b"")], NOW, ANY_OWNER))

    def retry(self) -> None:
        if task_id := self.ends(is_for_good=False):
            self.run(failed(task_id), by_peer=True)

    def give_back(self) -> None:
        if task_id := self.ends(is_for_good=False):
            self.run(requeue(QUEUE, [task_id], NOW_NS, ANY_OWNER))

    def forward(self) -> None:
        self.run(forwarded(), by_peer=True)
        self.lanes.bench.run(sweep_lanes(QUEUE, 0))

    def delete(self) -> None:
        for found in self.lanes.db.zrange(keys.retry(QUEUE), 0, 0):
            self.lanes.db.zrem(keys.retry(QUEUE), found)
            self.lanes.db.delete(keys.task(QUEUE, found.decode()))
            self.ended.append(found.decode())

    def look(self) -> None:
        for lane in "xy":
            self.lanes.db.zadd(keys.full(QUEUE), {lane: 1}, xx=True)


@pytest.mark.parametrize("seed", range(6))
def test_a_sequence_is_never_out_of_order(seed: int, lanes: LaneBench) -> None:
    """Whatever fails, whoever retries, brings back and recovers; a lane of one at a time would be."""
    days = Days(lanes, seed)
    steps = (days.take, days.add, days.take, days.done, days.archive, days.retry, days.give_back)
    while len(days.ended) < 80:
        days.dice.choice((*steps, days.forward, days.delete, days.look))()
    assert [one for one in days.started if one[0] == "x"] == days.names["x"]
    assert (lanes.take(), lanes.bench.places().get("retry")) == ([], None)


# The newest first ---------------------------------------------------------------------------------------------------


def test_the_newest_is_the_first(lanes: LaneBench) -> None:
    lanes.rule("x", LIFO)
    lanes.add("x", "a", "b", "c")
    lanes.add("x", "d", state=TaskState.SCHEDULED, run_at_s=NOW_S - 1)
    lanes.bench.run(in_lanes(forward(QUEUE, NOW_NS + 1_000_000_000, 10), QUEUE))
    assert lanes.take(2) == ["d", "c"]
    lanes.rule("x", "0:0:1:1")
    assert lanes.take() == ["a", "b"]


# The earliest deadline first ----------------------------------------------------------------------------------------


def by(deadline_s: int, priority: int = 0) -> str:
    """Return the priority of a task with a deadline, 0 for none, as clients write it."""
    return f"{priority}:{deadline_s}" if deadline_s else str(priority)


def test_the_earliest_deadline_is_the_first_and_none_is_the_last(lanes: LaneBench) -> None:
    lanes.rule("x", DEADLINE)
    lanes.add("x", "none")
    lanes.bench.put("go", "aggregating")
    lanes.db.zadd(keys.group(QUEUE, "x"), {"go": NOW_S + 1})
    lanes.add("x", "urgent", priority=100)
    lanes.add("x", "late", priority=by(NOW_S + 3600, 100))
    lanes.add("x", "never", priority=by(253_402_300_799))
    lanes.add("x", "soon-a", "soon-b", priority=by(NOW_S + 60))
    lanes.add("x", "past", priority=by(1))
    assert lanes.take() == ["past", "soon-a", "soon-b", "late", "urgent", "never", "none", "go"]


def test_a_deadline_changes_nothing_in_a_lane_without_the_order(lanes: LaneBench) -> None:
    lanes.add("x", "a", priority=by(NOW_S + 60))
    lanes.add("x", "b", priority=by(NOW_S + 1))
    assert lanes.add("x", "c", priority=by(NOW_S + 60, 1)) == [1]
    assert lanes.db.hkeys(keys.task(QUEUE, "a")) == lanes.db.hkeys(keys.task(QUEUE, "b"))
    assert "priority" not in lanes.bench.task("a")
    assert lanes.take() == ["c", "a", "b"]


class Deadlines:
    """Steps of a lane whose tasks have deadlines or none: the most urgent one that waits is taken."""

    def __init__(self, lanes: LaneBench, seed: int) -> None:
        self.lanes, self.dice = lanes, random.Random(seed)
        self.to_come = [f"{n:02}" for n in range(60)]
        self.dues = {one: self.dice.choice((0, NOW_S + self.dice.randrange(30))) for one in self.to_come}
        self.front: list[str] = []
        self.waiting: set[str] = set()
        self.later: set[str] = set()
        self.running: list[str] = []
        lanes.rule("x", DEADLINE)

    def add(self) -> None:
        for task_id in self.to_come[:4]:
            state = self.dice.choice((TaskState.AGGREGATING, TaskState.SCHEDULED))
            self.lanes.add("x", task_id, priority=by(self.dues[task_id]), state=state, run_at_s=NOW_S - 1)
            (self.later if state is TaskState.SCHEDULED else self.waiting).add(task_id)
        del self.to_come[:4]

    def ends(self) -> str:
        return self.running.pop(self.dice.randrange(len(self.running)))

    def take(self) -> None:
        taken = self.lanes.take(self.dice.choice((1, 5)))
        for task_id in taken:
            if task_id in self.front:
                self.front.remove(task_id)
                continue
            assert not self.front
            self.waiting.remove(task_id)
            due = self.dues[task_id] or NOW_S * 2
            assert due <= min((self.dues[one] or NOW_S * 2 for one in self.waiting), default=due)
        self.running += taken

    def done(self) -> None:
        self.lanes.done(self.ends())

    def retry(self) -> None:
        self.lanes.bench.run(in_lanes(failed(task_id := self.ends()), QUEUE))
        self.later.add(task_id)

    def give_back(self) -> None:
        self.lanes.bench.run(in_lanes(requeue(QUEUE, [task_id := self.ends()], NOW_NS, ANY_OWNER), QUEUE))
        self.front.append(task_id)

    def forward(self) -> None:
        self.lanes.bench.run(in_lanes(forwarded(), QUEUE))
        self.waiting |= self.later
        self.later.clear()


@pytest.mark.parametrize("seed", range(6))
def test_the_most_urgent_of_those_that_wait_is_always_the_next(seed: int, lanes: LaneBench) -> None:
    """Whatever was scheduled, failed or was given back."""
    days = Deadlines(lanes, seed)
    while days.to_come or days.front or days.waiting or days.later or days.running:
        ends = (days.done, days.done, days.retry, days.give_back) if days.running else ()
        days.dice.choice((days.add, days.take, days.forward, *ends))()


# Priorities ---------------------------------------------------------------------------------------------------------


def test_the_highest_priority_is_the_first_and_of_equals_the_oldest(lanes: LaneBench) -> None:
    lanes.add("x", "a", "b")
    lanes.add("x", "c", "d", priority=5)
    lanes.add("x", "e", priority=-100)
    lanes.add("x", "f", priority=100)
    assert lanes.bench.task("f")["priority"] == b"100"
    assert "priority" not in lanes.bench.task("a")
    assert lanes.take() == ["f", "c", "d", "a", "b", "e"]


def test_a_task_of_a_peer_has_the_priority_of_one_without(lanes: LaneBench) -> None:
    lanes.add("x", "low", priority=-1)
    lanes.bench.put("go", "aggregating")
    lanes.db.zadd(keys.group(QUEUE, "x"), {"go": NOW_S})
    lanes.add("x", "high", priority=1)
    assert lanes.take() == ["high", "go", "low"]


@pytest.mark.parametrize("rule", [LIFO, "0:0:1:1"])
def test_a_priority_survives_schedules_and_retries(rule: str, lanes: LaneBench) -> None:
    lanes.rule("x", rule)
    lanes.add("x", "high", priority=7)
    assert lanes.take() == ["high"]
    lanes.bench.run(in_lanes(failed("high"), QUEUE))
    lanes.add("x", "low", state=TaskState.SCHEDULED, run_at_s=NOW_S - 1, priority=-7)
    lanes.add("x", "middle", state=TaskState.SCHEDULED, run_at_s=NOW_S - 1)
    lanes.add("x", "waits")
    lanes.bench.run(in_lanes(forwarded(), QUEUE))
    taken = lanes.take()
    assert (taken[0], taken[-1]) == ("high", "low")
    assert "priority" not in lanes.bench.task("middle")


def test_what_comes_back_into_a_lifo_lane_is_before_what_comes_with_a_lower_priority(lanes: LaneBench) -> None:
    """Found by seed 1 of the simulation's single-lanes: it stood behind all that came later."""
    lanes.rule("x", LIFO)
    lanes.add("x", "a")
    assert lanes.take() == ["a"]
    lanes.bench.run(in_lanes(requeue(QUEUE, ["a"], NOW_NS, Guard(OURS, NOW_S + 60)), QUEUE))
    lanes.add("x", "low", priority=-1)
    assert lanes.take() == ["a", "low"]


def test_what_comes_back_into_a_lifo_lane_keeps_its_priority_beside_a_deadline(lanes: LaneBench) -> None:
    lanes.rule("x", LIFO)
    lanes.add("x", "a", priority=by(NOW_S + 60, 3))
    assert lanes.take() == ["a"]
    lanes.bench.run(in_lanes(requeue(QUEUE, ["a"], NOW_NS, Guard(OURS, NOW_S + 60)), QUEUE))
    lanes.add("x", "low", priority=1)
    assert lanes.take() == ["a", "low"]


def test_a_task_that_was_there_keeps_its_priority(lanes: LaneBench) -> None:
    lanes.add("x", "a", priority=1)
    lanes.add("x", "b", state=TaskState.SCHEDULED, run_at_s=NOW_S + 60, priority=1)
    assert lanes.add("x", "a", priority=9) == [0]
    assert lanes.add("x", "b", "c", state=TaskState.SCHEDULED, run_at_s=NOW_S + 60, priority=9) == [0, 1]
    assert [lanes.bench.task(one)["priority"] for one in "abc"] == [b"1", b"1", b"9"]
