"""The ceiling: fastq's own scripts, driven by loops that do nothing else and call no handler.

``produce`` and ``work`` are its two roles.
"""

import os
import time
from datetime import UTC, datetime
from typing import Any

import redis

from benchmarks.compare.meter import PAYLOAD, counter
from benchmarks.compare.produce import serve
from fastq._ids import new_task_ids
from fastq.broker.scripts import SCRIPTS
from fastq.wire.codec import TaskMessage, encode_task_message

QUEUE = "asynq:{default}:"
PREFIX = f"{QUEUE}t:"
BATCH = 500
REST_S = 0.0005


def words(count: int) -> list[str | bytes]:
    """Return ids and encoded messages of so many tasks, in turn."""
    payload = PAYLOAD.encode()
    made: list[str | bytes] = []
    for id in new_task_ids(count):
        message = TaskMessage(type="noop", payload=payload, id=id, queue="default", retry=25, timeout=1800)
        made += (id, encode_task_message(message))
    return made


def produce(db: Any) -> None:
    """Enqueue one task a call, or 500."""
    sha = db.script_load(SCRIPTS["enqueue"].text)

    def send(made: list[str | bytes], batch: int) -> None:
        step = 2 * batch
        for at in range(0, len(made), step):
            db.evalsha(sha, 1, f"{QUEUE}pending", PREFIX, time.time_ns(), 2, *made[at : at + step])

    serve(lambda _, count: send(words(count), 1), lambda _, count: send(words(count), BATCH))


def work(db: Any) -> None:
    """Dequeue and finish tasks for ever, 500 a round trip."""
    dequeue, done = (db.script_load(SCRIPTS[name].text) for name in ("dequeue", "done"))
    day = datetime.now(UTC).date().isoformat()
    take = (dequeue, 4, *(QUEUE + name for name in ("pending", "active", "lease", "paused")), PREFIX, BATCH, 10**9)
    finish = (done, 4, *(QUEUE + name for name in ("active", "lease", f"processed:{day}", "processed")), PREFIX, 2**31)
    ids: list[bytes] = []
    while True:
        pipeline = db.pipeline(transaction=False)
        if ids:
            pipeline.execute_command("EVALSHA", *finish, -1, "", len(ids), *ids)
        pipeline.execute_command("EVALSHA", *take, int(time.time()) + 30)
        reply = pipeline.execute()[-1]
        counter().add(len(ids))
        ids = reply[1::2] if isinstance(reply, list) else []
        if not ids:
            time.sleep(REST_S)


def main(role: str) -> None:
    """Run one of the two programs."""
    {"produce": produce, "work": work}[role](redis.Redis.from_url(os.environ["COMPARE_REDIS_URL"]))
