"""A Redis on which fastq alone has worked, for others' tools to look at: tasks in all states, a server, a scheduler."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fastq import Client, Inspector, Scheduler, Task
from tests.e2e.harness import Workers
from tests.e2e.view import View
from tests.interop.samples import QUEUES, samples
from tests.redis_servers import RedisServer
from tests.waiting import PATIENCE_S, wait_until

BUSY = "work"
"""The queue that the worker serves; the others of the scene are only filled."""
TICKING = "ticks"
"""The queue into which the scheduler puts a task every second."""
SAMPLES = 96
SEED = 7
BINARY = bytes(range(128, 160))
RUNS = [
    Task("bytes", b"abc", task_id="completed", retention=3600, headers={"k": "v"}),
    Task("bytes", BINARY, task_id="binary-result", retention=7200),
    Task("fail-times", b"{}", task_id="late", retention=3600, headers={"times": "0"}),
    Task("fail", {"why": "никто"}, task_id="retried", max_retry=3, timeout=90),
    Task("fail", "again", task_id="dead", max_retry=0),
    Task("skip", task_id="skipped", deadline=datetime(2100, 1, 1, tzinfo=UTC)),
    Task("revoke", task_id="revoked"),
]
ENDED = len(RUNS)


@dataclass(frozen=True)
class Scene:
    """What is there: ``entries`` are those of the scheduler, of which the first is due every second."""

    redis: RedisServer
    inspector: Inspector
    entries: tuple[str, str]
    worker_pid: int


@contextmanager
def scene_on(redis: RedisServer, workers: Workers) -> Iterator[Scene]:
    """Set the scene, and let the worker and its one task go on until the end."""
    url = redis.url
    with redis.client() as db, Client(url) as client, Inspector(url) as inspector:
        view = View(db)
        for one in samples(SAMPLES, SEED):
            client.enqueue(one.type, one.payload, headers=one.headers, **one.options())
        inspector.pause_queue(QUEUES[1])
        for n in range(3):
            client.enqueue("part", f"{n}", task_id=f"part-{n}", queue="idle", group="g")
        worker = workers.start_timed(
            {"heartbeat_interval_s": 0.2},
            queues={BUSY: 3, "idle": 1},
            concurrency=2,
            strict_priority=True,
            retry_delay="tests.e2e.apps:retry_delay",
        ).is_ready()
        client.enqueue_many(RUNS, queue=BUSY)
        client.enqueue("wait", b"\xff", task_id="active", queue=BUSY, timeout=timedelta(hours=2))
        client.enqueue("later", queue=BUSY, task_id="later", process_in=timedelta(days=3))
        wait_until(lambda: view.count("processed", BUSY) == ENDED, PATIENCE_S)
        wait_until(lambda: [len(server.active_workers) for server in inspector.servers()] == [1], PATIENCE_S)
        with Scheduler(url, heartbeat_interval=1) as scheduler:
            entries = (
                scheduler.register("@every 1s", Task("tick", b"p"), queue=TICKING, max_retry=3),
                scheduler.register("0 6 * * *", "daily", tz="Europe/Paris", timeout=20),
            )
            wait_until(lambda: len(inspector.scheduler_entries()) == len(entries), PATIENCE_S)
            wait_until(lambda: len(inspector.list_scheduler_enqueue_events(entries[0])) > 2, PATIENCE_S)
            yield Scene(redis, inspector, entries, worker.pid)
        view.open()
        assert worker.stop() == 0, worker.text
