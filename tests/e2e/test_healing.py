"""A server repairs by itself: dangling ids that dead peers left in Redis, and a loop of its own that died."""

import json
import sys

import pytest

from fastq import Client
from fastq.wire.codec import TaskMessage, encode_task_message
from tests.e2e import sabotage
from tests.e2e.harness import APP, Workers
from tests.e2e.view import View
from tests.waiting import wait_until

SHORT = {"recover_grace_s": 1, "recoverer_interval_s": 0.2, "report_interval_s": 0.5, "settle_s": 0.4}
"""With leases that end no sooner than any others: nothing else is to be repaired where a machine stands still."""


@pytest.fixture
def dangling(view: View) -> list[str]:
    """Plant what asynq and its peers leave for ever; give the ids of those that have a task."""

    def put(task_id: str) -> None:
        message = TaskMessage(type="ok", id=task_id, queue="default", retry=3, timeout=60, retention=3600)
        view.db.hset(f"asynq:{{default}}:t:{task_id}", mapping={"msg": encode_task_message(message), "state": "active"})

    view.db.sadd("asynq:queues", "default")
    view.db.lpush("asynq:{default}:active", "active-no-task", "active-no-lease", "leased-no-task")
    view.db.zadd("asynq:{default}:lease", {"leased-no-task": 1, "lease-not-active": 1, "lease-no-task-not-active": 1})
    put("active-no-lease")
    put("lease-not-active")
    return ["active-no-lease", "lease-not-active"]


def test_dangling_ids_in_active_and_lease_are_repaired_and_counted_and_their_tasks_are_done(
    workers: Workers, view: View, dangling: list[str]
) -> None:
    """Tasks stuck in active for ever are what people complain of most."""
    worker = workers.start_timed(SHORT, concurrency=1, delayed_task_check_interval=0.05).is_ready()
    view.until("completed", "lease-not-active")
    message = view.until("completed", "active-no-lease")
    assert message is not None
    assert message.retried == 0
    assert message.error_msg.startswith("asynq: task lease expired: lost with its server; ")
    wait_until(lambda: not view.size("active") and not view.size("lease"))
    repaired = "repaired: 1 recovered, 3 ids without task, 1 active without lease, 1 leases without active task"
    worker.wait_for(f"2 tasks done; 0 in flight; {repaired}")
    assert worker.stop() == 0, worker.text
    assert sorted(dangling) == sorted(view.ids("completed"))


def test_an_actor_that_died_is_started_again_and_the_server_fetches_on(
    workers: Workers, client: Client, view: View
) -> None:
    """A worker that stops consuming after a reconnect, and says nothing, is the second thing that people report."""
    order = {"app": APP, "redis": workers.url, "config": {"concurrency": 1}, "timing": {"watchdog_interval_s": 0.1}}
    worker = workers.start(json.dumps(order), app="", program=(sys.executable, "-m", "tests.e2e.sabotage")).is_ready()
    view.until("completed", client.enqueue("ok", retention=3600).id)
    worker.signal(sabotage.SIGNAL)
    worker.wait_for("restarting the fetcher: its task has died")
    view.until("completed", client.enqueue("ok", retention=3600).id)
    assert worker.stop() == 0, worker.text
    assert worker.text.count("restarting the fetcher") == 1
