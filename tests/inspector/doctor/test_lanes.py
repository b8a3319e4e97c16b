"""What the doctor says of queues with lanes."""

import pytest
from redis import Redis

from fastq.broker.transport.open import open_broker
from fastq.inspector.doctor import lanes
from fastq.inspector.doctor.finding import Finding, Level
from fastq.wire import keys
from tests.inspector.doctor.test_handlers import serve
from tests.inspector.harness import Seeded
from tests.inspector.test_lanes import LATER_US, lane


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "SWEPT_S", 0.0)


@pytest.fixture
def queue(db: Redis) -> Seeded:
    seeded = Seeded(db)
    db.hset(keys.limits("default"), mapping={"*": "1:0:1:1"})
    lane(seeded, "ready")
    lane(seeded, "full", full=LATER_US)
    lane(seeded, "p:x", turn=None)
    db.zadd(keys.pool_waiting("default", "p"), {"p:x": 1})
    db.sadd(keys.groups("default"), "empty")
    return seeded


def look(url: str, *queues: str) -> list[Finding]:
    broker = open_broker(url)
    try:
        return broker.drive(lanes.check_lanes(queues or ("default", "other")))
    finally:
        broker.close()


def test_of_queues_without_limits_nothing_is_said(queue: Seeded, url: str) -> None:
    queue.db.delete(keys.limits("default"))
    lane(queue, "mails", turn=None)
    assert look(url) == []


def test_lanes_that_get_turns_are_in_order(queue: Seeded, url: str) -> None:
    serve(queue.db, "a", ["t"])
    (found,) = look(url)
    assert (found.check, found.level) == ("lanes", Level.OK)


def test_a_server_that_could_combine_lanes_is_named(queue: Seeded, url: str) -> None:
    serve(queue.db, "a", ["t"])
    serve(queue.db, "go", None)
    serve(queue.db, "elsewhere", None, queue="third")
    (found,) = look(url)
    assert (found.level, found.queue, found.count) == (Level.WARNING, "default", 1)
    assert found.seen.startswith("1 of the 2 servers of this queue, which has lanes, are asynq servers")
    assert "GroupAggregator" in found.advice


def test_a_server_that_does_not_know_the_limit_of_the_queue_is_named(queue: Seeded, url: str) -> None:
    serve(queue.db, "go", None)
    queue.db.hset(keys.limits("default"), "", "2:0:1:1")
    found = look(url)[0]
    assert "which has lanes and a limit as a whole, are" in found.seen
    assert "GroupAggregator" in found.why
    assert "start tasks beyond it" in found.why
    queue.db.hdel(keys.limits("default"), "*")
    (found,) = look(url)
    assert "which has a limit as a whole, are" in found.seen
    assert "GroupAggregator" not in found.why + found.advice


@pytest.mark.parametrize("is_served", [True, False])
def test_lanes_without_a_turn_are_named(queue: Seeded, url: str, is_served: bool) -> None:
    lane(queue, "lost", turn=None)
    if is_served:
        serve(queue.db, "a", ["t"])
    (found,) = look(url)
    assert (found.level, found.count, found.examples) == (Level.PROBLEM, 1, ("lost",))
    assert ("got no turn" if is_served else "no running server of fastq serves the queue") in found.seen


def test_a_group_without_a_rule_is_no_lane(queue: Seeded, url: str) -> None:
    queue.db.delete(keys.limits("default"))
    queue.db.hset(keys.limits("default"), mapping={"ready": "1:0:1:1", "q:*": "1:0:1:1"})
    lane(queue, "mails", turn=None)
    assert [found.level for found in look(url)] == [Level.OK]
    lane(queue, "q:x", turn=None)
    assert look(url)[0].examples == ("q:x",)
