"""The held tasks: found by queue and id, in the order in which they were taken."""

import pytest

from fastq.server.inflight.tasks import InFlightTask, InFlightTasks
from fastq.wire.codec import view_task_message
from tests.broker.harness import message


def hold(held: InFlightTasks, task_id: str, queue: str = "q", now_s: float = 0.0) -> InFlightTask:
    return held.add(queue, view_task_message(message(task_id, queue=queue)), now_s)


@pytest.fixture
def held() -> InFlightTasks:
    return InFlightTasks()


def test_a_task_is_surely_ours_for_as_long_as_its_lease(held: InFlightTasks) -> None:
    task = hold(held, "a", now_s=7.5)
    assert (task.id, task.queue, task.leased_until_s) == ("a", "q", 37.5)
    assert task.in_flight
    assert not task.ended


def test_tasks_are_found_by_queue_and_by_id(held: InFlightTasks) -> None:
    one, two, other = hold(held, "a", "q1"), hold(held, "a", "q2"), hold(held, "b", "q1")
    assert held.get("q1", "a") is one
    assert held.get("q2", "b") is None
    assert held.get("nosuch", "a") is None
    assert held.find("a") == [one, two]
    assert held.find("nosuch") == []
    assert list(held.by_queue()) == [("q1", [one, other]), ("q2", [two])]
    assert len(held) == 3


def test_a_task_that_is_dropped_is_held_no_more(held: InFlightTasks) -> None:
    task, other = hold(held, "a"), hold(held, "b")
    held.drop(task)
    held.drop(task)
    assert not task.in_flight
    assert list(held.by_queue()) == [("q", [other])]
    held.drop(other)
    assert list(held.by_queue()) == []
    assert not len(held)


def test_dropping_a_task_leaves_the_one_that_took_its_place(held: InFlightTasks) -> None:
    old = hold(held, "a")
    new = hold(held, "a")
    held.drop(old)
    assert held.get("q", "a") is new
    assert new.in_flight


def test_queues_may_change_while_they_are_gone_through(held: InFlightTasks) -> None:
    for number in range(3):
        hold(held, str(number), f"q{number}")
    for queue, tasks in held.by_queue():
        hold(held, "more", f"{queue}-more")
        held.drop(tasks[0])
    assert len(held) == 3


def test_the_span_of_a_queue_tells_its_oldest_its_newest_and_its_number(held: InFlightTasks) -> None:
    assert held.span("q") == (-1, -1, 0)
    tasks = [hold(held, str(number)) for number in range(10)]
    hold(held, "other", "other")
    for task in tasks[:3] + tasks[5:7]:
        held.drop(task)
    assert held.span("q") == (3, 9, 5)
    for task in tasks:
        held.drop(task)
    assert held.span("q") == (9, 9, 0)
