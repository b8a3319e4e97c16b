"""A Redis as it is while servers are at work: queues, tasks of all states, servers, schedulers, and time going on."""

import json
import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fastq import Client, SchedulerEnqueueEvent, SchedulerEntry, Task, WorkerInfo
from fastq._version import __version__
from fastq.wire import keys
from fastq.wire.messages import ChildInfo, ServerInfoMessage
from fastq.wire.notice import ServerNotice
from fastq.wire.records import (
    encode_scheduler_enqueue_event,
    encode_scheduler_entry,
    encode_server_info,
    encode_worker_info,
)
from tests.inspector.harness import Seeded

FAR_S: Final = 4_000_000_000
QUEUES: Final = {"critical": 6, "default": 3, "images": 2, "low": 1}
PENDING: Final = {"critical": 12, "default": 260, "images": 1_830, "low": 7}
JOBS: Final = (
    ("image:resize", {"path": "/in/cat.jpg", "width": 640, "height": 480, "tags": ["new", "cat"]}),
    ("mail:welcome", {"to": "ann@example.org", "locale": "en"}),
    ("report:daily", {"day": "2026-11-20", "totals": {"orders": 1204, "refunds": 3}, "currency": "EUR"}),
)


def publish_server(db: Any, server_id: str, host: str, workers: list[WorkerInfo], *, concurrency: int = 8) -> None:
    """Let a server have sent a heartbeat that lasts."""
    started = datetime.now(UTC) - timedelta(hours=5, minutes=12)
    info = ServerInfoMessage(host, 4211, server_id, concurrency, QUEUES, False, "active", started, len(workers))
    db.set(keys.server_info(host, 4211, server_id), encode_server_info(info))
    db.zadd(keys.all_servers(), {keys.server_info(host, 4211, server_id): FAR_S})
    for worker in workers:
        db.hset(keys.workers(host, 4211, server_id), worker.task_id, encode_worker_info(worker))
    db.zadd(keys.all_workers(), {keys.workers(host, 4211, server_id): FAR_S})
    children = tuple(_child(n, worker) for n, worker in enumerate([*workers, None][:concurrency]))
    notice = ServerNotice(__version__, tuple(QUEUES), ("digest:", "image:", "mail:", "report:"), children=children)
    db.set(keys.server_notice(keys.server_info(host, 4211, server_id)), notice.encode())


def _child(number: int, worker: WorkerInfo | None) -> ChildInfo:
    since = datetime.now(UTC) - timedelta(hours=5, minutes=11)
    ids = (worker.task_id,) if worker else ()
    return ChildInfo(4220 + number, "busy" if worker else "idle", since, (61 + 7 * number) << 20, ids)


def publish_entries(db: Any, *entries: SchedulerEntry) -> None:
    """Let a scheduler have sent a heartbeat that lasts."""
    key = keys.scheduler_entries("h:1:x")
    db.rpush(key, *map(encode_scheduler_entry, entries))
    db.zadd(keys.all_schedulers(), {key: FAR_S})


def fill_scene(db: Any, url: str) -> None:
    """Put everything there."""
    pick = random.Random(1)
    with Client(url) as client:
        for queue, count in PENDING.items():
            tasks = [Task(*pick.choice(JOBS), queue=queue, task_id=f"{queue[:2]}-{n:06}") for n in range(count)]
            client.enqueue_many(tasks)
            client.enqueue_many([Task(*JOBS[2], queue=queue, process_in=60 * n + 5) for n in range(1, 9)])
        client.enqueue_many([Task("digest:mail", {"to": n}, queue="low", group="weekly") for n in range(3)])
    running = {queue: _run_some(db, queue, count, pick) for queue, count in (("default", 5), ("images", 7))}
    for queue in QUEUES:
        _end_some(db, queue)
    publish_server(db, "5f0c2a71-server", "worker-1", running["default"])
    publish_server(db, "b81e77d0-server", "worker-2", running["images"])
    _schedule(db)
    db.set(keys.paused("low"), int(time.time()))
    pass_time(db, 60_000)


def _run_some(db: Any, queue: str, count: int, pick: random.Random) -> list[WorkerInfo]:
    workers = []
    for n in range(count):
        type, payload = pick.choice(JOBS)
        task_id, data = f"{queue[:2]}-run-{n}", json.dumps(payload).encode()
        Seeded(db, queue).activate(task_id, until_s=FAR_S, type=type, payload=data)
        began = datetime.now(UTC) - timedelta(seconds=pick.randint(1, 90))
        workers.append(
            WorkerInfo("worker-1", 4211, "s", task_id, type, data, queue, began, began + timedelta(minutes=30))
        )
    return workers


def _end_some(db: Any, queue: str) -> None:
    now_s = int(time.time())
    error = {"error_msg": "TimeoutError: no answer of images.example in 10 s (tasks.py:41)", "type": "image:resize"}
    seeded = Seeded(db, queue)
    payload = json.dumps(JOBS[0][1]).encode()
    for n in range(3):
        failed = {**error, "last_failed_at": now_s - 40 * n - 5, "payload": payload}
        seeded.add("retry", {f"{queue[:2]}-retry-{n}": now_s + 600 + 60 * n}, retried=n + 1, **failed)
        seeded.add("archived", {f"{queue[:2]}-arch-{n}": now_s - 300 * n}, retried=25, **failed)
        done = {"type": "mail:welcome", "payload": b'{"to":"ann@example.org"}', "retention": 3600}
        seeded.add("completed", {f"{queue[:2]}-done-{n}": FAR_S}, completed_at=now_s - 12 * n - 1, **done)
        db.hset(keys.task(queue, f"{queue[:2]}-done-{n}"), "result", b'{"sent": true, "id": 12}')


def _schedule(db: Any) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    at_three = (now + timedelta(hours=21)).replace(hour=3, minute=0, second=0)
    publish_entries(
        db,
        SchedulerEntry(
            "21f2ca9d", "0 3 * * *", "report:daily", b'{"day": "today"}', ('Queue("low")',),
            at_three, at_three - timedelta(days=1),
        ),
        SchedulerEntry(
            "21f50a8d", "@every 30s", "mail:ping", b"", ('Queue("critical")', "MaxRetry(2)"),
            now + timedelta(seconds=21), now - timedelta(seconds=9),
        ),
    )  # fmt: skip
    for n in range(50):
        at = now - timedelta(seconds=9 + 30 * n)
        event = encode_scheduler_enqueue_event(SchedulerEnqueueEvent(f"ping-{n:03}", at))
        db.zadd(keys.scheduler_history("21f50a8d"), {event: int(at.timestamp())})


def pass_time(db: Any, done: int) -> None:
    """Let servers have ended so many more tasks."""
    today = datetime.now(UTC)
    for share, queue in enumerate(QUEUES, 1):
        some = done * share // 10
        db.incrby(keys.processed(queue, today), some)
        db.incrby(keys.processed_total(queue), some)
        db.incrby(keys.failed(queue, today), some // 50)
        db.incrby(keys.failed_total(queue), some // 50)
