"""The doctor beside servers that are busy, and beside one that died."""

import json
import signal
from pathlib import Path

import pytest
from redis import Redis

from fastq import Client, Task
from fastq.wire import keys
from tests.cli.commands import Fastq
from tests.e2e.harness import Workers
from tests.e2e.view import View
from tests.inspector.doctor.harness import DEFECTS
from tests.inspector.harness import Seeded
from tests.waiting import wait_until


@pytest.fixture
def fastq(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fastq:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Fastq(url)


def problems(fastq: Fastq) -> list[tuple[str, str]]:
    """Return what is wrong with tasks; a busy machine may keep a server from showing itself for a while."""
    found = json.loads(fastq.run("doctor", "--json").stdout)
    return [
        (check["check"], check["seen"])
        for check in found["checks"]
        if check["level"] == "problem" and check["check"] not in ("served", "server clocks")
    ]


def test_a_healthy_busy_server_gives_no_problem(workers: Workers, client: Client, view: View, fastq: Fastq) -> None:
    flags = ("--queues", "default=2,low=1", "--concurrency", "2", "--retry-delay", "tests.e2e.apps:quick_retry")
    worker = workers.start(*flags, "--delayed-task-check-interval", "0.05").is_ready()
    kinds = ("ok", "fail-times", "fail", "skip", "revoke", "bytes")
    for each in range(3):
        client.enqueue_many(
            Task(
                kinds[n % len(kinds)],
                b"x",
                headers={"times": "1"},
                queue=("default", "low")[n % 2],
                task_id=f"{each}-{n}",
                retention=(0, 60)[n % 5 == 0],
                unique=None if n % 7 else 60,
                process_in=0.5 if n % 11 == 0 else None,
                max_retry=2,
            )
            for n in range(3000)
        )
        assert problems(fastq) == []
    wait_until(lambda: view.count("processed") + view.count("processed", "low"))
    client.enqueue("sleep", headers={"seconds": "0.5"})
    assert problems(fastq) == []
    wait_until(lambda: fastq.run("doctor").exit_code == 0)  # its server shows itself, too
    assert worker.stop() == 0, worker.text


def test_what_a_server_that_was_killed_held_is_seen_until_another_has_it(
    workers: Workers, client: Client, view: View, fastq: Fastq, db: Redis
) -> None:
    worker = workers.start("--concurrency", "1").is_ready()
    client.enqueue("sleep", headers={"seconds": "600"}, task_id="it", timeout=700)
    view.until("active", "it")
    worker.signal(signal.SIGKILL)
    worker.ended()
    db.zadd(keys.lease("default"), {"it": 1_000_000_000})
    assert ("expired leases", "1 in lease") in problems(fastq)
    workers.start("--concurrency", "1").is_ready()
    wait_until(lambda: db.hget(keys.task("default", "it"), "lost") == b"1")
    view.until("active", "it")
    assert problems(fastq) == []


def test_what_the_doctor_repairs_runs_under_a_server(
    workers: Workers, client: Client, view: View, fastq: Fastq, db: Redis
) -> None:
    queue = Seeded(db)
    for name in ("unleased", "dangling in pending", "dangling in active", "lost, pending"):
        DEFECTS[name].make(queue)
    queue.put("bare", "active", type="ok", retention=3600)
    queue.put("lost", "pending", type="ok", retention=3600)
    assert fastq.run("doctor", "--repair", "--yes").exit_code in (0, 1)
    assert fastq.done("task", "run", "-q", "default", "-i", "lost")
    db.zadd(keys.lease("default"), {"bare": 1_000_000_000})
    workers.start("--concurrency", "1", "--delayed-task-check-interval", "0.05").is_ready()
    view.until("completed", "lost")
    view.until("completed", "bare")
    wait_until(lambda: view.size("active") == 0)
    assert problems(fastq) == []
