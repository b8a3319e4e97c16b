"""``fastq cron``."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from fastq import SchedulerEnqueueEvent, SchedulerEntry
from fastq.wire import keys
from fastq.wire.records import encode_scheduler_enqueue_event, encode_scheduler_entry
from tests.cli.commands import Fastq

NEXT = datetime(2096, 10, 2, 7, 6, 40, tzinfo=UTC)


def publish(db: Any, *entries: SchedulerEntry) -> None:
    """Let a scheduler have sent a heartbeat."""
    key = keys.scheduler_entries("h:1:x")
    db.rpush(key, *map(encode_scheduler_entry, entries))
    db.zadd(keys.all_schedulers(), {key: int(time.time()) + 600})


def test_periodic_tasks_are_listed(fastq: Fastq, db: Any) -> None:
    past = datetime.now(UTC) - timedelta(days=2, hours=3, minutes=1)
    publish(
        db,
        SchedulerEntry("e1", "@every 30s", "report", b"\x1b", ('Queue("low")', "MaxRetry(3)"), NEXT, None),
        SchedulerEntry("e2", "0 3 * * *", "clean", b"", (), None, past),
    )
    for word in ("ls", "list"):
        head, clean, report = fastq.lines("cron", word)
        assert head == "ENTRY ID SPEC QUEUE TYPE PAYLOAD OPTIONS NEXT NEXT AT PREV"
        assert clean == "e2 0 3 * * * default clean - - 2d 3h ago"
        assert report.startswith('e1 @every 30s low report \\x1b Queue("low"), MaxRetry(3) in ')
        assert report.endswith(" 2096-10-02 07:06:40 UTC -")
    first, second = fastq.json("cron", "ls")
    assert (first["id"], first["queue"], first["next"], first["options"]) == ("e2", "default", None, [])
    assert (second["next"], second["prev"]) == ("2096-10-02T07:06:40Z", None)
    assert (second["task_payload"], second["options"]) == ("\x1b", ['Queue("low")', "MaxRetry(3)"])


def test_without_schedulers_that_is_said(fastq: Fastq) -> None:
    assert fastq.done("cron", "ls") == "There are no schedulers running; fastq scheduler MODULE:APP runs one.\n"
    assert fastq.json("cron", "ls") == []


def test_history_tells_when_a_task_was_enqueued(fastq: Fastq, db: Any) -> None:
    for number in range(3):
        event = SchedulerEnqueueEvent(f"t{number}", NEXT + timedelta(seconds=number))
        db.zadd(keys.scheduler_history("e1"), {encode_scheduler_enqueue_event(event): number})
    lines = fastq.lines("cron", "history", "e1", "nix")
    assert lines[:3] == ["e1", "TASK ID ENQUEUED AT", "t2 2096-10-02 07:06:42 UTC"]
    assert lines[5:] == ["nix", "There are no times on this page; they are deleted when the scheduler ends."]
    assert fastq.lines("cron", "history", "e1", "--page", "2", "--size", "2")[2:] == ["t0 2096-10-02 07:06:40 UTC"]
    found = fastq.json("cron", "history", "e1", "nix")
    assert [event["task_id"] for event in found[0]["events"]] == ["t2", "t1", "t0"]
    assert found[1] == {"entry_id": "nix", "events": []}
    assert "Missing argument 'ENTRY_ID...'" in fastq.failure("cron", "history", code=2)


def test_an_entry_without_an_id_is_misuse(fastq: Fastq) -> None:
    assert "must contain one or more characters" in fastq.failure("cron", "history", "", code=2)
