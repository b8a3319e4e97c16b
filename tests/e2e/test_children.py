"""The settings of children, seen from outside: how many there are, how long they live, what they may take."""

import re
from collections import Counter

import pytest

from fastq import Client, Task
from tests.e2e.harness import Workers
from tests.e2e.test_limits import cancel
from tests.e2e.view import View
from tests.processes import is_running
from tests.waiting import wait_until


def test_children_are_replaced_after_their_share_of_tasks(workers: Workers, client: Client, view: View) -> None:
    client.enqueue_many([Task("told") for _ in range(60)])
    # What waited too long would be taken back from a child that may have no other instead.
    flags = ("--burst", "--concurrency", "1", "--prefetch-time", "60")
    worker = workers.start(*flags, "--max-tasks-per-child", "10")
    assert worker.ended() == 0, worker.text
    runs = Counter(event.pid for event in view.events())
    assert (runs.total(), max(runs.values())) == (60, 10)
    assert len(runs) <= 8  # one that is to go may get a task less
    assert (view.count("processed"), view.count("failed")) == (60, 0)


def test_a_child_above_its_memory_is_replaced_between_tasks(workers: Workers, client: Client, view: View) -> None:
    worker = workers.start("--concurrency", "1", "--max-memory-per-child", "250M").is_ready()
    hog = client.enqueue("hog", 300, retention=60).id
    hungry = view.expect("ran", hog).pid
    view.until("completed", hog)
    other = client.enqueue("told").id
    assert view.expect("ran", other).pid != hungry
    wait_until(lambda: not is_running(hungry))
    assert worker.stop() == 0, worker.text


def test_a_handler_above_the_memory_limit_can_clean_up_and_has_failed(
    workers: Workers, client: Client, view: View
) -> None:
    worker = workers.start("--concurrency", "1", "--memory-limit", "250M", "--timeout-grace", "60").is_ready()
    greedy = client.enqueue("overeat", 300).id
    pid = view.expect("cleaned", greedy).pid
    message = view.until("retry", greedy)
    assert message is not None
    assert message.retried == 1
    assert re.match(r"TaskCanceled: its process has grown above memory_limit \(peak RSS \d+ MB\)", message.error_msg)
    assert view.expect("ran", client.enqueue("told").id).pid != pid
    said = rf"worker process {pid} has grown to \d+ MB, above memory_limit \(262 MB\); it is replaced"
    wait_until(lambda: re.search(said, worker.text))
    assert worker.stop() == 0, worker.text


def test_a_memory_limit_below_the_app_s_own_size_is_refused(workers: Workers) -> None:
    worker = workers.start("--max-memory-per-child", "20M")
    assert worker.ended() == 1, worker.text
    assert (
        "FATAL: cannot start the worker processes: max_memory_per_child of 20971520 bytes is too small" in worker.text
    )


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_handler_s_own_processes_end_with_it(workers: Workers, client: Client, view: View, start_method: str) -> None:
    task_id = client.enqueue("with-process").id
    worker = workers.start("--concurrency", "1", "--timeout-grace", "0.2", "--start-method", start_method).is_ready()
    own = view.expect("started", task_id).pid
    assert own in worker.family()
    cancel(view, task_id)
    assert view.until("retry", task_id) is not None
    wait_until(lambda: not is_running(own))


def test_coroutines_run_side_by_side_and_plain_handlers_one_at_a_time(
    workers: Workers, client: Client, view: View
) -> None:
    coroutines = [client.enqueue("async-wait").id for _ in range(5)]
    workers.start("--concurrency", "1", "--async-concurrency", "5", "--shutdown-timeout", "0").is_ready()
    told = [view.expect("started") for _ in coroutines]
    assert {event.task_id for event in told} == set(coroutines)
    assert len({event.pid for event in told}) == 1
    plain = client.enqueue("told").id
    assert view.state(plain) in ("pending", "active")
    for task_id in coroutines:
        cancel(view, task_id)
    view.expect("ran", plain)
