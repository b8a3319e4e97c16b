"""Tasks by key through whole servers: a burst becomes one run, and one run follows a run, whoever dies."""

import signal

import pytest

from fastq import Client, DuplicateTaskError, Task
from tests.e2e.harness import Workers
from tests.e2e.test_death import start_short
from tests.e2e.view import View
from tests.waiting import wait_until

BURST = 1000


def newest(payloads: range) -> list[Task]:
    return [Task("which", str(n).encode()) for n in payloads]


def test_a_burst_becomes_one_run_with_the_newest_payload(workers: Workers, client: Client, view: View) -> None:
    first = client.enqueue("which", b"0", key="k", if_there="postpone", process_in=2, latest=10)
    assert first.next_process_at is not None
    for n in range(1, BURST):
        info = client.enqueue("which", str(n).encode(), key="k", if_there="postpone", process_in=2, latest=10)
        assert info.key_outcome == "postponed"
        assert info.next_process_at is not None
        assert (info.next_process_at - first.next_process_at).total_seconds() <= 9  # 10 s after the first, less its 2 s
    view.open(times=2)
    worker = start_short(workers)
    view.expect(str(BURST - 1), "k")
    view.until("", "k")
    assert (view.events(), view.count("processed"), view.size("scheduled")) == ([], 1, 0)
    assert worker.stop() == 0, worker.text


def test_exactly_one_run_follows_a_run(workers: Workers, client: Client, view: View) -> None:
    worker = start_short(workers)
    client.enqueue("which", b"first", key="k", if_there="rerun")
    view.expect("first", "k")
    results = client.enqueue_many(newest(range(BURST)), key="k", if_there="rerun")
    assert {getattr(one, "key_outcome", one) for one in results} == {"rerun"}
    view.open(times=3)
    view.expect(str(BURST - 1), "k")
    view.until("", "k")
    assert (view.events(), view.count("processed")) == ([], 2)
    assert view.db.exists("asynq:{default}:again") == 0
    assert worker.stop() == 0, worker.text


def test_after_a_kill_during_a_run_the_newest_is_run_once(workers: Workers, client: Client, view: View) -> None:
    killed = start_short(workers)
    client.enqueue("which", b"first", key="k", if_there="rerun")
    view.expect("first", "k")
    client.enqueue_many(newest(range(BURST)), key="k", if_there="rerun")
    killed.signal(signal.SIGKILL)
    killed.leaves_nothing()
    other = start_short(workers)
    view.expect(str(BURST - 1), "k")
    view.open(times=3)
    view.until("", "k")
    wait_until(lambda: view.count("processed") == 1)
    assert view.events() == []
    assert view.db.exists("asynq:{default}:again") == 0
    assert other.stop() == 0, other.text


def test_a_lock_until_the_start_is_gone_when_the_handler_runs(workers: Workers, client: Client, view: View) -> None:
    worker = start_short(workers)
    first = client.enqueue("wait", unique=3600, until="start").id
    view.expect("started", first)
    second = client.enqueue("wait", unique=3600, until="start").id  # it waits, as the worker has one child
    with pytest.raises(DuplicateTaskError):
        client.enqueue("wait", unique=3600, until="start")
    view.open(times=2)
    view.expect("done", first)
    view.expect("started", second)
    view.expect("done", second)
    assert worker.stop() == 0, worker.text
