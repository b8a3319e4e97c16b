"""How a worker ends: signals, idle and under load, and what it leaves in Redis and among the processes: nothing."""

import os
import signal
import time
from contextlib import suppress
from typing import Any

import pytest
from redis import Redis

from fastq import Client, Task
from tests.e2e.apps import EVENTS
from tests.e2e.harness import Workers
from tests.e2e.view import View
from tests.processes import is_running
from tests.waiting import wait_until

PRESENCE = ("asynq:servers", "asynq:workers", "asynq:servers:*", "asynq:workers:*")


def presence(db: Redis) -> list[object]:
    return [key for pattern in PRESENCE for key in db.scan_iter(pattern)]


def enqueue_numbered(client: Client, type: str, count: int, **options: Any) -> list[str]:
    """Enqueue tasks with ids that tell their order."""
    ids = [f"{type}-{n:05}" for n in range(count)]
    for info in client.enqueue_many([Task(type, task_id=task_id, **options) for task_id in ids]):
        assert not isinstance(info, Exception), info
    return ids


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_ends_at_once_and_takes_its_name_off_the_list(
    workers: Workers, db: Redis, signum: signal.Signals
) -> None:
    worker = workers.start("--concurrency", "2", "--shutdown-timeout", "600").is_ready()
    wait_until(lambda: presence(db))
    assert len(worker.family()) == 4  # the main process, the preloader, two children
    worker.signal(signum)
    assert worker.ended() == 0  # not after the time that running tasks would have
    worker.leaves_nothing()
    assert presence(db) == []
    assert "Traceback" not in worker.text


def test_a_running_task_is_finished_and_waiting_ones_are_given_back_in_order(
    workers: Workers, client: Client, view: View
) -> None:
    ids = enqueue_numbered(client, "wait", 30, retention=3600)
    view.open(times=6)  # quick at first, so that others are fetched ahead
    worker = workers.start("--concurrency", "1", "--shutdown-timeout", "600", "--prefetch-time", "60").is_ready()
    wait_until(lambda: view.db.llen(EVENTS) == 6 * 2 + 1)
    events = view.events()
    done = {event.task_id for event in events if event.what == "done"}
    running = {event.task_id for event in events if event.what == "started"} - done
    wait_until(lambda: view.size("active") > 1)
    worker.signal(signal.SIGTERM)
    wait_until(lambda: set(view.ids("active")) == running)
    view.open()
    assert worker.ended() == 0, worker.text
    assert [("done", one) for one in running] == [(event.what, event.task_id) for event in view.events()]
    assert set(view.ids("completed")) == done | running
    assert view.ids("pending") == [task_id for task_id in ids if task_id not in done | running]
    assert (view.size("active"), view.size("lease")) == (0, 0)
    assert {view.message(task_id).retried for task_id in ids} == {0}
    assert "7 tasks done; 0 in flight" in worker.text


def test_what_does_not_finish_in_time_goes_back_to_the_head_in_its_old_order(
    workers: Workers, client: Client, view: View, db: Redis
) -> None:
    ids = enqueue_numbered(client, "wait", 12)
    worker = workers.start("--concurrency", "3", "--shutdown-timeout", "1", "--prefetch-time", "60").is_ready()
    for _ in range(3):
        view.expect("started")
    began_s = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0, worker.text
    assert time.monotonic() - began_s >= 1
    assert view.ids("pending") == ids
    assert {view.state(task_id) for task_id in ids} == {"pending"}
    assert {(view.message(task_id).retried, view.message(task_id).error_msg) for task_id in ids} == {(0, "")}
    assert (view.size("active"), view.size("lease"), presence(db)) == (0, 0, [])
    assert all(float(view.fields(task_id)[b"pending_since"]) > 0 for task_id in ids)


@pytest.mark.parametrize("type", ["spin", "deaf", "c-loop", "async-wait"])
def test_a_handler_that_does_not_hear_is_killed_and_its_task_given_back(
    workers: Workers, client: Client, view: View, type: str
) -> None:
    task_id = client.enqueue(Task(type)).id
    worker = workers.start("--concurrency", "1", "--shutdown-timeout", "0.2").is_ready()
    child = view.expect("started", task_id).pid
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0, worker.text
    assert not is_running(child)
    assert view.ids("pending") == [task_id]
    assert view.message(task_id).retried == 0


def test_a_second_signal_skips_the_waiting(workers: Workers, client: Client, view: View) -> None:
    task_id = client.enqueue("wait").id
    worker = workers.start("--concurrency", "1", "--shutdown-timeout", "600").is_ready()
    view.expect("started", task_id)
    worker.signal(signal.SIGINT)
    worker.wait_for("shutting down; running tasks have 600 s to finish; Ctrl-C again: stop now")
    worker.signal(signal.SIGINT)
    assert worker.ended() == 0, worker.text
    assert "stopping now: running tasks are not waited for, and go back to their queues" in worker.text
    assert worker.text.count("600 s to finish") == 1
    assert view.ids("pending") == [task_id]


def test_sigtstp_stops_fetching_and_nothing_else(workers: Workers, client: Client, view: View) -> None:
    worker = workers.start("--concurrency", "1").is_ready()
    running = client.enqueue("wait", retention=3600).id
    view.expect("started", running)
    worker.signal(signal.SIGTSTP)
    worker.wait_for("SIGTSTP: no longer fetching")
    late = client.enqueue("ok").id
    view.open()
    view.until("completed", running)
    wait_until(lambda: b"stopped" in view.published())
    assert (view.state(late), view.ids("pending")) == ("pending", [late])
    assert worker.stop() == 0, worker.text
    assert (view.ids("pending"), presence(view.db)) == ([late], [])


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGTSTP])
@pytest.mark.parametrize("again", range(2))
def test_no_task_is_lost_when_a_busy_worker_is_told_to_stop(
    workers: Workers, client: Client, view: View, signum: signal.Signals, again: int
) -> None:
    """A dequeue is under way nearly always; what it brings must not be forgotten."""
    enqueue_numbered(client, "ok", 20_000)
    # Nothing goes back before its time, but all that was fetched at the end, and in order.
    worker = workers.start("--concurrency", "2", "--prefetch-time", "60").is_ready()
    wait_until(lambda: view.count("processed") > 1000 + 700 * again, interval_s=0.001)
    worker.signal(signum)
    if signum is signal.SIGTSTP:
        worker.wait_for("SIGTSTP: no longer fetching")
        wait_until(lambda: view.size("active") == 0)
        assert worker.stop() == 0, worker.text
    assert worker.ended() == 0, worker.text
    assert (view.size("active"), view.size("lease")) == (0, 0)
    assert view.count("processed") + view.size("pending") == 20_000
    pending = view.ids("pending")
    assert pending == sorted(pending)


def test_more_than_a_call_s_worth_goes_back_in_order(workers: Workers, client: Client, view: View) -> None:
    """A call takes back at most 500 tasks; their order holds across calls, too."""
    ids = enqueue_numbered(client, "wait", 6000)  # more than four children's rings take: each has one to wait in
    view.open(times=500)  # quick at first, so that much is fetched ahead
    worker = workers.start("--concurrency", "4", "--prefetch-time", "3600", "--shutdown-timeout", "2").is_ready()
    wait_until(lambda: view.db.llen(EVENTS) == 500 * 2 + 4)
    wait_until(lambda: view.size("active") > 800)
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0, worker.text
    events = view.events()
    done = {event.task_id for event in events if event.what == "done"}
    aborted = sorted({event.task_id for event in events if event.what == "started"} - done)
    assert (len(done), len(aborted)) == (500, 4)
    assert view.ids("pending") == aborted + [task_id for task_id in ids if task_id not in {*done, *aborted}]


# Burst ------------------------------------------------------------------------------------------------------------


def test_burst_ends_when_the_queues_are_empty(workers: Workers, client: Client, view: View, db: Redis) -> None:
    enqueue_numbered(client, "ok", 3000)
    later = client.enqueue("ok", process_in=3600).id
    paused = client.enqueue("ok", queue="resting").id
    db.set("asynq:{resting}:paused", 1)
    worker = workers.start("--burst", "--queues", "default=1,resting=1", "--concurrency", "2")
    assert worker.ended() == 0, worker.text
    assert (view.count("processed"), view.size("pending")) == (3000, 0)
    assert (view.state(later), view.state(paused, "resting")) == ("scheduled", "pending")
    assert "3000 tasks done" in worker.text


@pytest.mark.parametrize("can_wait", [True, False])
def test_burst_serves_what_handlers_enqueue_meanwhile(
    workers: Workers, client: Client, view: View, can_wait: bool
) -> None:
    if not can_wait:
        view.forbid("client")  # nothing wakes the worker then
    client.enqueue("chain", 30, queue="low")
    worker = workers.start("--burst", "--queues", "default=1,low=1", "--concurrency", "2")
    assert worker.ended() == 0, worker.text
    assert [event.what for event in view.events()] == [f"link-{left}" for left in range(30, -1, -1)]
    assert ("is polled" in worker.text) is not can_wait


def test_burst_waits_for_a_running_task(workers: Workers, client: Client, view: View) -> None:
    task_id = client.enqueue(Task("sleep", headers={"seconds": "1.5"}, retention=3600)).id
    worker = workers.start("--burst", "--concurrency", "1")
    assert worker.ended() == 0, worker.text
    assert view.state(task_id) == "completed"


# The beginning ----------------------------------------------------------------------------------------------------


def test_a_worker_can_be_stopped_while_its_app_is_imported(workers: Workers) -> None:
    module = workers.directory / "slow_app.py"
    module.write_text("import time, pathlib\npathlib.Path('begun').touch()\ntime.sleep(600)\n")
    worker = workers.start(app="slow_app:mux")
    wait_until((workers.directory / "begun").exists)
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0, worker.text
    worker.leaves_nothing()


def test_a_worker_can_be_stopped_while_redis_is_away(workers: Workers) -> None:
    worker = workers.start("--redis", "unix:///nowhere/redis.sock")
    worker.wait_for("cannot reach Redis")
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0, worker.text
    worker.leaves_nothing()
    assert "Traceback" not in worker.text


def test_ctrl_c_in_a_terminal_leaves_nothing(workers: Workers, client: Client, view: View) -> None:
    """A terminal signals the whole foreground process group, children of handlers' processes are not in it."""
    task_id = client.enqueue("wait").id
    worker = workers.start("--concurrency", "2", "--shutdown-timeout", "0.5").is_ready()
    view.expect("started", task_id)
    foreground = [pid for pid in worker.family() if os.getpgid(pid) == os.getpgid(worker.pid)]
    for pid in foreground:
        with suppress(ProcessLookupError):  # some end as soon as the main process is told
            os.kill(pid, signal.SIGINT)
    assert worker.ended() == 0, worker.text
    worker.leaves_nothing()
    assert view.ids("pending") == [task_id]
