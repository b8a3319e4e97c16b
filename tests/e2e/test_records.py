"""What a worker records of runs, held against a ledger of the handlers and the counters of Redis."""

import json
from bisect import bisect_left
from collections import Counter
from pathlib import Path

from redis import Redis

from fastq import Client, Inspector, Task
from fastq.wire import keys
from fastq.wire.history import BOUNDS_S
from tests.e2e.harness import Workers
from tests.waiting import wait_until

TASKS = Counter({b"": 1640, b"slow": 140, b"fail": 100, b"again": 100, b"steps": 20})


def test_task_log_and_history_are_those_of_the_ledger(
    workers: Workers, client: Client, db: Redis, url: str, tmp_path: Path
) -> None:
    client.enqueue_many([Task("work", payload, max_retry=int(payload == b"again")) for payload in TASKS.elements()])
    ledger, log = tmp_path / "ledger", tmp_path / "tasks.jsonl"
    flags = "--concurrency", "2", "--delayed-task-check-interval", "0.1", "--task-log", str(log)
    # How long tasks had been pending that came with a reply that was not waited for is not known.
    env = {"LEDGER": str(ledger), "FASTQ_REDIS_URL": f"{url}?read_timeout=15"}
    worker = workers.start(*flags, app="tests.e2e.recorded_app:mux", env=env)
    attempts = TASKS.total() + TASKS[b"again"]
    wait_until(lambda: db.get(keys.processed_total("default")) == b"%d" % attempts)
    assert worker.stop() == 0

    ran = [line.split() for line in ledger.read_text().splitlines()]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert Counter((line["id"], line["attempt"]) for line in lines) == Counter((id, int(n)) for id, n, _ in ran)
    assert len(ran) == attempts
    ends = Counter((line["type"], line["queue"], line["end"], line["error"]) for line in lines)
    assert ends == {
        ("work", "default", "done", None): attempts - 200,
        ("work", "default", "archived", "KeyError"): 100,
        ("work", "default", "retried", "Retry"): 100,
    }
    assert sum(line["run_s"] for line in lines) > sum(float(ran_s) for *_, ran_s in ran) - 0.001 * attempts
    assert all(line["server"].endswith(f":{worker.pid}") for line in lines)
    assert [line for line in lines if line["wait_s"] is None] == [], worker.text  # it says which replies were lost
    assert min(line["wait_s"] for line in lines) >= 0

    with Inspector(url) as inspector:
        history, info = inspector.run_history("default", 3600, by_type=True), inspector.get_queue_info("default")
    total = history.total
    assert (total.processed, total.failed) == (info.processed_total, info.failed_total) == (attempts, 200)
    assert (total.retried, total.archived, total.lost) == (100, 100, 0)
    assert sum(total.run.counts) == total.done + total.failed == attempts, "a checkpoint is no run"
    assert attempts <= total.wait.count  # those that a child gave back waited twice
    assert sum(point.done for point in history.points) == history.types["work"].done == attempts - 200
    p95_s = sorted(float(ran_s) for *_, ran_s in ran)[attempts * 95 // 100]
    told = total.run.quantile(0.95)
    assert told is not None
    assert abs(BOUNDS_S.index(told.total_seconds()) - bisect_left(BOUNDS_S, p95_s)) <= 1

    with Inspector(url) as inspector:
        inspector.delete_queue("default", force=True)
    assert db.keys("*{default}*") == []
