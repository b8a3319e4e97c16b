"""Two servers on one queue, of which one alone has a handler: what the other one does with such a task."""

import signal

import pytest

from fastq import Client
from tests.e2e.harness import Workers
from tests.e2e.view import View
from tests.waiting import wait_until


@pytest.mark.parametrize(("has_peer", "retried"), [(True, 0), (False, 1)])
def test_a_task_that_another_server_has_a_handler_for_costs_no_attempt(
    has_peer: bool, retried: int, workers: Workers, client: Client, view: View
) -> None:
    if has_peer:
        peer = workers.start("--concurrency", "1").is_ready()
        peer.signal(signal.SIGTSTP)  # it shows itself and leaves the task to the other one
        wait_until(lambda: b"stopped" in view.published())
    old = workers.start("--concurrency", "1", app="tests.e2e.apps:narrow").is_ready()
    client.enqueue("ok", task_id="it")
    message = view.until("retry", "it")
    assert message is not None
    assert message.retried == retried
    assert "handler not found" in message.error_msg
    assert view.count("failed") == retried
    assert "no handler here matches type 'ok' of queue default; its tasks " in old.text
    assert old.stop() == 0, old.text
