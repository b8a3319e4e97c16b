"""What dies, or stands still, without a word: main processes, children, preloaders, Redis; no task is lost by it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from fastq import Client, Task
from tests.e2e.harness import Worker, Workers, workers_on
from tests.e2e.view import View
from tests.processes import is_running
from tests.redis_servers import RedisServer, redis_server
from tests.waiting import after, wait_until

SHORT = {
    "lease_s": 2,
    "recover_grace_s": 1,
    "recoverer_interval_s": 0.2,
    "heartbeat_interval_s": 0.4,
    "stall_s": 0.5,
    "settle_s": 0.4,
}
STALL_S = 0.5
EXPIRED = "asynq: task lease expired: lost with its server; "
PUT_BACK = f"{EXPIRED}time 1 of at most 3, no attempt charged"


def start_short(workers: Workers, concurrency: int = 1) -> Worker:
    """Start a worker whose leases end soon, and that looks often."""
    return workers.start_timed(
        SHORT, concurrency=concurrency, delayed_task_check_interval=0.05, prefetch_time=60.0, shutdown_timeout=0.5
    ).is_ready()


def start_watchful(workers: Workers) -> Worker:
    """Start a worker that looks often for leases that have ended, while its own end no sooner than any others."""
    return workers.start_timed(
        {"recoverer_interval_s": 0.2, "heartbeat_interval_s": 0.4, "stall_s": STALL_S, "settle_s": 0.4},
        concurrency=1,
        delayed_task_check_interval=0.05,
        shutdown_timeout=0.5,
    ).is_ready()


def freeze(view: View, worker: Worker, task_id: str) -> None:
    """Let a server stand still, and the lease that it has on a task end meanwhile."""
    worker.signal(signal.SIGSTOP)
    wait_until(after(2 * STALL_S))
    lease = view.db.zscore("asynq:{default}:lease", task_id) or 0.0
    view.db.zadd("asynq:{default}:lease", {task_id: 1 + lease % 1})  # its fraction says whose it was


# The main process -------------------------------------------------------------------------------------------------


def test_a_killed_server_leaves_no_process_and_another_brings_its_tasks_back(
    workers: Workers, client: Client, view: View
) -> None:
    for n in range(12):
        client.enqueue(Task("wait", task_id=f"id-{n:02}", retention=3600))
    view.open(times=4)  # quick at first, so that some are fetched ahead
    killed = start_short(workers)
    wait_until(lambda: view.ids("completed") == [f"id-{n:02}" for n in range(4)])
    wait_until(lambda: view.size("active") > 1)
    held = view.ids("active")
    killed.signal(signal.SIGKILL)
    killed.leaves_nothing()
    assert view.ids("active") == held
    other = workers.start("--concurrency", "1", "--prefetch-time", "60").is_ready()
    view.open(times=8)
    wait_until(lambda: view.size("completed") == 12)
    for task_id in held:
        message = view.message(task_id)
        assert message is not None
        assert (message.retried, message.error_msg) == (0, PUT_BACK)
        assert view.fields(task_id)[b"lost"] == b"1"
    assert (view.size("active"), view.size("lease")) == (0, 0)
    other.wait_for(f":{killed.pid}:")
    other.wait_for(" is gone: its process has ended; they run again at once, no attempt charged: ")
    assert other.stop() == 0, other.text


def test_tasks_without_retries_wait_as_all_others_and_run_at_most_once(
    workers: Workers, client: Client, view: View
) -> None:
    """As in asynq: what its server has taken when it is killed is archived, whether it had begun or not."""
    for _ in range(8):
        client.enqueue("wait")
    view.open(times=8)  # quick at first, so that others are fetched ahead
    killed = start_short(workers)
    wait_until(lambda: view.count("processed") == 8)
    view.events()
    infos = client.enqueue_many([Task("wait", max_retry=0) for _ in range(8)])
    ids = [info.id for info in infos if not isinstance(info, Exception)]
    view.expect("started")
    wait_until(lambda: view.size("active") == 8)
    killed.signal(signal.SIGKILL)
    killed.leaves_nothing()
    start_short(workers)
    wait_until(lambda: view.size("archived") == 8)
    assert sorted(view.ids("archived")) == sorted(ids)
    assert view.events() == []
    message = view.until("archived", ids[-1])
    assert message is not None
    why = f"{EXPIRED}max_retry=0, and whether it had started is not known"
    assert (message.retried, message.error_msg) == (0, why)


@pytest.mark.parametrize(("type", "ends_while_frozen"), [("wait", True), ("then-fail", True), ("wait", False)])
def test_a_frozen_server_that_wakes_does_not_touch_what_is_another_s(
    workers: Workers, client: Client, view: View, type: str, ends_while_frozen: bool
) -> None:
    task_id = client.enqueue(Task(type, retention=3600)).id
    frozen = start_watchful(workers)
    child = view.expect("started", task_id).pid
    freeze(view, frozen, task_id)
    if ends_while_frozen:
        view.open()
        view.expect("done", task_id)
    other = start_watchful(workers)
    assert view.expect("started", task_id).pid != child
    other.wait_for(" tasks were lost because their server died or is cut off from Redis; they run again at once")
    frozen.signal(signal.SIGCONT)
    frozen.wait_for("lost the lease" if not ends_while_frozen else "lost its lease before its outcome was saved")
    message = view.until("active", task_id)
    assert message is not None
    assert (message.retried, message.error_msg) == (0, PUT_BACK)
    assert view.ids("lease") == [task_id]
    if type == "wait":
        _finish(view, task_id)
    assert frozen.stop() == 0, frozen.text
    assert other.stop() == 0, other.text


def _finish(view: View, task_id: str) -> None:
    """See that the other server ends the task, and that it counts once, as a success."""
    view.open(times=2)  # the frozen server's handler may still be at the gate, too
    view.until("completed", task_id)
    assert (view.count("processed"), view.count("failed")) == (1, 0)


def test_a_server_goes_on_after_it_was_frozen(workers: Workers, client: Client, view: View) -> None:
    worker = start_watchful(workers)
    task_id = client.enqueue("wait").id
    view.expect("started")
    freeze(view, worker, task_id)
    other = start_watchful(workers)
    other.wait_for(" tasks were lost because their server died or is cut off from Redis; they run again at once")
    assert other.stop() == 0, other.text
    worker.signal(signal.SIGCONT)
    view.open(times=3)  # it runs the task again, too
    view.until("completed", client.enqueue("ok", retention=3600).id)
    assert worker.stop() == 0, worker.text


# Children ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV])
def test_the_death_of_a_child_fails_its_task_at_once_and_the_others_go_on(
    workers: Workers, client: Client, view: View, signum: signal.Signals
) -> None:
    ids = [client.enqueue("wait", retention=3600).id for _ in range(3)]
    workers.start_patient(concurrency=1, prefetch_time=60.0).is_ready()
    child = view.expect("started", ids[0]).pid
    os.kill(child, signum)
    message = view.until("retry", ids[0])
    assert message is not None
    assert message.error_msg.startswith(
        f"WorkerCrashedError: worker process {child} died with signal {signum.name}, peak RSS "
    )
    assert message.retried == 1
    view.open(times=2)
    for task_id in ids[1:]:
        completed = view.until("completed", task_id)
        assert completed is not None
        assert completed.retried == 0


def test_a_task_that_kills_its_process_ends_in_the_archive(workers: Workers, client: Client, view: View) -> None:
    task_id = client.enqueue("crash", max_retry=0).id
    worker = workers.start("--concurrency", "1", "--burst")
    assert worker.ended() == 0, worker.text
    assert view.message(task_id).error_msg.startswith("WorkerCrashedError: ")
    assert view.state(task_id) == "archived"


def test_a_poison_task_kills_a_process_an_attempt_and_then_rests_in_the_archive(
    workers: Workers, client: Client, view: View
) -> None:
    poison = client.enqueue("crash", max_retry=2).id
    others = [client.enqueue("ok", retention=3600).id for _ in range(20)]
    quick = {"retry_delay": "tests.e2e.apps:quick_retry", "delayed_task_check_interval": 0.05}
    workers.start_patient(concurrency=1, **quick).is_ready()
    message = view.until("archived", poison)
    assert message is not None
    assert message.retried == 2
    assert message.error_msg.startswith("WorkerCrashedError: worker process ")
    assert "died with signal SIGSEGV, peak RSS " in message.error_msg
    pids = [view.expect("started", poison).pid for _ in range(3)]
    assert len(set(pids)) == 3
    assert view.count("failed") == 3
    for task_id in others:
        completed = view.until("completed", task_id)
        assert completed is not None
        assert completed.retried == 0


ILL = """
import os, pathlib, signal
if pathlib.Path(__file__).with_name("ill").exists():
    os.kill(os.getpid(), signal.SIGKILL)  # as the OOM killer does
from tests.e2e.apps import mux
"""


def test_a_server_whose_children_cannot_start_any_more_says_so_and_goes_on_when_they_can(
    workers: Workers, client: Client, view: View
) -> None:
    (workers.directory / "at_times.py").write_text(ILL)
    worker = workers.start("--concurrency", "1", "--start-method", "spawn", app="at_times:mux").is_ready()
    first = client.enqueue("wait", max_retry=0).id
    child = view.expect("started", first).pid
    (workers.directory / "ill").touch()
    os.kill(child, signal.SIGKILL)
    view.until("archived", first)
    waiting = client.enqueue("ok", retention=3600).id
    wait_until(lambda: worker.text.count("ended while starting with signal SIGKILL\n    retrying in ") >= 2)
    wait_until(lambda: view.state(waiting) == "pending")
    (workers.directory / "ill").unlink()
    view.until("completed", waiting)
    assert worker.stop() == 0, worker.text


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_killed_preloader_costs_no_attempt(workers: Workers, client: Client, view: View) -> None:
    task_id = client.enqueue("wait", retention=3600).id
    worker = workers.start("--concurrency", "2").is_ready()
    child = view.expect("started", task_id).pid
    preloader = parent_of(child)
    assert preloader != worker.pid
    os.kill(preloader, signal.SIGKILL)
    again = view.expect("started", task_id)
    assert (again.pid != child, is_running(child)) == (True, False)
    view.open()
    message = view.until("completed", task_id)
    assert message is not None
    assert (message.retried, view.count("failed")) == (0, 0)
    assert worker.stop() == 0, worker.text


# Redis ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[tuple[RedisServer, Workers]]:
    """Give a Redis that keeps every write, and workers on it."""
    config = {"appendonly": "yes", "appendfsync": "always"}
    with redis_server(config=config) as server, workers_on(server.url, tmp_path) as workers:
        yield server, workers


def begin_many(server: RedisServer, workers: Workers, view: View, count: int) -> Worker:
    """Enqueue many tasks, and return a worker that is in the middle of them."""
    with Client(server.url) as client:
        results = client.enqueue_many([Task("ok", retention=3600) for _ in range(count)])
        assert not any(isinstance(result, Exception) for result in results)
    worker = workers.start("--concurrency", "2").is_ready()
    wait_until(lambda: view.count("processed") > 2000, interval_s=0.001)
    return worker


def test_redis_that_stands_still_for_a_while_loses_nothing(durable: tuple[RedisServer, Workers]) -> None:
    """Replies are lost, requests are carried out late: dequeues whose tasks nobody knows, writes in doubt."""
    server, workers = durable
    with server.client() as db:
        view = View(db)
        worker = begin_many(server, workers, view, 20_000)
        server.process.send_signal(signal.SIGSTOP)
        worker.wait_for("trying again")
        server.process.send_signal(signal.SIGCONT)
        wait_until(lambda: db.zcard("asynq:{default}:completed") == 20_000)
        assert (view.count("processed"), view.count("failed")) == (20_000, 0)
        assert (view.size("active"), view.size("lease"), view.size("pending")) == (0, 0, 0)
        assert worker.stop() == 0, worker.text


def test_redis_that_is_killed_and_comes_back_loses_nothing(durable: tuple[RedisServer, Workers]) -> None:
    server, workers = durable
    with server.client() as db:
        worker = begin_many(server, workers, View(db), 20_000)
    server.process.kill()
    server.process.wait()
    worker.wait_for("trying again")
    with subprocess.Popen(server.process.args) as again, server.client() as db:
        try:
            wait_until(lambda: _answers(db))
            view = View(db)
            wait_until(lambda: db.zcard("asynq:{default}:completed") == 20_000)
            assert (view.count("processed"), view.count("failed")) == (20_000, 0)
            assert (view.size("active"), view.size("lease"), view.size("pending")) == (0, 0, 0)
            assert worker.stop() == 0, worker.text
        finally:
            again.kill()


def until_file(server: RedisServer) -> Task:
    """Make a task that runs until there is a file, which Redis need not know of."""
    return Task("until-file", headers={"file": str(server.directory / "go")}, retention=3600)


def test_a_stop_while_redis_hangs_ends_in_time(durable: tuple[RedisServer, Workers]) -> None:
    server, workers = durable
    with server.client() as db, Client(server.url) as client:
        view = View(db)
        task_id = client.enqueue(until_file(server)).id
        worker = workers.start("--concurrency", "1", "--shutdown-timeout", "1").is_ready()
        view.expect("started", task_id)
        server.process.send_signal(signal.SIGSTOP)
        (server.directory / "go").touch()
        try:
            worker.wait_for("cannot save the outcomes of 1 tasks yet")  # one that had not ended would go back
            worker.signal(signal.SIGTERM)
            assert worker.ended() == 0, worker.text
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert "could not save the outcome of 1 tasks" in worker.text
        # Either nothing was written, and a recoverer brings it back; or Redis had read the write, and did it now.
        wait_until(lambda: view.state(task_id) in ("active", "completed"))
        assert view.ids("lease") == ([task_id] if view.state(task_id) == "active" else [])


def test_a_stop_while_redis_is_away_waits_for_it_as_long_as_there_is_time(
    durable: tuple[RedisServer, Workers],
) -> None:
    server, workers = durable
    with server.client() as db, Client(server.url) as client:
        view = View(db)
        task_id = client.enqueue(until_file(server)).id
        worker = workers.start("--concurrency", "1", "--shutdown-timeout", "600").is_ready()
        view.expect("started", task_id)
        server.process.send_signal(signal.SIGSTOP)
        (server.directory / "go").touch()
        worker.signal(signal.SIGTERM)
        worker.wait_for("cannot save the outcomes of")
        server.process.send_signal(signal.SIGCONT)
        assert worker.ended() == 0, worker.text
        assert (view.state(task_id), view.ids("lease"), view.count("processed")) == ("completed", [], 1)


def _answers(db: Redis) -> bool:
    try:
        return bool(db.ping())
    except RedisError:
        return False
