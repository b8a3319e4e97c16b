"""What the doctor says of types that no server has a handler for, and of archives that Go's servers trim."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.archive_rule import ArchiveRule, set_archive_rule
from fastq.broker.transport.open import open_broker
from fastq.inspector.doctor.finding import Finding, Level
from fastq.inspector.doctor.handlers import check_handlers
from fastq.wire import keys
from fastq.wire.messages import ServerInfoMessage
from fastq.wire.notice import ServerNotice
from fastq.wire.records import encode_server_info
from tests.inspector.harness import Seeded

FAR_S = 4_000_000_000


def serve(
    db: Any, server_id: str, patterns: Sequence[str] | None, queue: str = "default", status: str = "active"
) -> None:
    """Let a server of a queue live; without patterns it is one of Go's."""
    key = keys.server_info("h", 7, server_id)
    info = ServerInfoMessage("h", 7, server_id, 1, {queue: 1}, False, status, None, 0)
    db.set(key, encode_server_info(info))
    db.zadd(keys.all_servers(), {key: int(time.time()) + 600})
    if patterns is not None:
        db.set(keys.server_notice(key), ServerNotice("1", (queue,), tuple(patterns)).encode())


def look(url: str, *queues: str) -> list[Finding]:
    broker = open_broker(url)
    try:
        return broker.drive(check_handlers(queues or ("default",)))
    finally:
        broker.close()


@pytest.fixture
def queue(db: Redis) -> Seeded:
    """Fill a queue with tasks of three types."""
    seeded = Seeded(db)
    seeded.pend("p1", "p2", type="email:send")
    seeded.pend("p3", type="sms")
    seeded.add("retry", {"r1": FAR_S}, type="fax")
    return seeded


def test_types_that_no_server_has_are_named(queue: Seeded, url: str) -> None:
    serve(queue.db, "a", ["email:"])
    serve(queue.db, "elsewhere", ["sms", "fax"], queue="other")
    (found,) = look(url)
    assert (found.check, found.level, found.queue, found.count) == ("task types", Level.PROBLEM, "default", 2)
    assert found.examples == ("fax", "sms")
    assert found.seen.startswith("2 of 4 tasks ")


@pytest.mark.parametrize("patterns", [["email:", "s", "fax"], ["email:send", "sms", "f"]])
def test_types_that_some_server_has_are_in_order(patterns: list[str], queue: Seeded, url: str) -> None:
    serve(queue.db, "a", patterns[:1])
    serve(queue.db, "b", patterns[1:])
    (found,) = look(url)
    assert (found.check, found.level) == ("task types", Level.OK)


def test_of_queues_that_go_s_servers_serve_too_it_cannot_be_told(queue: Seeded, url: str) -> None:
    serve(queue.db, "a", ["email:"])
    serve(queue.db, "go", None)
    (found,) = look(url)
    assert (found.check, found.level, found.queue) == ("task types", Level.UNSEEN, "default")
    assert "unknown" in found.seen
    serve(queue.db, "b", ["sms", "fax"])
    assert [found.level for found in look(url)] == [Level.OK], "all types that were seen have a handler"


def test_servers_that_take_no_more_tasks_have_handlers_for_nobody(queue: Seeded, url: str) -> None:
    serve(queue.db, "a", ["email:"])
    serve(queue.db, "quiet", ["sms", "fax"], status="stopped")
    serve(queue.db, "quiet go", None, status="stopped")
    (found,) = look(url)
    assert (found.level, found.examples) == (Level.PROBLEM, ("fax", "sms"))


def test_what_nobody_serves_is_told_elsewhere(queue: Seeded, url: str) -> None:
    assert [found.level for found in look(url)] == [Level.OK]


@pytest.mark.parametrize(("rule", "patterns", "count"), [(5, None, 1), (5, ["email:"], 0), (10_000, None, 0)])
@pytest.mark.parametrize("status", ["active", "stopped"])
def test_archives_with_a_rule_that_go_s_servers_do_not_follow_are_named(
    rule: int, patterns: list[str] | None, count: int, status: str, db: Redis, url: str
) -> None:
    Seeded(db)
    serve(db, "a", ["email:"])
    serve(db, "b", patterns, status=status)
    broker = open_broker(url)
    broker.run(set_archive_rule("default", ArchiveRule(rule)))
    broker.close()
    found = [(one.level, one.queue, one.count) for one in look(url) if one.check == "archive"]
    assert found == [(Level.WARNING, "default", 1)] * count
