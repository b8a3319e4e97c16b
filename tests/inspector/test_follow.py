"""What is told of a queue from looks at it, and what is not."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from fastq import QueueNotFoundError
from fastq.broker.transport.open import open_broker
from fastq.common.states import TaskState
from fastq.inspector import TaskEvent
from fastq.inspector.follow import WINDOW, Follower
from fastq.wire import keys
from tests.broker.harness import NOW_NS, NOW_S
from tests.inspector.harness import Seeded

Look = Callable[[], list[TaskEvent]]
FAR_S = 4_000_000_000


@pytest.fixture
def queue(db: Redis) -> Seeded:
    return Seeded(db)


@pytest.fixture
def look(url: str, db: Redis) -> Iterator[Look]:
    broker, follower = open_broker(url), Follower("default")
    yield lambda: broker.drive(follower.look(NOW_NS))
    broker.close()


def told(events: list[TaskEvent]) -> list[str]:
    return [f"{event.name} {event.id}" if event.id else f"{event.name} {event.runs}" for event in events]


def test_of_what_there_was_before_nothing_is_told(queue: Seeded, look: Look) -> None:
    queue.pend("p")
    queue.activate("a")
    for state in ("scheduled", "retry", "archived", "completed"):
        queue.add(state, {state: FAR_S})
    assert look() == []
    assert look() == []


def test_a_task_is_followed_through_its_life(queue: Seeded, look: Look) -> None:
    look()
    queue.pend("x", type="mail")
    assert look() == [TaskEvent("enqueued", "x", "mail", TaskState.PENDING)]
    db: Any = queue.db
    db.delete(keys.pending("default"))
    queue.activate("x", type="mail")
    assert look() == [TaskEvent("started", "x", "mail", TaskState.ACTIVE, TaskState.PENDING)]
    db.delete(keys.active("default"))
    queue.add("retry", {"x": FAR_S}, type="mail", error_msg="no")
    db.incr(keys.processed_total("default"))
    assert look() == [TaskEvent("retried", "x", "mail", TaskState.RETRY, TaskState.ACTIVE, "no")]
    db.delete(keys.retry("default"))
    queue.pend("x", type="mail")
    assert look() == [TaskEvent("enqueued", "x", "mail", TaskState.PENDING, TaskState.RETRY)]
    db.delete(keys.pending("default"))
    queue.activate("x", type="mail")
    assert told(look()) == ["started x"]
    db.delete(keys.active("default"), keys.task("default", "x"))
    db.incr(keys.processed_total("default"))
    assert look() == [TaskEvent("done", "x", "mail", None, TaskState.ACTIVE)]
    assert look() == []


@pytest.mark.parametrize(("state", "name"), [("archived", "archived"), ("completed", "completed")])
def test_where_an_active_task_went_is_told_however_many_there_are(
    queue: Seeded, look: Look, state: str, name: str
) -> None:
    queue.add(state, {f"old{n}": FAR_S + n for n in range(WINDOW + 50)}, last_failed_at=1)
    queue.activate("a")
    look()
    queue.db.delete(keys.active("default"))
    queue.add(state, {"a": FAR_S})
    assert told(look()) == [f"{name} a"]


def test_what_comes_and_goes_between_two_looks_is_counted(queue: Seeded, look: Look) -> None:
    queue.pend("p")
    look()
    queue.db.delete(keys.pending("default"), keys.task("default", "p"))
    queue.db.incrby(keys.processed_total("default"), 3)
    assert told(look()) == ["gone p", "missed 3"]


def test_what_comes_into_sight_in_pending_since_others_left_is_not_new(queue: Seeded, look: Look) -> None:
    queue.pend(*(f"{n:04}" for n in range(3 * WINDOW)))
    look()
    queue.db.ltrim(keys.pending("default"), 50, -1)
    queue.pend("new")
    assert told(look()) == ["enqueued new"]


def test_what_comes_into_sight_in_the_archive_since_others_left_is_not_new(queue: Seeded, look: Look) -> None:
    old = {f"{n:04}": NOW_S - 9_000 + n for n in range(3 * WINDOW)}
    queue.add("archived", dict(old), last_failed_at=NOW_S - 9_000)
    look()
    queue.db.zremrangebyrank(keys.archived("default"), -50, -1)
    queue.add("archived", {"new": NOW_S}, last_failed_at=NOW_S)
    assert told(look()) == ["archived new"]


def test_a_queue_that_there_is_not_is_an_error(look: Look) -> None:
    with pytest.raises(QueueNotFoundError):
        look()
