"""The tasks in flight: found by queue and id, in the order in which they were taken."""

import pytest

from fastq.server.inflight.tasks import InFlightTask, InFlightTasks
from fastq.wire.codec import view_task_message
from tests.broker.harness import message


def hold(in_flight: InFlightTasks, task_id: str, queue: str = "q", now_s: float = 0.0) -> InFlightTask:
    return in_flight.add(queue, view_task_message(message(task_id, queue=queue)), now_s)


@pytest.fixture
def in_flight() -> InFlightTasks:
    return InFlightTasks()


def test_a_task_is_surely_ours_for_as_long_as_its_lease(in_flight: InFlightTasks) -> None:
    task = hold(in_flight, "a", now_s=7.5)
    assert (task.id, task.queue, task.leased_until_s) == ("a", "q", 37.5)
    assert task.in_flight
    assert not task.ended


def test_tasks_are_found_by_queue_and_by_id(in_flight: InFlightTasks) -> None:
    one, two, other = hold(in_flight, "a", "q1"), hold(in_flight, "a", "q2"), hold(in_flight, "b", "q1")
    assert in_flight.get("q1", "a") is one
    assert in_flight.get("q2", "b") is None
    assert in_flight.get("nosuch", "a") is None
    assert in_flight.find("a") == [one, two]
    assert in_flight.find("nosuch") == []
    assert list(in_flight.by_queue()) == [("q1", [one, other]), ("q2", [two])]
    assert len(in_flight) == 3


def test_a_task_that_is_dropped_is_in_flight_no_more(in_flight: InFlightTasks) -> None:
    task, other = hold(in_flight, "a"), hold(in_flight, "b")
    in_flight.drop(task)
    in_flight.drop(task)
    assert not task.in_flight
    assert list(in_flight.by_queue()) == [("q", [other])]
    in_flight.drop(other)
    assert list(in_flight.by_queue()) == []
    assert not len(in_flight)


def test_dropping_a_task_leaves_the_one_that_took_its_place(in_flight: InFlightTasks) -> None:
    old = hold(in_flight, "a")
    new = hold(in_flight, "a")
    in_flight.drop(old)
    assert in_flight.get("q", "a") is new
    assert new.in_flight


def test_queues_may_change_while_they_are_gone_through(in_flight: InFlightTasks) -> None:
    for number in range(3):
        hold(in_flight, str(number), f"q{number}")
    for queue, tasks in in_flight.by_queue():
        hold(in_flight, "more", f"{queue}-more")
        in_flight.drop(tasks[0])
    assert len(in_flight) == 3


def test_the_range_of_a_queue_tells_its_oldest_its_newest_and_its_number(in_flight: InFlightTasks) -> None:
    assert in_flight.seq_range("q") == (-1, -1, 0)
    tasks = [hold(in_flight, str(number)) for number in range(10)]
    hold(in_flight, "other", "other")
    for task in tasks[:3] + tasks[5:7]:
        in_flight.drop(task)
    assert in_flight.seq_range("q") == (3, 9, 5)
    for task in tasks:
        in_flight.drop(task)
    assert in_flight.seq_range("q") == (9, 9, 0)
