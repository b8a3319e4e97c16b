"""An inspector and a running server on one Redis: it sees what the server does, and the server heeds what it does."""

from collections.abc import Iterator
from typing import Any

import pytest

from fastq import Client, Inspector, QueueNotEmptyError, TaskState, TaskStateError
from fastq.wire import keys
from tests.e2e.harness import Workers
from tests.e2e.view import View
from tests.waiting import wait_until


@pytest.fixture
def inspector(url: str) -> Iterator[Inspector]:
    with Inspector(url) as inspector:
        yield inspector


def test_a_server_and_what_it_works_on_are_seen(
    workers: Workers, client: Client, view: View, inspector: Inspector
) -> None:
    worker = workers.start("--queues", "default=2,low=1", "--concurrency", "2").is_ready()
    client.enqueue("wait", b"payload", task_id="it", timeout=600)
    wait_until(lambda: [w for server in inspector.servers() for w in server.active_workers])
    (server,) = inspector.servers()
    assert (server.pid, server.queues, server.status) == (worker.pid, {"default": 2, "low": 1}, "active")
    (busy,) = server.active_workers
    assert (busy.task_id, busy.task_type, busy.task_payload, busy.queue) == ("it", "wait", b"payload", "default")
    (task,) = inspector.list_active_tasks("default")
    assert (task.id, task.is_orphaned) == ("it", False)
    for refused in (inspector.delete_task, inspector.archive_task, inspector.run_task):
        with pytest.raises(TaskStateError, match="'active'"):
            refused("default", "it")
    with pytest.raises(QueueNotEmptyError, match="1 active"):
        inspector.delete_queue("default", force=True)
    view.open()
    view.until("", "it")
    assert worker.stop() == 0, worker.text
    assert inspector.servers() == []
    info = inspector.get_queue_info("default")
    assert (info.processed_total, info.failed_total, info.size) == (1, 0, 0)


def test_a_paused_queue_waits_until_it_is_resumed(
    workers: Workers, client: Client, view: View, inspector: Inspector
) -> None:
    workers.start("--queues", "default=1,other=1", "--concurrency", "1").is_ready()
    inspector.pause_queue("default")
    client.enqueue("ok", task_id="waits")
    client.enqueue("ok", queue="other", task_id="runs")
    view.until("", "runs", "other")
    assert [task.id for task in inspector.list_pending_tasks("default")] == ["waits"]
    inspector.unpause_queue("default")
    view.until("", "waits")


def listeners(view: View) -> list[int]:
    """Count who hears each of the channels of cancellations."""
    client: Any = view.db
    return [count for _, count in client.pubsub_numsub(keys.CANCEL_CHANNEL, keys.CANCEL_AS_CHANNEL)]


@pytest.mark.parametrize(("outcome", "state"), [(None, "retry"), ("archive", "archived"), ("delete", "")])
def test_a_cancelled_task_ends_as_told(
    workers: Workers, client: Client, view: View, inspector: Inspector, outcome: str | None, state: str
) -> None:
    workers.start("--concurrency", "1").is_ready()
    client.enqueue("sleep", headers={"seconds": "600"}, task_id="it", timeout=700)
    view.until("active", "it")
    wait_until(lambda: listeners(view) == [1, 1])  # the server is ready a moment before it hears
    inspector.cancel_processing("it", outcome)
    view.until(state, "it")


def test_tasks_that_are_run_again_go_to_the_server(
    workers: Workers, client: Client, view: View, inspector: Inspector
) -> None:
    for number in range(3):
        client.enqueue("ok", task_id=f"s{number}", process_in=3600)
        client.enqueue("ok", task_id=f"a{number}", process_in=3600)
        inspector.archive_task("default", f"a{number}")
    inspector.update_task_payload("default", "s0", b"new")
    workers.start("--concurrency", "1").is_ready()
    assert inspector.run_all_scheduled_tasks("default") == 3
    inspector.run_task("default", "a0")
    assert inspector.run_all_archived_tasks("default") == 2
    wait_until(lambda: inspector.get_queue_info("default").processed_total == 6)
    assert [inspector.list_tasks("default", state) for state in TaskState if state != "aggregating"] == [[]] * 6


def test_a_queue_is_deleted_under_a_server_that_serves_it(
    workers: Workers, client: Client, view: View, inspector: Inspector
) -> None:
    workers.start("--concurrency", "1").is_ready()
    client.enqueue("ok", task_id="done", retention=3600)
    view.until("completed", "done")
    client.enqueue("ok", task_id="later", process_in=3600)
    inspector.delete_queue("default", force=True)
    assert inspector.queues() == []
    assert list(view.db.scan_iter("asynq:{default}:*")) == []
    with Client(workers.url) as another:  # the first one knows for 10 s that the queue is listed
        another.enqueue("ok", task_id="new", retention=3600)
    view.until("completed", "new")
    assert inspector.get_queue_info("default").processed_total == 1
