"""``fastq server stop`` and ``quiet`` on real servers."""

import signal
from pathlib import Path

import pytest

from fastq import Client, Inspector
from fastq.broker.operations.control import ServerOrder, send_order
from fastq.broker.transport.open import open_broker
from fastq.inspector import ServerInfo
from fastq.wire import keys
from tests.cli.commands import Fastq
from tests.e2e.harness import Worker, Workers
from tests.e2e.view import View
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture
def fastq(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fastq:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("fastq.cli.server_control.WAIT_S", PATIENCE_S)
    return Fastq(url)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command wait as long as a busy machine may take."""
    monkeypatch.setattr("fastq.cli.server_control.WAIT_S", PATIENCE_S)


def shown(fastq: Fastq, view: View, count: int = 1) -> list[ServerInfo]:
    """Wait for servers to show themselves, and to hear."""
    found: list[ServerInfo] = []

    def are_there() -> bool:
        with Inspector(fastq.url) as inspector:
            found[:] = inspector.servers()
        return len(found) == count and all(view.db.pubsub_numsub(keys.control_channel(s.id))[0][1] for s in found)

    wait_until(are_there)
    return found


def test_a_quiet_server_finishes_what_runs_and_takes_nothing_more(
    workers: Workers, client: Client, view: View, fastq: Fastq
) -> None:
    worker = workers.start("--concurrency", "1", "--prefetch-time", "0.001").is_ready()
    (server,) = shown(fastq, view)
    client.enqueue("wait", task_id="runs", retention=3600)
    view.expect("started", "runs")
    said = fastq.done("server", "quiet", server.id[:6], "--yes")
    assert said.startswith(f"{server.host}:{worker.pid} ({server.id[:8]}) is quiet; ")
    worker.wait_for("ordered through Redis to go quiet: no longer fetching")
    client.enqueue("ok", task_id="later")
    view.open()
    view.until("completed", "runs")
    assert view.state("later") == "pending"
    assert "is quiet" in fastq.done("server", "quiet", server.id, "--yes"), "once more is no error"
    assert worker.stop() == 0, worker.text
    assert view.state("later") == "pending"


def test_a_server_is_stopped_by_host_and_process_and_what_runs_goes_back(
    workers: Workers, client: Client, view: View, fastq: Fastq
) -> None:
    worker = workers.start("--concurrency", "1", "--shutdown-timeout", "0.2").is_ready()
    (server,) = shown(fastq, view)
    client.enqueue("sleep", headers={"seconds": "600"}, task_id="it", timeout=700)
    view.until("active", "it")
    said = fastq.done("server", "stop", f"{server.host}:{worker.pid}", "--yes")
    assert said.removeprefix(f"{server.host}:{worker.pid} ({server.id[:8]}) ").startswith(("is stopping; ", "is gone."))
    assert worker.ended() == 0, worker.text
    assert view.state("it") == "pending"


def test_a_second_stop_does_not_hurry_the_first(workers: Workers, client: Client, view: View, fastq: Fastq) -> None:
    worker = workers.start("--concurrency", "1", "--shutdown-timeout", "600").is_ready()
    (server,) = shown(fastq, view)
    client.enqueue("wait", task_id="runs", retention=3600)
    view.expect("started", "runs")
    for _ in range(3):
        assert "is stopping; one task runs there." in fastq.done("server", "stop", server.id, "--yes")
    view.open()
    assert worker.ended() == 0, worker.text
    assert view.state("runs") == "completed"


def test_all_servers_are_stopped_at_once(workers: Workers, view: View, fastq: Fastq) -> None:
    both: list[Worker] = [workers.start("--concurrency", "1").is_ready() for _ in range(2)]
    shown(fastq, view, 2)
    assert fastq.json("server", "stop", "--all", "--yes") == {"count": 2, "failed": []}
    assert [worker.ended() for worker in both] == [0, 0]


def test_a_server_that_is_frozen_is_said_to_show_no_sign(
    workers: Workers, view: View, fastq: Fastq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.cli.server_control.WAIT_S", 0.1)
    worker = workers.start("--concurrency", "1").is_ready()
    (server,) = shown(fastq, view)
    worker.signal(signal.SIGSTOP)
    try:
        assert "got the order, but shows no effect after 0.1 s" in fastq.failure("server", "stop", server.id, "--yes")
        assert fastq.done("server", "stop", server.id, "--yes", "--no-wait").startswith("Told ")
    finally:
        worker.signal(signal.SIGCONT)
    assert worker.ended() == 0, worker.text


def test_an_order_to_another_server_is_nothing_to_this_one(workers: Workers, view: View, fastq: Fastq) -> None:
    worker = workers.start("--concurrency", "1").is_ready()
    (server,) = shown(fastq, view)
    broker = open_broker(fastq.url)
    assert broker.run(send_order(server.id[:-1], ServerOrder.STOP)) == 0
    broker.run(send_order(server.id, ServerOrder.QUIET))
    broker.close()
    worker.wait_for("ordered through Redis to go quiet: no longer fetching")
    assert "to stop; " not in worker.text
    assert worker.stop() == 0, worker.text
