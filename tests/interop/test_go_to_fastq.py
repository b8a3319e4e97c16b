"""What Go asynq writes, fastq reads field for field."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
import redis

from fastq import Inspector
from fastq.broker.operations.lease import Owner
from fastq.broker.transport.open import open_async_broker
from fastq.common.clock import SystemClock
from fastq.server.actors.lost_tasks import LostTaskRules, LostTasks
from fastq.server.actors.recoverer import Recoverer
from fastq.server.base.commands import Commands
from fastq.server.base.config import MAX_LOST
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.stall import StallWatch
from fastq.server.inflight.tally import Tally
from fastq.wire import keys
from fastq.wire.codec import TaskMessage, decode_task_message, encode_task_message
from tests.interop.peer import QUICK, GoPeer
from tests.interop.records import GoOptions, GoTask, GoTaskInfo
from tests.interop.samples import COMBINATIONS, SECOND_NS, Sample, samples
from tests.server.harness import TRUSTING
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

SEED = 20251121
HOUR_NS = 3600 * SECOND_NS


def message_of(db: redis.Redis, queue: str, task_id: str) -> bytes:
    message = db.hget(keys.task(queue, task_id), "msg")
    assert isinstance(message, bytes)
    return message


def expected_message(sample: Sample, task_id: str) -> TaskMessage:
    return TaskMessage(
        type=sample.type,
        payload=sample.payload or b"",
        id=task_id,
        queue=sample.queue,
        retry=25 if sample.max_retry is None else sample.max_retry,
        timeout=sample.timeout_s,
        deadline=sample.deadline_s,
        unique_key=sample.lock,
        group_key=sample.group or "",
        retention=sample.retention_s,
        headers=sample.headers or {},
    )


def test_fastq_reads_every_message_of_a_go_client(go: GoPeer, db: redis.Redis) -> None:
    sent = list(samples(4 * len(COMBINATIONS), SEED))
    returned = go.enqueue_many(sample.go_task() for sample in sent)
    for sample, info in zip(sent, returned, strict=True):
        assert isinstance(info, GoTaskInfo), info
        raw = message_of(db, sample.queue, info.id)
        message = decode_task_message(raw)
        assert message == expected_message(sample, info.id)
        assert info.state == sample.state
        if len(message.headers) < 2:  # Go writes a map in any order
            assert encode_task_message(message) == raw


def test_go_reads_every_message_that_fastq_encodes(go: GoPeer) -> None:
    for number, sample in enumerate(samples(len(COMBINATIONS), SEED + 1)):
        sent = expected_message(sample, f"id-{number}").replace(
            retried=number, error_msg="é" * number, last_failed_at=10**9 + number, completed_at=10**9 * (number % 2)
        )
        assert fields_of_info(go.decode(encode_task_message(sent))) == fields_of_message(sent)


def fields_of_info(info: GoTaskInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "queue": info.queue,
        "type": info.type,
        "payload": info.payload or b"",
        "headers": info.headers or {},
        "retry": info.max_retry,
        "retried": info.retried,
        "error_msg": info.last_err,
        "last_failed_at": (info.last_failed_at_ns or 0) // SECOND_NS,
        "timeout": info.timeout_ns // SECOND_NS,
        "deadline": (info.deadline_ns or 0) // SECOND_NS,
        "group_key": info.group,
        "retention": info.retention_ns // SECOND_NS,
        "completed_at": (info.completed_at_ns or 0) // SECOND_NS,
    }


def fields_of_message(message: TaskMessage) -> dict[str, Any]:
    """Return all fields but unique_key, which asynq shows nowhere."""
    names = (
        "id queue type payload headers retry retried error_msg last_failed_at timeout deadline group_key retention"
        " completed_at"
    )
    return {name: getattr(message, name) for name in names.split()}


def test_fastq_reads_what_a_go_server_rewrites(go: GoPeer, db: redis.Redis) -> None:
    scripts: list[dict[str, Any]] = [
        {"do": "error", "text": "no \u2028 é"},
        {"do": "not_failure", "text": "later"},
        {"do": "skip", "text": "never"},
        {"do": "panic", "text": "oh"},
        {"do": "result", "result": "AP8="},
    ]
    for number, script in enumerate(scripts):
        payload = json.dumps(script).encode()
        options: Any = {"task_id": f"{number}", "retention_ns": HOUR_NS, "unique_ns": HOUR_NS}
        go.enqueue(GoTask("t", payload, {"k": "v"}, options))
    with go.server(retry_delay_ns=HOUR_NS, task_check_ns=SECOND_NS // 100):
        go.executions(finished=len(scripts))
    states = Counter[str]()
    for number in range(len(scripts)):
        info = go.task_info("default", f"{number}")
        message = decode_task_message(message_of(db, "default", f"{number}"))
        assert fields_of_message(message) == fields_of_info(info)
        assert message.unique_key == keys.unique("default", "t", message.payload)
        assert bool(message.error_msg) == bool(message.last_failed_at) == (info.state != "completed")
        states[info.state] += 1
    assert states == {"retry": 3, "archived": 1, "completed": 1}


# Lost tasks -------------------------------------------------------------------------------------------------------


def test_how_often_a_task_was_lost_outlives_all_that_go_does_with_it(go: GoPeer, db: Any, redis_url: str) -> None:
    """A field of its hash that asynq does not know: Go runs it, retries, archives and completes it."""
    hour: GoOptions = {"retention_ns": HOUR_NS, "max_retry": 1}
    go.enqueue(GoTask("t", b'{"do": "error"}', options={"task_id": "fails", **hour}))
    go.enqueue(GoTask("t", b'{"do": "result"}', options={"task_id": "ends", **hour}))
    for task_id in ("fails", "ends"):
        lose(db, redis_url, task_id)
        info = go.task_info("default", task_id)
        assert (info.state, info.retried) == ("pending", 0)
        assert info.last_err.startswith("asynq: task lease expired: lost with its server; time 1 of at most 3")
    with go.server(**{**QUICK, "retry_delay_ns": 1, "delayed_task_check_ns": SECOND_NS // 10}):
        go.executions(finished=3)
        wait_until(lambda: go.task_info("default", "fails").state == "archived")
        wait_until(lambda: go.task_info("default", "ends").state == "completed")
    assert go.task_info("default", "fails").retried == 1
    for task_id in ("fails", "ends"):
        assert db.hget(keys.task("default", task_id), "lost") == b"1"
    with Inspector(redis_url) as inspector:
        assert inspector.get_task_info("default", "fails").lost == 1


def lose(db: Any, url: str, task_id: str) -> None:
    """Let a server take a pending task and die, and one of fastq's find out."""

    async def recover() -> None:
        broker = open_async_broker(url)
        clock = SystemClock()
        in_flight = InFlight.of(Owner.draw(), StallWatch(clock), clock, TRUSTING)
        rules = LostTaskRules(lambda retried: 3600.0, MAX_LOST, None, Tally)
        commands = Commands(broker)
        lost = LostTasks(commands, rules, clock, in_flight.stats)
        await Recoverer(commands, ["default"], in_flight, lost, None).tick()
        await broker.close()

    assert db.lrem(keys.pending("default"), 0, task_id) == 1
    db.lpush(keys.active("default"), task_id)
    db.hset(keys.task("default", task_id), "state", "active")
    db.zadd(keys.lease("default"), {task_id: 1})
    asyncio.run(recover())
