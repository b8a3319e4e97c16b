"""What is uncertain: each state of an end and of a dequeue, from its beginning to its end; I/O is in others' tests."""

import asyncio
from typing import Any

import pytest

from fastq.broker.operations.lease import Leased, LeasedTask
from fastq.common.clock import Moment
from fastq.errors import BrokerConnectionError, BrokerError
from fastq.server.inflight.tasks import InFlightTask, InFlightTasks
from fastq.server.inflight.uncertain import DequeueCall, UncertainDequeues, UncertainEnds
from fastq.wire.codec import view_task_message
from tests.broker.harness import message
from tests.manual_clock import ManualClock

UNHEARD = BrokerConnectionError("no reply", maybe_applied=True)
UNSENT = BrokerConnectionError("never sent", maybe_applied=False)
REFUSED = BrokerError("WRONGTYPE")
LEASE_S = 30.0


class Setup:
    def __init__(self) -> None:
        self.clock = ManualClock(1_000)
        self.tasks = InFlightTasks(LEASE_S)
        self.ends = UncertainEnds(self.clock)
        self.dequeues = UncertainDequeues(self.tasks, self.ends, self.clock, LEASE_S)

    def hold(self, task_id: str, queue: str = "q") -> InFlightTask:
        return self.tasks.add(queue, view_task_message(message(task_id, queue=queue)), self.clock.monotonic_s())

    def due(self) -> list[str]:
        queues = {"q", "other"}
        return [task.id for task in self.ends.take_due(self.clock.monotonic_s(), self.dequeues.may_bring, queues).ready]

    def bring(self, call: DequeueCall, ids: list[bytes]) -> None:
        self.dequeues.bring(call, Leased(ids, [b""] * len(ids)), Moment.now(self.clock))


@pytest.fixture
def setup() -> Setup:
    return Setup()


CALL = DequeueCall("q", 10, "1030.5")

# Ends -------------------------------------------------------------------------------------------------------------


def test_an_end_that_was_not_written_is_due_at_once_and_in_no_doubt(setup: Setup) -> None:
    task = setup.hold("a")
    setup.ends.keep([task], UNSENT)
    setup.dequeues.begin([CALL])
    assert not setup.ends.is_in_doubt(task)
    assert setup.ends.queues_in_doubt() == frozenset()
    assert setup.due() == ["a"], "whatever is fetched: it is surely the same task"
    setup.clock.advance(10 * LEASE_S)
    setup.ends.keep([task], UNSENT)
    assert setup.due() == ["a"], "for as long as Redis is away"


def test_the_age_of_the_oldest_end_counts_from_its_first_failed_write(setup: Setup) -> None:
    assert setup.ends.oldest_s == 0
    first, second = setup.hold("a"), setup.hold("b")
    setup.ends.keep([first], UNSENT)
    setup.clock.advance(5)
    setup.ends.keep([second], REFUSED)
    setup.clock.advance(2)
    setup.ends.keep([first], UNHEARD)
    assert setup.ends.oldest_s == 7
    setup.ends.settle([first])
    assert setup.ends.oldest_s == 2
    setup.ends.settle([second])
    assert setup.ends.oldest_s == 0


def test_an_end_is_in_doubt_until_its_write_has_a_reply_or_its_task_is_let_go_of(setup: Setup) -> None:
    one, two, other = setup.hold("a"), setup.hold("b"), setup.hold("c", "other")
    setup.ends.keep([one, two, other], UNHEARD)
    assert setup.due() == ["a", "b", "c"]
    assert setup.ends.queues_in_doubt() == {"q", "other"}, "also while they are written again"
    setup.ends.keep([one], UNSENT)
    setup.ends.settle([other])
    assert setup.ends.is_in_doubt(one), "a later write that was not sent says nothing of the one before it"
    assert setup.ends.queues_in_doubt() == {"q"}
    setup.tasks.drop_all([one, two])
    assert setup.ends.queues_in_doubt() == frozenset()
    assert setup.due() == []


@pytest.mark.parametrize("where", ["under way", "brought", "lost"])
def test_an_end_in_doubt_waits_while_its_id_may_be_back(where: str, setup: Setup) -> None:
    setup.ends.keep([setup.hold("a"), setup.hold("b", "other")], UNHEARD)
    if where == "under way":
        setup.dequeues.begin([CALL])
    elif where == "brought":
        setup.bring(CALL, [b"a"])
    else:
        setup.dequeues.lose(CALL, setup.clock.monotonic_s())
    assert setup.due() == ["b"], "another queue's is not concerned"
    assert [task.id for task in setup.ends.waiting] == ["a"]
    if where == "under way":
        setup.dequeues.end([CALL])
    elif where == "brought":
        list(setup.dequeues.hand_on())
    else:
        setup.dequeues.give_up()
    assert setup.due() == ["a"]


def test_an_end_that_redis_refuses_is_given_up_with_the_lease_of_its_first_refusal(setup: Setup) -> None:
    task = setup.hold("a")
    setup.ends.keep([task], REFUSED)
    setup.clock.advance(LEASE_S - 1)
    assert setup.due() == ["a"]
    task.leased_until_s += LEASE_S  # as by a beat
    setup.ends.keep([task], BrokerError("OOM of another sort"))
    setup.clock.advance(1)
    ready, given_up = setup.ends.take_due(setup.clock.monotonic_s(), setup.dequeues.may_bring, {"q", "other"})
    assert ready == []
    assert [(one.id, str(error)) for one, error in given_up] == [("a", "OOM of another sort")]
    assert setup.ends.waiting == []


def test_an_end_that_was_refused_is_not_given_up_while_redis_is_away(setup: Setup) -> None:
    task = setup.hold("a")
    setup.ends.keep([task], REFUSED)
    assert setup.due() == ["a"]
    setup.ends.keep([task], UNSENT)
    setup.clock.advance(LEASE_S + 1)
    assert setup.due() == ["a"]
    setup.ends.keep([task], UNSENT)
    assert setup.due() == ["a"], "Redis has not been heard since"
    task.leased_until_s += 2 * LEASE_S
    setup.ends.keep([task], REFUSED)
    due = setup.ends.take_due(setup.clock.monotonic_s(), setup.dequeues.may_bring, {"q", "other"})
    assert (due.ready, due.given_up) == ([], [(task, REFUSED)]), "for the lease of the first refusal"


def test_an_end_of_a_task_that_is_not_ours_any_more_is_kept_by_nobody(setup: Setup) -> None:
    gone, going = setup.hold("a"), setup.hold("b")
    setup.tasks.drop(gone)
    setup.ends.keep([gone, going], UNHEARD)
    assert setup.ends.waiting == [going]
    setup.tasks.drop(going)
    assert setup.due() == []
    assert setup.ends._ends == {}, "nothing is left of it"


# Dequeues ---------------------------------------------------------------------------------------------------------


def test_what_was_brought_is_handed_on_once_and_in_order(setup: Setup) -> None:
    setup.bring(CALL, [b"a", b"b"])
    setup.bring(DequeueCall("other", 10, "1030.5"), [b"c"])
    assert setup.dequeues.brought == 3
    assert [call.queue for call, *_ in setup.dequeues.hand_on()] == ["q", "other"]
    assert setup.dequeues.brought == 0
    assert not setup.dequeues.any_lost


def test_what_was_brought_before_half_a_lease_counts_as_lost(setup: Setup) -> None:
    setup.bring(CALL, [b"a"])
    setup.clock.advance(LEASE_S / 2 + 1)
    assert list(setup.dequeues.hand_on()) == []
    assert setup.dequeues.any_lost
    assert setup.dequeues.may_bring("q")


def test_a_dequeue_that_is_lost_twice_is_looked_for_from_the_beginning(setup: Setup) -> None:
    setup.dequeues.lose(CALL, setup.clock.monotonic_s())
    setup.dequeues.lose(CALL, setup.clock.monotonic_s())
    assert len(setup.dequeues._lost) == 1
    assert setup.dequeues.due_s() == 0.0


def test_no_look_is_made_for_leases_that_a_dequeue_under_way_may_have(setup: Setup) -> None:
    nobody: Any = None  # whoever is asked
    setup.dequeues.lose(CALL, setup.clock.monotonic_s())
    setup.dequeues.begin([CALL])
    assert setup.dequeues.due() == []
    assert setup.dequeues.any_lost
    assert setup.dequeues.due_s() > setup.clock.monotonic_s()
    setup.dequeues.end([CALL])
    setup.bring(CALL, [b"a"])
    assert setup.dequeues.due(at_once=True) == []
    assert list(setup.dequeues.hand_on())
    (lost,) = setup.dequeues.due(at_once=True)
    with pytest.raises(AttributeError):
        asyncio.run(setup.dequeues.look(nobody, [lost]))
    assert setup.dequeues.due() == [], "not twice at the same time"


@pytest.mark.parametrize("later_s", [0, 3])
def test_what_an_earlier_look_has_found_is_not_new(later_s: int, setup: Setup) -> None:
    """The calls of one round trip have leases that end seconds apart."""
    asked_s = setup.clock.monotonic_s()
    setup.dequeues.lose(DequeueCall("q", 10, f"{setup.clock.unix_ns() // 10**9 + LEASE_S + later_s}"), asked_s)
    task = setup.hold("a")
    setup.ends.keep([task], UNHEARD)
    setup.clock.advance(5)
    (lost,) = setup.dequeues._lost
    again = LeasedTask("a", task.view.data)
    assert not setup.dequeues._is_new(again, lost, task)
    task.leased_until_s -= 10
    assert setup.dequeues._is_new(again, lost, task)
