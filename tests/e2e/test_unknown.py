"""Two servers on one queue, of which one alone has a handler: what the other one does with such a task."""

import signal

import pytest

from fastq import Client
from tests.e2e.harness import Workers
from tests.e2e.view import View
from tests.waiting import wait_until


@pytest.mark.parametrize(("peer", "retried"), [("active", 0), ("quiet", 1), (None, 1)])
def test_a_task_that_another_server_has_a_handler_for_costs_no_attempt(
    peer: str | None, retried: int, workers: Workers, client: Client, view: View
) -> None:
    old = workers.start("--concurrency", "1", app="tests.e2e.apps:narrow").is_ready()
    other = workers.start("--concurrency", "1").is_ready() if peer else None
    if other is not None:
        wait_until(lambda: view.published().count(b"active") == 2)
    if other is not None and peer == "active":
        other.signal(signal.SIGSTOP)  # it counts as active, and leaves the task to the old one
    elif other is not None:
        other.signal(signal.SIGTSTP)
        wait_until(lambda: b"stopped" in view.published())
    client.enqueue("ok", task_id="it")
    message = view.until("retry", "it")
    assert message is not None
    assert message.retried == retried
    assert "handler not found" in message.error_msg
    assert view.count("failed") == retried
    old.wait_for("no handler here matches type 'ok' of queue default; its tasks ")
    assert old.stop() == 0, old.text
    if other is not None:
        other.signal(signal.SIGCONT)
