"""What waits behind the task of one child goes to a child that has nothing to do."""

import pytest

from fastq.pool.main.child_queue import BatchRule, Submission
from fastq.pool.shared.ring import now_ns
from tests.pool.desk import Child, Desk, S, desk_fixture
from tests.pool.harness import no_descriptors

__all__ = ["desk_fixture"]

TWO = pytest.mark.parametrize("desk", [(2, 600.0)], indirect=True)


def keys(desk: Desk) -> list[list[object]]:
    return [[one.key for one in child.queue.remaining()] for child in desk.children]


def seqs(desk: Desk) -> list[list[int]]:
    return [[one.seq for one in child.queue.remaining()] for child in desk.children]


def run_dry(desk: Desk, child: Child) -> None:
    child.work_off(100 * S)
    desk.dispatcher.collect([])
    assert desk.dispatcher.dispatch() == []


@TWO
def test_a_child_that_has_run_dry_gets_what_waits_behind_the_task_of_another(desk: Desk) -> None:
    desk.learn(100 * S)
    first, second = desk.children
    desk.submit(*range(6))
    assert keys(desk) == [[0, 2, 4], [1, 3, 5]]
    first.begin()
    run_dry(desk, second)
    assert keys(desk) == [[0, 4], [2]], "in the order of submission, to the one that is free first"
    run_dry(desk, second)
    assert keys(desk) == [[0], [4]]
    assert (first.work_off(), second.work_off()) == (0, 1), "each runs once"


@TWO
def test_nothing_moves_while_every_child_has_work(desk: Desk) -> None:
    desk.learn(100 * S)
    first, second = desk.children
    desk.submit(*range(6))
    given = seqs(desk)
    first.begin()
    second.end(second.begin(), 100 * S)
    desk.dispatcher.collect([])
    desk.dispatcher.dispatch()
    assert seqs(desk) == [given[0], given[1][1:]]


@TWO
def test_what_takes_no_time_stays_where_it_is_as_to_move_it_costs_more(desk: Desk) -> None:
    desk.learn(1000)
    desk.submit(*range(50))
    given = seqs(desk)
    desk.dispatcher.dispatch()
    assert desk.loads == [50, 0]
    assert seqs(desk) == given
    desk.children[0].begin(ago_ns=10 * S)
    desk.dispatcher.dispatch()
    assert keys(desk) == [[0], list(range(1, 50))], "but not behind a task that takes long"


@pytest.mark.parametrize("desk", [(3, 600.0)], indirect=True)
def test_the_child_with_the_most_work_is_helped(desk: Desk) -> None:
    desk.learn(100 * S)
    first, second, third = desk.children
    desk.submit(*range(6))
    first.begin()
    second.begin(ago_ns=90 * S)
    run_dry(desk, third)
    assert keys(desk) == [[0], [1, 4], [3]]


@pytest.mark.parametrize("desk", [(3, 600.0)], indirect=True)
def test_a_child_behind_whose_long_task_nothing_waits_does_not_count(desk: Desk) -> None:
    desk.learn(100 * S)
    first, second, third = desk.children
    desk.submit(*range(4))
    first.begin()
    second.begin(ago_ns=500 * S)
    run_dry(desk, third)
    assert keys(desk) == [[0], [1], [3]]


@TWO
def test_nothing_is_taken_back_for_a_child_that_takes_no_tasks(desk: Desk) -> None:
    desk.learn(100 * S)
    first, second = desk.children
    desk.submit(*range(4))
    first.begin()
    given = seqs(desk)
    second.queue.set_open(False)
    run_dry(desk, second)
    assert seqs(desk) == [given[0], []]


@pytest.mark.parametrize("desk", [(2, 600.0, 3)], indirect=True)
def test_nothing_is_taken_back_for_a_child_that_has_run_all_that_it_may(desk: Desk) -> None:
    first, second = desk.children
    desk.submit(0, 1)
    first.begin()
    for number in (2, 3):
        run_dry(desk, second)
        desk.submit(number)
    desk.submit(4)
    assert keys(desk) == [[0, 4], [3]]
    given = seqs(desk)
    run_dry(desk, second)
    assert seqs(desk) == [given[0], []]


@TWO
def test_nothing_is_taken_back_for_a_child_that_is_reserved_for_another_sort(desk: Desk) -> None:
    desk.learn(100 * S)
    first, second = desk.children
    desk.submit(*range(4))
    first.begin()
    second.end(second.begin(), 100 * S)
    desk.dispatcher.collect([])
    coroutine = Submission("coroutine", b"", is_async=True)
    given, began_ns = seqs(desk), now_ns()
    desk.dispatcher.submit([coroutine])
    assert desk.dispatcher.withdraw(coroutine)
    run_dry(desk, second)
    # If this machine stood still for as long as the child is reserved, nothing is shown.
    assert seqs(desk) == [given[0], []] or now_ns() - began_ns > S


@TWO
def test_nothing_is_taken_back_while_tasks_cannot_be_passed_on(desk: Desk) -> None:
    desk.learn(100 * S)
    first, second = desk.children
    desk.submit(*range(4))
    first.begin()
    given, began_ns = seqs(desk), now_ns()
    with no_descriptors():
        desk.submit("big", size=600_000)
        assert desk.dispatcher.take_shortage() is not None
    assert [one.key for one in desk.dispatcher.list_waiting()] == ["big"]
    desk.dispatcher.withdraw(desk.dispatcher.list_waiting()[0])
    run_dry(desk, second)
    assert seqs(desk) == [given[0], []] or now_ns() - began_ns > S


@TWO
def test_coroutines_that_wait_for_a_row_go_to_a_child_with_free_rows(desk: Desk) -> None:
    desk.submit_async(*range(8), size=10)
    for child in desk.children:
        child.work_off(240 * S)
    desk.dispatcher.collect([])
    desk.submit_async(*range(12), size=10)
    first, second = desk.children
    for _ in range(4):
        assert first.tasks.take() is not None
    assert keys(desk) == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]]
    run_dry(desk, second)
    assert keys(desk) == [[0, 2, 4, 6], [8, 10]]


@TWO
def test_a_batch_moves_as_a_whole(desk: Desk) -> None:
    rule = BatchRule(3)
    tasks = [Submission(number, b"", "batch") for number in range(12)]
    for task in tasks:
        task.batch = rule
    desk.dispatcher.submit(tasks[:3])
    run_dry(desk, desk.children[0])
    desk.dispatcher.submit(tasks)
    assert [set(one) for one in keys(desk)] == [{0, 1, 2, 6, 7, 8}, {3, 4, 5, 9, 10, 11}]
    first, second = desk.children
    first.begin()
    run_dry(desk, second)
    assert [set(one) for one in keys(desk)] == [{0, 1, 2}, {6, 7, 8}]
    assert (first.work_off(), second.work_off()) == (0, 1), "one call for all of them"
