"""Plain tasks beside coroutines: neither starves, and what waits is not given back and fetched again all the time."""

import pytest

from fastq.pool.main.child_queue import Submission
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.ring import now_ns
from tests.pool.desk import MS, Desk, desk_fixture, spin_until

__all__ = ["desk_fixture"]


@pytest.mark.parametrize("desk", [(2, 600.0)], indirect=True)
@pytest.mark.parametrize("is_async", [False, True])
def test_one_child_runs_dry_for_a_sort_that_waits_while_all_are_busy_with_the_other(desk: Desk, is_async: bool) -> None:
    """Whatever else waits before it and comes meanwhile: the others go on among the other children."""

    def give(*keys: object, is_async: bool) -> None:
        desk.dispatcher.submit([Submission(key, b"", str(is_async), is_async=is_async) for key in keys])

    others = 8  # as many coroutines as there are slots
    give(*range(others), is_async=not is_async)
    assert desk.loads == ([4, 4] if not is_async else [1, 1])
    give(*range(100), is_async=not is_async)
    give("stuck", is_async=is_async)
    for _ in range(2 * others):
        waits = "stuck" in [one.key for one in desk.dispatcher.list_waiting()]
        if not waits:
            break
        for child in desk.children:
            for submission in child.queue.remaining()[:1]:
                child.results.put(submission.seq, b"", kind=EventKind.DONE, a=1000)
        desk.dispatcher.collect([])
        assert desk.dispatcher.dispatch() == []
        give(object(), is_async=not is_async)
    (at,) = [child for child in desk.children if "stuck" in [one.key for one in child.queue.remaining()]]
    assert at.queue.pending == 1
    (other,) = [child for child in desk.children if child is not at]
    assert other.queue.pending > 0, "it went on"


@pytest.mark.parametrize("desk", [(1, 600.0)], indirect=True)
def test_what_waits_stays_in_order_while_others_are_looked_for(desk: Desk) -> None:
    desk.submit("running")
    sorts = {1: False, 2: False, 3: True, 4: False}
    desk.dispatcher.submit([Submission(key, b"", str(is_async), is_async=is_async) for key, is_async in sorts.items()])
    assert [one.key for one in desk.dispatcher.list_waiting()] == [1, 2, 3, 4]


@pytest.mark.parametrize("desk", [(1, 0.001)], indirect=True)
def test_what_a_child_is_kept_for_is_not_given_back_at_once_to_come_again(desk: Desk) -> None:
    desk.submit_async("coroutine", size=1)
    desk.children[0].begin()
    desk.submit(*range(40))
    spin_until(now_ns() + 5 * MS)
    events = desk.dispatcher.relieve()
    assert {event.kind for event in events} == {EventKind.RETURNED}
    assert [event.submission.key for event in events] == list(range(16, 40)), "more would take others' place"
    assert [one.key for one in desk.dispatcher.list_waiting()] == list(range(16))
    assert desk.dispatcher.relieve() == []


@pytest.mark.parametrize("desk", [(2, 600.0)], indirect=True)
def test_a_child_is_kept_on_for_a_task_that_was_withdrawn_and_may_come_again_but_not_for_ever(desk: Desk) -> None:
    desk.submit_async(1, 2, size=1)
    stuck = Submission("stuck", b"")
    desk.dispatcher.submit([stuck])
    assert desk.dispatcher.withdraw(stuck)
    assert desk.dispatcher.free(only_async=False) == 3, "the other's slots"
    for child in desk.children:
        for submission in child.queue.remaining():
            child.results.put(submission.seq, b"", kind=EventKind.DONE, a=1000)
    desk.dispatcher.collect([])
    desk.submit_async(3, 4, 5, size=1)
    assert sorted(desk.loads) == [0, 3], "it is dry, and still kept"
    spin_until(now_ns() + 1100 * MS)
    desk.submit_async(6, size=1)
    assert sorted(desk.loads) == [1, 3]
