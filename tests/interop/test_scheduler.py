"""fastq's scheduler under the eyes of asynq's Inspector, and beside asynq's own."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from fastq import Inspector, Scheduler, Task
from fastq.wire import keys
from fastq.wire.codec import decode_task_message
from fastq.wire.records import decode_scheduler_enqueue_event, decode_scheduler_entry
from tests.interop.keyspace import dump
from tests.interop.peer import SECOND_NS, GoPeer
from tests.interop.records import GoTask
from tests.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.fixture
def scheduler(redis_url: str) -> Iterator[Scheduler]:
    with Scheduler(redis_url, heartbeat_interval=1) as scheduler:
        yield scheduler


def test_go_s_inspector_shows_our_entries(go: GoPeer, scheduler: Scheduler) -> None:
    before = time.time_ns()
    first = scheduler.register("0 6 * * *", Task("report", b"\x00\x01", max_retry=9), tz="Europe/Paris")
    options: dict[str, Any] = {"queue": "a)b", "timeout": 20, "unique": 3600, "max_retry": 3, "retention": 86_400}
    second = scheduler.register("@every 1h", "t", name="nightly", **options)
    third = scheduler.register("0 0 30 2 *", "never")
    wait_until(lambda: len(go.inspect("SchedulerEntries")) == 3)
    entries = {entry["id"]: entry for entry in go.inspect("SchedulerEntries")}
    assert entries.keys() == {first, second, third}
    assert entries[first]["spec"] == "CRON_TZ=Europe/Paris 0 6 * * *"
    assert entries[first]["task"]["type"] == "report"
    assert entries[first]["task"]["payload"] == "AAE="
    assert entries[first]["opts"] == []
    assert 0 < entries[first]["next_ns"] - before <= 25 * 3600 * SECOND_NS
    assert entries[first]["prev_ns"] is None
    assert entries[second]["opts"] == [
        'Queue("a)b")',
        "Timeout(20s)",
        "Unique(1h0m0s)",
        "MaxRetry(3)",
        "Retention(24h0m0s)",
    ]
    assert entries[second]["next_ns"] % (3600 * SECOND_NS) == 0
    assert entries[third]["next_ns"] is None


def test_go_s_inspector_shows_what_we_enqueued_and_when(go: GoPeer, scheduler: Scheduler, db: redis.Redis) -> None:
    entry_id = scheduler.register("@every 1s", "t", queue="low")
    wait_until(lambda: len(go.inspect("ListSchedulerEnqueueEvents", entry_id)) >= 2)
    newest, older, *_ = go.inspect("ListSchedulerEnqueueEvents", entry_id)
    assert newest["enqueued_at_ns"] > older["enqueued_at_ns"]
    info = go.task_info("low", older["task_id"])
    assert (info.type, info.state) == ("t", "pending")
    wait_until(lambda: any(entry["prev_ns"] for entry in go.inspect("SchedulerEntries")))


def test_nothing_is_shown_after_the_end(go: GoPeer, redis_url: str, db: redis.Redis) -> None:
    with Scheduler(redis_url, heartbeat_interval=1) as scheduler:
        entry_id = scheduler.register("@every 1s", "t")
        wait_until(lambda: go.inspect("ListSchedulerEnqueueEvents", entry_id))
    assert go.inspect("SchedulerEntries") == []
    assert go.inspect("ListSchedulerEnqueueEvents", entry_id) == []


def test_both_inspectors_show_schedulers_of_both_kinds(
    go: GoPeer, redis_url: str, scheduler: Scheduler, db: redis.Redis
) -> None:
    (theirs,) = go.request(
        "scheduler_start",
        name="s",
        location="UTC",
        heartbeat_ns=SECOND_NS,
        entries=[{"spec": "@every 1s", "task": GoTask("go", b"x").params()}],
    )
    ours = scheduler.register("@every 1s", "py")
    wait_until(lambda: {entry["id"] for entry in go.inspect("SchedulerEntries")} == {theirs, ours})
    with Inspector(redis_url) as inspector:
        assert {entry.id for entry in inspector.scheduler_entries()} == {theirs, ours}
        for entry_id in (theirs, ours):
            wait_until(lambda entry=entry_id: inspector.list_scheduler_enqueue_events(entry))  # type: ignore[misc]  # bound now
    go.request("scheduler_shutdown", name="s")
    assert [entry["id"] for entry in go.inspect("SchedulerEntries")] == [ours]


# The same keys ----------------------------------------------------------------------------------------------------


SPEC = "@every 1s"
TASK = {"type": "report", "payload": b"\x00\x01\x02"}
OPTIONS = {"queue": "low", "task_id": "fixed", "timeout_ns": 20 * SECOND_NS, "unique_ns": 3600 * SECOND_NS}


def settled(db: Any) -> bool:
    """Return whether a tick was enqueued, recorded, and published after it."""
    lists = db.keys("asynq:schedulers:*")
    entries = [decode_scheduler_entry(data) for key in lists for data in db.lrange(key, 0, -1)]
    is_published = bool(entries) and all(entry.prev_enqueue_time for entry in entries)
    return bool(db.exists(keys.task("low", "fixed")) and db.keys("asynq:scheduler_history:*") and is_published)


def normal(db: redis.Redis) -> dict[str, Any]:
    """Return the keyspace without what is another at each run: ids, times, lives to the second."""
    ours = keys.scheduler_ticks()  # which Go's schedulers do not count
    return dict(_normal(key, entry) for key, entry in dump(db).items() if key != ours)


def _normal(key: str, entry: dict[str, Any]) -> tuple[str, Any]:
    value, kind = entry["value"], key.split(":")[1]
    if kind == "schedulers" and entry["type"] == "zset":
        value = len(value)
    elif kind == "schedulers":
        found = [decode_scheduler_entry(data) for data in value]
        key, value = "entries", [(each.spec, each.task_type, each.task_payload, each.enqueue_options) for each in found]
    elif kind == "scheduler_history":
        key, value = "history", [decode_scheduler_enqueue_event(data).task_id for data in value]
    elif entry["type"] == "hash":
        value = {**value, b"msg": decode_task_message(value[b"msg"]), b"pending_since": b"then"}
    lives = None if entry["ttl"] is None else entry["ttl"] > 10
    return key, (entry["type"], lives, value)


def test_our_keys_are_go_s(go: GoPeer, redis_url: str, db: redis.Redis) -> None:
    task = {**TASK, "options": OPTIONS, "task_options": {"max_retry": 9}}
    entry = {"spec": SPEC, "task": {**task, "payload": "AAEC"}}
    go.request("scheduler_start", name="s", location="UTC", heartbeat_ns=5 * SECOND_NS, entries=[entry])
    wait_until(lambda: settled(db))
    theirs = normal(db)
    go.request("scheduler_shutdown", name="s")
    theirs_after = normal(db)
    db.flushall()
    with Scheduler(redis_url, heartbeat_interval=5) as ours:
        ours.register(
            SPEC, Task("report", b"\x00\x01\x02", max_retry=9), queue="low", task_id="fixed", timeout=20, unique=3600
        )
        wait_until(lambda: settled(db))
        assert normal(db) == theirs
    assert normal(db) == theirs_after
    assert theirs.keys() >= {"asynq:schedulers", "entries", "history", keys.pending("low")}
