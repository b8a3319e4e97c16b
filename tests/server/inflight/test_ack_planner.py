"""The plan of acks: ends become calls that are bounded in number, bytes and the steps that LREM takes."""

import itertools
import random
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import pytest

from fastq.broker.operation import Operation
from fastq.broker.operations.finish import (
    NEWEST_FIRST,
    OLDEST_FIRST,
    Archived,
    Completed,
    Disposition,
    Done,
    FinishOutcome,
    Requeued,
    Retried,
    Terms,
)
from fastq.server.base.lane_queues import LaneQueues
from fastq.server.inflight.ack_planner import (
    MAX_CALL_BYTES,
    MAX_CALL_STEPS,
    MAX_CALL_TASKS,
    AckCall,
    _parts,
    plan_acks,
)
from fastq.server.inflight.tasks import InFlightTask, InFlightTasks, SeqRange
from fastq.wire.codec import view_task_message
from tests.broker.harness import NOW_NS, NOW_S, OURS, QUEUE, message


class Setup:
    def __init__(self) -> None:
        self.tasks = InFlightTasks()
        self._taken = itertools.count()

    def hold(self, count: int, queue: str = QUEUE) -> list[InFlightTask]:
        return [self.tasks.add(queue, view_task_message(message(str(next(self._taken)))), 0.0) for _ in range(count)]

    def calls(self, tasks: list[InFlightTask], *, checks_done: bool = False) -> list[AckCall]:
        return plan_acks(tasks, self.tasks, OURS, NOW_NS, checks_done=checks_done)


@pytest.fixture
def setup() -> Setup:
    return Setup()


def end(task: InFlightTask, disposition: Disposition) -> InFlightTask:
    task.disposition = disposition
    return task


def done(tasks: list[InFlightTask]) -> list[InFlightTask]:
    return [end(task, Done(task.id)) for task in tasks]


def failed(tasks: list[InFlightTask]) -> list[InFlightTask]:
    return [end(task, Retried(task.id, b"m", NOW_S)) for task in tasks]


def side_of(call: AckCall) -> Any:
    return call.operation.args[2]


def ids_of(call: AckCall) -> list[str]:
    return [task.id for task in call.tasks]


def passed_by(calls: list[AckCall], tasks: list[InFlightTask]) -> list[int]:
    """Return how many elements of active each call passes, where these tasks are all that is active."""
    active = [task.id for task in tasks]
    steps = []
    for call in calls:
        passed = 0
        for task_id in ids_of(call):
            at = active.index(task_id)
            passed += at if side_of(call) == OLDEST_FIRST else len(active) - 1 - at
            del active[at]
        steps.append(passed)
    return steps


def test_each_queue_and_outcome_has_its_own_calls(setup: Setup) -> None:
    writes: list[Disposition] = [
        Done("a"),
        Completed("a", b"m", NOW_S),
        Retried("a", b"m", NOW_S),
        Archived("a", b"m"),
        Requeued("a"),
    ]
    ended = [end(task, write) for queue in ("q1", "q2") for write in writes for task in setup.hold(2, queue)]
    calls = setup.calls(ended)
    names = ["done", "complete", "retry", "archive", "requeue"]
    assert [call.operation.name for call in calls] == names * 2
    assert [len(call.tasks) for call in calls] == [2] * 10
    assert [task for call in calls for task in call.tasks] == ended


def test_done_tasks_of_a_queue_that_has_or_may_have_lanes_tell_their_lanes(setup: Setup) -> None:
    lanes = LaneQueues()
    lanes.add("q1")
    lanes.unknown.add("q2")
    words = {}
    for queue in ("q1", "q2", "q3"):
        view = view_task_message(message(queue, group_key="lane"))
        tasks = [*setup.hold(1, queue), setup.tasks.add(queue, view, 0.0)]
        (call,) = plan_acks(done(tasks), setup.tasks, OURS, NOW_NS, checks_done=False, lanes=lanes)
        words[queue] = (call.operation.name, call.operation.args[-2:])
    assert words["q1"] == words["q2"] == ("done_lanes", ("", "lane"))
    assert words["q3"] == ("done", ("2", "q3"))


def test_failed_tasks_are_guarded_and_done_ones_as_asked(setup: Setup) -> None:
    tasks = setup.hold(4)
    ended = [
        end(tasks[0], Done("a")),
        end(tasks[1], Retried("a", b"m", NOW_S)),
        end(tasks[2], Archived("a", b"m")),
        end(tasks[3], Requeued("a")),
    ]
    owners = [str(OURS) in map(str, call.operation.args) for call in setup.calls(ended)]
    assert owners == [False, True, True, True]
    owners = [str(OURS) in map(str, call.operation.args) for call in setup.calls(ended, checks_done=True)]
    assert owners == [True, True, True, True]


def test_no_operation_is_sent_again_by_itself(setup: Setup) -> None:
    # A reply that was lost is the syncer's to settle.
    tasks = setup.hold(2)
    for write in (
        Done("a"),
        Completed("a", b"m", NOW_S),
        Retried("a", b"m", NOW_S),
        Archived("a", b"m"),
        Requeued("a"),
    ):
        (call,) = setup.calls([end(tasks[0], write)])
        assert not call.operation.idempotent


def test_a_call_writes_at_most_500_tasks(setup: Setup) -> None:
    calls = setup.calls(done(setup.hold(1201)))
    assert [len(call.tasks) for call in calls] == [MAX_CALL_TASKS, MAX_CALL_TASKS, 201]


@pytest.mark.parametrize("kind", ["result", "message", "retry", "archive"])
def test_a_call_carries_at_most_256_kb(kind: str, setup: Setup) -> None:
    big = bytes(100_000)
    write: dict[str, Disposition] = {
        "result": Completed("a", b"m", NOW_S, result=big),
        "message": Completed("a", big, NOW_S),
        "retry": Retried("a", big, NOW_S),
        "archive": Archived("a", big),
    }
    calls = setup.calls([end(task, write[kind]) for task in setup.hold(5)])
    assert [len(call.tasks) for call in calls] == [2, 2, 1]


def test_a_result_larger_than_that_goes_alone(setup: Setup) -> None:
    big = Completed("a", b"m", NOW_S, result=bytes(2 * MAX_CALL_BYTES))
    small = Completed("a", b"m", NOW_S)
    tasks = setup.hold(3)
    calls = setup.calls([end(tasks[0], small), end(tasks[1], big), end(tasks[2], small)])
    assert [len(call.tasks) for call in calls] == [1, 1, 1]


# Where LREM begins ------------------------------------------------------------------------------------------------


def test_the_oldest_are_looked_for_from_the_old_end(setup: Setup) -> None:
    tasks = setup.hold(2000)
    (call,) = setup.calls(done(tasks[:500]))
    assert side_of(call) == OLDEST_FIRST
    assert list(call.tasks) == done(tasks[:500])


def test_short_tasks_are_looked_for_from_the_new_end_while_thousands_of_long_ones_run(setup: Setup) -> None:
    setup.hold(10_000)
    for _ in range(20):
        tasks = setup.hold(500)
        (call,) = setup.calls(done(tasks))
        assert side_of(call) == NEWEST_FIRST
        assert list(call.tasks) == done(tasks)[::-1]
        for task in tasks:
            setup.tasks.drop(task)


def test_both_ends_are_used_where_both_are_near(setup: Setup) -> None:
    tasks = setup.hold(10_000)
    finished = tasks[:50] + tasks[-50:]
    random.Random(1).shuffle(finished)
    old, new = setup.calls(done(finished))
    assert (side_of(old), ids_of(old)) == (OLDEST_FIRST, [task.id for task in tasks[:50]])
    assert (side_of(new), ids_of(new)) == (NEWEST_FIRST, [task.id for task in reversed(tasks[-50:])])


@pytest.mark.parametrize("seed", range(3))
def test_no_call_passes_more_elements_than_redis_does_in_2_ms(seed: int, setup: Setup) -> None:
    tasks = setup.hold(10_000)
    finished = random.Random(seed).sample(tasks, 500)
    calls = setup.calls(failed(finished))
    assert sorted(ids for call in calls for ids in ids_of(call)) == sorted(task.id for task in finished)
    assert max(passed_by(calls, tasks)) <= MAX_CALL_STEPS
    assert len(calls) < 50


def test_done_tasks_are_taken_off_together_wherever_they_are(setup: Setup) -> None:
    tasks = setup.hold(10_000)
    finished = [tasks[at] for at in sorted(random.Random(1).sample(range(10_000), 500))]
    old, new = setup.calls(done(finished))
    assert (side_of(old), side_of(new)) == (OLDEST_FIRST, NEWEST_FIRST)
    assert ids_of(old) + ids_of(new)[::-1] == [task.id for task in finished]


def test_no_call_of_many_has_the_steps_of_all(setup: Setup) -> None:
    """After an outage thousands of results are written, of which only the last have long tasks before them."""
    early, long, late = setup.hold(5500), setup.hold(1900), setup.hold(500)
    calls = setup.calls(failed([*early, *late]))
    assert sum(len(call.tasks) for call in calls) == 6000
    assert max(passed_by(calls, [*early, *long, *late])) <= MAX_CALL_STEPS


def test_one_long_task_among_quick_ones_leaves_these_at_the_old_end(setup: Setup) -> None:
    setup.hold(1)
    for task in setup.hold(50_000):
        setup.tasks.drop(task)
    quick = setup.hold(600)
    (call,) = setup.calls(done(quick[:300][::-1]))
    assert side_of(call) == OLDEST_FIRST
    assert ids_of(call) == [task.id for task in quick[:300]]  # each is looked for once the older ones are gone


def test_the_way_to_tasks_is_known_to_the_element(setup: Setup) -> None:
    tasks = setup.hold(10)
    setup.tasks.drop(tasks[4])
    for chosen, steps in (([0, 1, 2], 0), ([3, 6], 3 + 4), ([9], 8), ([4, 9], 4 + 8), ([0, 9], 7), ([], 0)):
        assert setup.tasks.steps_to(QUEUE, done([tasks[at] for at in chosen])) == steps
    assert setup.tasks.steps_to("none", done(tasks)) == 0


def test_one_task_too_deep_for_a_call_still_has_one(setup: Setup) -> None:
    tasks = setup.hold(1000)
    # As if these were all that is left of very many.
    middle = tasks[500:502]
    span = SeqRange(0, 2 * MAX_CALL_STEPS + 1002, 2 * MAX_CALL_STEPS + 1003)
    for task, seq in zip(middle, (MAX_CALL_STEPS + 500, MAX_CALL_STEPS + 501), strict=True):
        object.__setattr__(task, "seq", seq)
    assert [len(part) for _, part in _parts(Retried, failed(middle), span, is_near=False)] == [1, 1]


@pytest.mark.parametrize("write", [Retried("a", b"m", NOW_S), Archived("a", b"m"), Completed("a", b"m", NOW_S)])
def test_failed_and_completed_tasks_are_looked_for_likewise(write: Disposition, setup: Setup) -> None:
    setup.hold(10_000)
    (call,) = setup.calls([end(task, write) for task in setup.hold(100)])
    assert side_of(call) == NEWEST_FIRST


def test_tasks_given_back_keep_their_order(setup: Setup) -> None:
    setup.hold(10_000)
    ended = [end(task, Requeued(task.id)) for task in setup.hold(700)]
    # The first are given back last, since each call puts its tasks before the others.
    assert [list(call.tasks) for call in setup.calls(ended)] == [ended[500:], ended[:500]]


# A new way to end -------------------------------------------------------------------------------------------------


class Parked(NamedTuple):
    """A disposition that no other module knows of."""

    id: str
    note: bytes

    def size(self) -> int:
        return len(self.note)

    @classmethod
    def operation(cls, ends: Sequence[Self], terms: Terms) -> Operation[list[FinishOutcome]]:
        return Operation("park", (terms.queue,), tuple(end.note for end in ends), lambda reply: reply)


def test_a_new_way_to_end_needs_its_class_and_nothing_else(setup: Setup) -> None:
    tasks = [end(task, Parked(task.id, bytes(MAX_CALL_BYTES // 2))) for task in setup.hold(3)]
    first, second = setup.calls(tasks)
    assert (first.tasks, second.tasks) == (tasks[:2], tasks[2:]), "bounded as all others are"
    assert (first.operation.name, first.operation.keys) == ("park", (QUEUE,))
