"""How late delayed tasks and retries begin on an idle server, after the Unix second that is their score.

fastq's producers and servers tell forwarders of a task that is due before all others of its queue. Go's do not: their
tasks are here put by hand. The worker has two children and three queues, and all settings as they come.
"""

import random
import time
from typing import Any

import pytest
import redis

from benchmarks.bench_latency import QUEUES, told, worker
from fastq import Client, Inspector
from fastq.wire import keys
from tests.redis_servers import RedisServer
from tests.waiting import wait_until

SAMPLES = 100
DELAYS_S = (1.0, 6.0)


def lateness_ms(client: Client, db: Any, *, as_go: bool) -> list[float]:
    """Schedule tasks some seconds ahead, at random moments, and return how late their handlers began."""
    due_s: dict[str, float] = {}
    for _ in range(SAMPLES):
        time.sleep(random.uniform(0.0, 0.4))
        due_s |= schedule(client, db, random.choice(QUEUES), as_go=as_go)
    return since(db, due_s)


def since(db: Any, due_s: dict[str, float]) -> list[float]:
    """Return how many milliseconds after they were due tasks (key to Unix second) began, once all have."""
    wait_until(lambda: all(db.hexists(key, "result") for key in due_s), 60.0)
    return sorted(int(db.hget(key, "result")) / 1e6 - 1e3 * at for key, at in due_s.items())


def schedule(client: Client, db: Any, queue: str, *, as_go: bool) -> dict[str, float]:
    """Enqueue a task that tells when it began; return its key and when it is due, in Unix seconds."""
    delay_s = random.uniform(*DELAYS_S)
    task_id = client.enqueue("bench:when", queue=queue, retention=600, process_in=3600 if as_go else delay_s).id
    if as_go:
        db.zadd(keys.scheduled(queue), {task_id: int(time.time() + delay_s)})
    return {keys.task(queue, task_id): db.zscore(keys.scheduled(queue), task_id)}


def retry_lateness_ms(client: Client, inspector: Inspector, db: Any) -> list[float]:
    """Let tasks fail once, at random moments; return how late their second attempts began."""
    tasks = []
    for _ in range(SAMPLES):
        time.sleep(random.uniform(0.0, 0.4))
        tasks.append(client.enqueue("bench:fails-once", queue=random.choice(QUEUES), retention=600))
    wait_until(lambda: all(db.hexists(keys.task(task.queue, task.id), "result") for task in tasks), 60.0)
    failed = [inspector.get_task_info(task.queue, task.id).last_failed_at for task in tasks]
    return since(
        db,
        {keys.task(task.queue, task.id): at.timestamp() + 1.0 for task, at in zip(tasks, failed, strict=True) if at},
    )


def test_lateness(tcp_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("--retry-delay", "benchmarks.apps:retry_soon")
    with (
        redis.Redis(port=tcp_server.port) as db,
        Client(tcp_server.tcp_url) as client,
        Inspector(tcp_server.tcp_url) as inspector,
        worker(tcp_server, settings=settings),
    ):
        client.enqueue("bench:noop")
        time.sleep(2.0)  # so that everything that happens once has happened
        ours = lateness_ms(client, db, as_go=False)
        retried = retry_lateness_ms(client, inspector, db)
        gos = lateness_ms(client, db, as_go=True)
    with capsys.disabled():
        print(f"\nhow late delayed tasks begin: {SAMPLES} of each, an idle server of three queues")
        print(told("scheduled by fastq", ours))
        print(told("retried after 1 s", retried))
        print(told("scheduled by Go", gos))
