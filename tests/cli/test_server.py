"""``fastq server``."""

from redis import Redis

from tests.cli.commands import Fastq
from tests.inspector.test_processes import publish


def test_servers_are_listed(fastq: Fastq, db: Redis) -> None:
    publish(db, "x", 3, host="b")
    publish(db, "y", host="a\x1b")
    for word in ("ls", "list"):
        head, first, second = fastq.lines("server", word)
        assert head == "HOST PID STATE ACTIVE QUEUES STARTED"
        assert first.startswith("a\\x1b 7 active 0/4 high:5 low:1 (strict) ")
        assert second.startswith("b 7 active 3/4 high:5 low:1 (strict) ")


def test_servers_and_what_they_run_are_listed_as_json(fastq: Fastq, db: Redis) -> None:
    publish(db, "x", 2)
    (found,) = fastq.json("server", "ls")
    assert (found["id"], found["queues"], found["strict_priority"]) == ("x", {"low": 1, "high": 5}, True)
    assert found["started"] == "2026-11-21T01:02:03.456000Z"
    assert [worker["task_id"] for worker in found["active_workers"]] == ["x-0", "x-1"]
    assert found["active_workers"][0]["task_payload"] == "p"


def test_without_servers_that_is_said(fastq: Fastq) -> None:
    assert fastq.done("server", "ls") == "There are no servers running.\n"
    assert fastq.json("server", "ls") == []
