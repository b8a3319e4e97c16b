"""The scene of the dashboard, and what the web UI shows besides: last days, a queue without a server, odd tasks."""

import random
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from msgspec import Meta
from redis import Redis

from fastq import App, Client, SchedulerEnqueueEvent, SchedulerEntry, WorkerInfo
from fastq.broker.operations.history import add_history
from fastq.broker.transport.open import open_broker
from fastq.web.site import name_in_path
from fastq.wire import keys
from fastq.wire.attempts import AttemptRecord
from fastq.wire.history import BUCKETS, COUNTERS, OUTCOMES
from fastq.wire.progress import encode_progress
from fastq.wire.records import encode_scheduler_enqueue_event
from tests.cli.dash.scene import FAR_S, fill_scene, publish_entries, publish_server
from tests.inspector.harness import Seeded

DAYS: Final = 14
RUNS: Final = {"critical": 6_000, "default": 11_000, "images": 17_000, "low": 21_000, "reports": 400}
TYPES: Final = {
    "default": {"image:resize": 40, "mail:welcome": 90},
    "images": {"image:resize": 160},
    "low": {"digest:mail": 5},
}
UNSERVED: Final = 140
HOSTILE: Final = "\"><script>window.x=1</script><img src=x onerror='window.x=1'>\u202e\u200b{{7*7}}javascript:"
HOSTILE_QUEUE: Final = HOSTILE.replace("{{7*7}}", "../..?#%2F&amp;")  # braces are the hash tag's
EXACT: Final = (
    '{"id": 9007199254740993, "price": 1.10, "paid": true, "coupon": null, "tags": ["new", "gift"], '
    '"address": {"name": "Jürgen Åström", "city": "Köln", "lines": [], "zip": "50667"}, "note": "two\\nlines"}'
)
PAGES: Final = {
    "queues": "/",
    "queue": "/queues/default/retry",
    "active": "/queues/images/active",
    "pending": "/queues/images/pending?size=8",
    "groups": "/queues/low/aggregating",
    "lanes": f"/queues/{name_in_path(HOSTILE_QUEUE)}/lanes",
    "task": "/queues/reports/tasks/exact",
    "binary": "/queues/reports/tasks/binary",
    "retried": "/queues/default/tasks/de-retry-1",
    "servers": "/servers",
    "schedulers": "/schedulers",
    "entry": "/schedulers/21f50a8d",
    "enqueue": "/enqueue?of=reports&id=exact",
    "typed": "/enqueue?task=invoice:render",
    "hex": "/queues/reports/tasks/exact?payload=hex",
    "running": "/queues/images/tasks/im-run-1",
    "history": "/history",
    "history-of": "/history?queue=images&since=24h",
    "charts": "/history/prometheus",
    "days": "/history?since=14d",
    "settings": "/settings",
    "redis": "/redis",
    "search": "/search?q=error:TimeoutError",
    "searching": "/search",
    "jobs": "/jobs",
    "doctor": "/doctor",
    "missing": "/queues/nowhere/active",
}


SHOP: Final = App()


@SHOP.task("invoice:render", queue="reports", timeout=90)
def render(
    order: int,
    customer: str,
    due: date | None = None,
    form: Literal["pdf", "html"] = "pdf",
    copies: Annotated[int, Meta(ge=1)] = 1,
    is_paid: bool = False,
    lines: Sequence[str] = (),
) -> None:
    """Write the invoice of an order, and keep it for ten years."""


def fill(db: Any, url: str) -> None:
    """Put everything there but what is hostile."""
    fill_scene(db, url)
    chance = random.Random(11)
    now = datetime.now(UTC)
    with Client(url) as client:
        for n in range(UNSERVED):
            client.enqueue(f"invoice:{chance.choice(('render', 'send'))}", {"order": 4_000 + n}, queue="reports")
        client.enqueue("thumbnail:make", bytes(range(256)) * 12, queue="reports", task_id="binary")
        headers = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tenant": "acme"}
        client.enqueue("invoice:render", EXACT.encode(), queue="reports", task_id="exact", headers=headers, timeout=90)
    add_past(url, int(now.timestamp()), 75)
    told = encode_progress(42, 120, "frames", time.time_ns())
    db.hset(keys.task("images", "im-run-1"), "progress", told)
    for queue, scale in RUNS.items():
        for ago in range(1, DAYS):
            day, runs = now - timedelta(days=ago), int(scale * chance.uniform(0.4, 1.0))
            db.set(keys.processed(queue, day), runs, ex=86_400)
            db.set(keys.failed(queue, day), int(runs * chance.uniform(0, 0.12)), ex=86_400)


def add_past(url: str, now_s: int, minutes: int) -> None:
    """Let servers have counted the runs of the last minutes."""
    chance = random.Random(7)
    with closing(open_broker(url)) as broker:
        for ago in range(minutes):
            for queue, types in TYPES.items():
                by_type = {type: _counts(chance, many) for type, many in types.items()}
                broker.run(add_history(queue, now_s - 60 * ago, by_type))


def _counts(chance: random.Random, many: int) -> list[int]:
    counts = [0] * COUNTERS
    done, failed = int(many * chance.uniform(0.5, 1)), int(many * chance.uniform(0, 0.1))
    counts[: len(OUTCOMES)] = done, failed, failed, failed // 4, 0
    for _ in range(done + failed):
        counts[len(OUTCOMES) + chance.choice((4, 5, 5, 6, 6, 7, 9))] += 1
        counts[len(OUTCOMES) + BUCKETS + chance.choice((1, 2, 2, 3, 8))] += 1
    return counts


def add_hostile(url: str) -> None:
    """Let every name and text of tasks, servers and periodic tasks be an attack."""
    with Client(url) as client:
        client.enqueue(HOSTILE, HOSTILE, queue=HOSTILE_QUEUE, task_id=HOSTILE, headers={HOSTILE: HOSTILE})
        client.enqueue(HOSTILE, {HOSTILE: HOSTILE}, queue=HOSTILE_QUEUE, task_id="json", group=HOSTILE)
    with Redis.from_url(url) as db:
        _add_hostile_ends(db)
        _add_hostile_servers(db)


def _add_hostile_ends(db: Any) -> None:
    db.hset(keys.limits(HOSTILE_QUEUE), mapping={"*": "1:0:1:1", HOSTILE: "1:0:1:1"})
    db.zadd(keys.full(HOSTILE_QUEUE), {HOSTILE: FAR_S * 1_000_000})
    db.sadd(keys.held(HOSTILE_QUEUE, HOSTILE), HOSTILE)
    seeded, now_s = Seeded(db, HOSTILE_QUEUE), int(time.time())
    bad = {"type": HOSTILE, "payload": f"\0\xff{HOSTILE}".encode("latin-1", "replace"), "last_failed_at": now_s}
    seeded.add("archived", {f"a{HOSTILE}": now_s}, error_msg=f"{HOSTILE}\0", **bad)
    seeded.add("retry", {f"r{HOSTILE}": FAR_S}, error_msg=HOSTILE, retried=1, **bad)
    failed = AttemptRecord(1, 1_000, 2_000, HOSTILE[:36], HOSTILE, "00" * 7 + "01")
    db.hset(keys.task(HOSTILE_QUEUE, f"r{HOSTILE}"), "attempts", failed.encode())
    db.set(keys.error(HOSTILE_QUEUE, failed.fingerprint), f"Traceback\n{HOSTILE}")
    seeded.add("completed", {f"c{HOSTILE}": FAR_S}, completed_at=now_s, **bad)
    db.hset(keys.task(HOSTILE_QUEUE, f"c{HOSTILE}"), "result", HOSTILE)


def _add_hostile_servers(db: Any) -> None:
    now, running = datetime.now(UTC), f"w{HOSTILE}"
    Seeded(db, HOSTILE_QUEUE).activate(running, until_s=FAR_S, type=HOSTILE, payload=b"x")
    db.hset(keys.task(HOSTILE_QUEUE, running), "progress", encode_progress(1, 2, HOSTILE, time.time_ns()))
    worker = WorkerInfo(HOSTILE, 4211, "s", running, HOSTILE, b"x", HOSTILE_QUEUE, now, now + timedelta(hours=1))
    publish_server(db, f"s{HOSTILE}", HOSTILE, [worker])
    options = (f'Queue("{HOSTILE_QUEUE}")', HOSTILE)
    publish_entries(db, SchedulerEntry(HOSTILE, HOSTILE, HOSTILE, HOSTILE.encode(), options, now, now))
    event = encode_scheduler_enqueue_event(SchedulerEnqueueEvent(HOSTILE, now))
    db.zadd(keys.scheduler_history(HOSTILE), {event: int(now.timestamp())})
