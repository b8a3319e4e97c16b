"""What the inspectors tell of servers, schedulers and the nodes of a cluster."""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from redis import Redis

from fastq import BrokerError, ChildInfo, SchedulerEnqueueEvent, SchedulerEntry, ServerInfo, WorkerInfo
from fastq.broker.operations.cancel import read_cancellation
from fastq.wire import keys
from fastq.wire.messages import ServerInfoMessage
from fastq.wire.notice import ServerNotice
from fastq.wire.records import (
    encode_scheduler_enqueue_event,
    encode_scheduler_entry,
    encode_server_info,
    encode_worker_info,
)
from tests.inspector.harness import Ask
from tests.waiting import PATIENCE_S

STARTED = datetime(2026, 11, 21, 1, 2, 3, 456000, UTC)


def publish(
    db: Any, server_id: str, tasks: int = 0, *, host: str = "h", expires_s: float = 600, status: str = "active"
) -> ServerInfo:
    """Let a server have sent a heartbeat that lasts; return what an inspector is to say of it."""
    info = ServerInfoMessage(host, 7, server_id, 4, {"low": 1, "high": 5}, True, status, STARTED, tasks)
    workers = tuple(
        WorkerInfo(host, 7, server_id, f"{server_id}-{n}", "t", b"p", "low", STARTED.replace(second=n), None)
        for n in range(tasks)
    )
    db.set(keys.server_info(host, 7, server_id), encode_server_info(info))
    expiry = time.time() + expires_s
    db.zadd(keys.all_servers(), {keys.server_info(host, 7, server_id): int(expiry)})
    for worker in reversed(workers):
        db.hset(keys.workers(host, 7, server_id), worker.task_id, encode_worker_info(worker))
        db.zadd(keys.all_workers(), {keys.workers(host, 7, server_id): int(expiry)})
    return ServerInfo(server_id, host, 7, 4, {"low": 1, "high": 5}, True, STARTED, status, workers)


def test_there_are_no_servers_where_none_runs(ask: Ask, db: Redis) -> None:
    assert ask("servers") == []


def test_each_server_is_listed_with_what_it_is_working_on(ask: Ask, db: Redis) -> None:
    expected = [publish(db, "b", 0, host="a"), publish(db, "a", 3, host="b"), publish(db, "b", 1, host="b")]
    assert ask("servers") == expected


def test_a_server_is_listed_with_its_children(ask: Ask, db: Redis) -> None:
    told, later = publish(db, "a", 2), publish(db, "b")
    children = (ChildInfo(8, "busy", STARTED.replace(microsecond=0), 1 << 20, ("a-0", "a-1")),)
    notice = ServerNotice("1", ("low",), (), children=children).encode()
    db.set(keys.server_notice(keys.server_info("h", 7, "a")), notice)
    db.set(keys.server_notice(keys.server_info("h", 7, "b")), notice.replace(b'"format":1', b'"format":9', 1))
    assert ask("servers") == [replace(told, children=children), later]


def put_workers(db: Any, server_id: str, payloads: list[bytes], type: str = "t") -> list[WorkerInfo]:
    """Let a server work on tasks with these payloads."""
    infos = [
        WorkerInfo("h", 7, server_id, f"{n:05}", type, payload, "low", STARTED, STARTED)
        for n, payload in enumerate(payloads)
    ]
    pipe = db.pipeline(transaction=False)
    for info in infos:
        pipe.hset(keys.workers("h", 7, server_id), info.task_id, encode_worker_info(info))
    pipe.zadd(keys.all_workers(), {keys.workers("h", 7, server_id): int(time.time()) + 600})
    pipe.execute()
    return infos


def test_of_the_payloads_that_a_go_server_works_on_only_the_beginnings_leave_redis(ask: Ask, db: Redis) -> None:
    publish(db, "a")
    publish(db, "b", 1)
    infos = put_workers(db, "a", [b"%d" % n + b"x" * 300_000 for n in range(50)], "é" * 1_000)
    before = db.info("stats")["total_net_output_bytes"]
    of_a, of_b = ask("servers")
    assert db.info("stats")["total_net_output_bytes"] - before < 1_000_000
    cut = [replace(info, task_type="é" * 500, task_payload=info.task_payload[:4_000]) for info in infos]
    assert of_a.active_workers == tuple(cut)
    assert len(of_b.active_workers) == 1


def test_payloads_of_very_many_tasks_are_cut_to_a_megabyte_in_all(ask: Ask, db: Redis) -> None:
    publish(db, "a")
    infos = put_workers(db, "a", [b"x" * 1_000] * 2_000)
    (server,) = ask("servers")
    assert server.active_workers == tuple(replace(info, task_payload=b"x" * 500) for info in infos)


@pytest.mark.parametrize(
    ("in_redis", "shown"), [("new", "new"), ("stopped", "quiet"), ("closed", "stopping"), ("odd", "odd")]
)
def test_the_status_of_a_server_is_told_in_our_words(ask: Ask, db: Redis, in_redis: str, shown: str) -> None:
    expected = publish(db, "a", status=in_redis)
    assert ask("servers") == [replace(expected, status=shown)]


def test_servers_that_are_silent_are_left_out_and_forgotten(ask: Ask, db: Redis) -> None:
    expected = publish(db, "live")
    publish(db, "late", 1, expires_s=-5)
    assert ask("servers") == [expected]
    assert db.zrange(keys.all_servers(), 0, -1) == [keys.server_info("h", 7, "live").encode()]
    assert db.zcard(keys.all_workers()) == 0


def test_a_server_whose_state_is_gone_is_left_out(ask: Ask, db: Redis) -> None:
    expected = publish(db, "live")
    publish(db, "gone")
    db.delete(keys.server_info("h", 7, "gone"))
    assert ask("servers") == [expected]


def test_what_cannot_be_decoded_hides_nothing_else(ask: Ask, db: Redis, caplog: pytest.LogCaptureFixture) -> None:
    expected = publish(db, "good", 1)
    publish(db, "bad")
    db.set(keys.server_info("h", 7, "bad"), b"\xff\xff")
    db.hset(keys.workers("h", 7, "good"), "odd", b"\xff\xff")
    with caplog.at_level(logging.WARNING, "fastq.inspector"):
        assert ask("servers") == [expected]
    assert len(caplog.messages) == 2


def entry(number: int, **changes: Any) -> SchedulerEntry:
    fields = {
        "id": f"id-{number}",
        "spec": "@every 30s",
        "task_type": f"t{number}",
        "task_payload": b"\x00p",
        "enqueue_options": ('Queue("low")', "MaxRetry(3)"),
        "next_enqueue_time": STARTED,
        "prev_enqueue_time": None,
    }
    return SchedulerEntry(**{**fields, **changes})


def test_entries_of_all_live_schedulers_are_listed(ask: Ask, db: Redis) -> None:
    entries = [entry(number) for number in range(4)]
    for name, number, expires_s in (("s:1:a", 1, 600), ("s:1:a", 0, 600), ("s:1:b", 2, 600), ("s:1:late", 3, -5)):
        db.lpush(keys.scheduler_entries(name), encode_scheduler_entry(entries[number]))
        db.zadd(keys.all_schedulers(), {keys.scheduler_entries(name): int(time.time()) + expires_s})
    assert ask("scheduler_entries") == entries[:3]
    assert db.zcard(keys.all_schedulers()) == 2


def test_what_an_entry_enqueued_is_listed_by_pages_latest_first(ask: Ask, db: Redis) -> None:
    events = [SchedulerEnqueueEvent(f"task-{n}", STARTED.replace(second=n)) for n in range(5)]
    for number, event in enumerate(events):
        db.zadd(keys.scheduler_history("e"), {encode_scheduler_enqueue_event(event): number})
    latest_first = events[::-1]
    assert ask("list_scheduler_enqueue_events", "e") == latest_first
    assert ask("list_scheduler_enqueue_events", "e", page=2, page_size=2) == latest_first[2:4]
    assert ask("list_scheduler_enqueue_events", "e", page=4, page_size=2) == []
    assert ask("list_scheduler_enqueue_events", "nosuch") == []
    with pytest.raises(ValueError, match="entry_id must"):
        ask("list_scheduler_enqueue_events", " ")


def test_ticks_are_counted_by_type_and_outcome(ask: Ask, db: Redis) -> None:
    assert ask("scheduler_ticks") == {}
    counts = {"enqueued:mail:send": 7, "missed:mail:send": 2, "failed:b": 1, "of a later version:b": 5}
    for name, count in counts.items():
        db.hincrby(keys.scheduler_ticks(), name, count)
    none = dict.fromkeys(("enqueued", "duplicate", "failed", "missed"), 0)
    assert ask("scheduler_ticks") == {"b": {**none, "failed": 1}, "mail:send": {**none, "enqueued": 7, "missed": 2}}


def test_the_slot_of_a_queue_is_known_without_a_cluster(ask: Ask, db: Redis) -> None:
    # Redis' own example of its hash: the slot of 123456789 is 0x31C3.
    assert ask("cluster_key_slot", "123456789") == 0x31C3


def test_nodes_of_what_is_no_cluster_are_an_error(ask: Ask, db: Redis) -> None:
    with pytest.raises(BrokerError, match="cluster support disabled"):
        ask("cluster_nodes", "default")


@pytest.fixture
def heard(db: Any) -> Iterator[Any]:
    """Listen to both channels of cancellations."""
    with db.pubsub() as pubsub:
        pubsub.subscribe(keys.CANCEL_CHANNEL, keys.CANCEL_AS_CHANNEL)
        for _ in range(2):
            assert pubsub.get_message(timeout=PATIENCE_S)["type"] == "subscribe"
        yield lambda: pubsub.get_message(timeout=PATIENCE_S)


def test_a_cancellation_is_the_bare_id_on_asynqs_channel(ask: Ask, heard: Any) -> None:
    assert ask("cancel_processing", "id-1") is None
    message = heard()
    assert (message["channel"].decode(), message["data"]) == (keys.CANCEL_CHANNEL, b"id-1")


def test_a_cancellation_with_an_outcome_goes_to_fastqs_channel_first(ask: Ask, heard: Any) -> None:
    ask("cancel_processing", "id-1", "delete", queue="low")
    first, second = heard(), heard()
    assert first["channel"].decode() == keys.CANCEL_AS_CHANNEL
    assert tuple(read_cancellation(first["data"].decode())) == ("id-1", "low", "delete")
    assert (second["channel"].decode(), second["data"]) == (keys.CANCEL_CHANNEL, b"id-1")


@pytest.mark.parametrize(
    ("args", "queue", "text"),
    [
        ((" ",), None, "task_id must"),
        (("id-1", "explode"), None, "outcome must be one of .*'explode'"),
        (("id-1", "retry"), " ", "queue must"),
    ],
)
def test_a_cancellation_of_nothing_or_with_an_unknown_outcome_is_refused(
    ask: Ask, db: Redis, args: tuple[str, ...], queue: str | None, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        ask("cancel_processing", *args, queue=queue)
