"""Batches in whole workers: items that fail, that kill their child, and servers that end in the middle."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from fastq import Client, Inspector, Task
from fastq.wire.messages import TaskMessage
from tests.e2e.batch_app import LEDGER, SIZE
from tests.e2e.harness import Worker, Workers
from tests.e2e.view import View
from tests.waiting import wait_until

APP = "tests.e2e.batch_app:mux"
TIMES = {"recoverer_interval_s": 0.1, "heartbeat_interval_s": 0.3, "settle_s": 0.3}


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ledger"
    path.touch()
    monkeypatch.setenv(LEDGER, str(path))
    return path


def sizes(ledger: Path) -> list[int]:
    """Return how many tasks each call had."""
    return [int(line.split()[0]) for line in ledger.read_text().splitlines()]


def start(workers: Workers, **config: Any) -> Worker:
    return workers.start_timed(TIMES, APP, concurrency=2, **config).is_ready()


def enqueue(client: Client, type: str, orders: Sequence[object], **options: Any) -> list[str]:
    tasks = [Task(type, order, retention=3600, **options) for order in orders]
    return list(client.enqueue_many(tasks).ids())


def charged(view: View, ids: Sequence[str], *failed: int) -> list[TaskMessage]:
    """Wait until some tasks have failed once, and all others are done; return the messages of the former."""
    for at, one in enumerate(ids):
        message = view.until("retry" if at in failed else "completed", one)
        assert message is not None
        assert message.retried == (at in failed)
        assert at in failed or view.json_result(one) == 2 * at
    return [view.message(ids[at]) for at in failed]


threads = pytest.mark.parametrize(
    ("type", "config"), [("plain", {}), ("async", {}), ("plain", {"threads": 4})], ids=["plain", "async", "threads"]
)


@threads
def test_two_items_fail_and_the_others_have_their_results(
    workers: Workers, client: Client, view: View, ledger: Path, type: str, config: dict[str, Any]
) -> None:
    ids = enqueue(client, type, ["fail" if at in (3, 40) else at for at in range(SIZE)])
    start(workers, **config)
    for message in charged(view, ids, 3, 40):
        assert message.error_msg.partition(" (")[0] == "ValueError: fail"
    assert sizes(ledger) == [SIZE]
    assert (view.count("processed"), view.count("failed")) == (SIZE, 2)


@threads
def test_an_item_that_kills_its_child_is_the_only_one_charged(
    workers: Workers, client: Client, view: View, ledger: Path, type: str, config: dict[str, Any]
) -> None:
    ids = enqueue(client, type, ["die" if at == 7 else at for at in range(SIZE)])
    start(workers, **config)
    (message,) = charged(view, ids, 7)
    assert "SIGSEGV" in message.error_msg
    assert sizes(ledger) == [SIZE] + [1] * SIZE


def test_what_may_run_only_once_does_not_run_again_alone(
    workers: Workers, client: Client, view: View, ledger: Path
) -> None:
    ids = enqueue(client, "plain", ["die" if at == 7 else at for at in range(SIZE)], max_retry=0)
    start(workers)
    for one in ids:
        message = view.until("archived", one)
        assert message is not None
        assert "during a call of several tasks" in message.error_msg
    assert sizes(ledger) == [SIZE]


def test_a_server_that_is_killed_in_a_call_loses_none(
    workers: Workers, client: Client, view: View, ledger: Path
) -> None:
    ids = enqueue(client, "waits", ["stay"] * SIZE)
    worker = start(workers)
    view.expect("waits")
    worker.signal(signal.SIGKILL)
    worker.leaves_nothing()
    assert view.size("active") == SIZE
    leases, db = "asynq:{default}:lease", cast("Any", view.db)
    for task_id, score in db.zrange(leases, 0, -1, withscores=True):
        db.zadd(leases, {task_id: 1 + score % 1})  # it has ended; its fraction says whose it was
    start(workers)
    view.expect("waits")
    assert sizes(ledger) == [SIZE, SIZE]
    assert sorted(view.ids("active")) == sorted(ids)
    assert {view.message(one).retried for one in ids} == {0}


def test_a_call_that_ends_within_the_shutdown_is_done(
    workers: Workers, client: Client, view: View, ledger: Path
) -> None:
    ids = enqueue(client, "waits", ["end"] * SIZE)
    worker = start(workers)
    view.expect("waits")
    assert worker.stop() == 0, worker.text
    assert [view.json_result(one) for one in ids] == ids


def test_a_call_that_outlasts_the_shutdown_goes_back_without_charge(
    workers: Workers, client: Client, view: View, ledger: Path
) -> None:
    ids = enqueue(client, "waits", ["stay"] * SIZE)
    worker = start(workers, shutdown_timeout=0.5)
    view.expect("waits")
    worker.stop()
    assert sorted(view.ids("pending")) == sorted(ids)
    assert {view.message(one).retried for one in ids} == {0}


def test_what_waits_for_others_goes_back_at_once(workers: Workers, client: Client, view: View, ledger: Path) -> None:
    ids = enqueue(client, "plain", range(5))
    worker = start(workers)
    wait_until(lambda: view.size("active") == 5)
    assert worker.stop() == 0, worker.text
    assert sorted(view.ids("pending")) == sorted(ids)
    assert sizes(ledger) == []


@pytest.mark.parametrize("is_last", [False, True])
def test_what_waits_for_others_runs_once_nobody_brings_more(
    workers: Workers, client: Client, view: View, ledger: Path, url: str, is_last: bool
) -> None:
    ids = enqueue(client, "plain", range(5))
    if is_last:
        workers.start("--max-tasks", "5", app=APP)
    else:
        start(workers)
        wait_until(lambda: view.size("active") == 5)
        with Inspector(url) as inspector:
            (server,) = inspector.servers()
            inspector.quiet_server(server.id)
    for one in ids:
        view.until("completed", one)
    assert sizes(ledger) == [5]


def test_one_that_waits_for_others_can_be_canceled(
    workers: Workers, client: Client, view: View, ledger: Path, url: str
) -> None:
    first, *ids = enqueue(client, "plain", range(SIZE))
    start(workers)
    for one in (first, *ids):
        view.until("completed", one)
    some = enqueue(client, "plain", range(2))
    wait_until(lambda: view.size("active") == 2)
    with Inspector(url) as inspector:
        inspector.cancel_processing(some[0])
    view.until("retry", some[0])
    assert view.ids("active") == [some[1]]


def test_without_max_wait_a_call_has_what_is_there(workers: Workers, client: Client, view: View, ledger: Path) -> None:
    ids = enqueue(client, "now", range(1000))
    start(workers)
    for one in ids:
        view.until("completed", one)
    assert sum(sizes(ledger)) == 1000
    assert len(sizes(ledger)) < 60
