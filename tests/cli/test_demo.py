"""The demo as a newcomer runs it: real Redis, real worker, real end; and what it leaves when it is stopped."""

import os
import pty
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis

from fastq import Client
from fastq.demo.workload import WEIGHTS
from tests.cli.demo_process import LOW_PAUSED, DemoProcess, running_demo
from tests.redis_servers import RedisServer
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to find processes")

TASKS = "2000"
MANY = "100000"
"""So many that no machine has enqueued them before the test does what it is about."""


def assert_nothing_is_left(demo: DemoProcess) -> None:
    assert demo.members() == {}
    assert list(demo.temporary.iterdir()) == []


@needs_proc
def test_every_task_is_accounted_for_and_nothing_is_left() -> None:
    with running_demo("--tasks", TASKS) as demo:
        assert demo.wait() == 0, demo.output()
        assert_nothing_is_left(demo)
        output, table = demo.output(), demo.found()
    assert "Every one of 2 000 tasks is accounted for" in output
    assert {expected == found for expected, found in table.values()} == {True}
    refused, _ = table.pop("refused at enqueue as duplicates")
    assert refused == 20
    assert sum(found for _, found in table.values()) == 2000
    assert table["hung, timed out, archived"] == (3, 3)
    assert table["failed, retried, done"] == (20, 20)
    assert " s     " in output, "no line of progress"
    assert "\x1b" not in output


@needs_proc
def test_a_given_redis_is_left_as_it_was_whatever_is_set_for_other_workers(
    shared_server: RedisServer, db: Redis, tmp_path: Path
) -> None:
    others = {"FASTQ_BURST": "1", "FASTQ_QUEUES": "a", "FASTQ_HEALTH_CHECK": "a:b", "FASTQ_CONFIG": str(tmp_path)}
    db.set(LOW_PAUSED, 1)  # it does not end before we have looked
    with running_demo("--tasks", TASKS, "--redis", shared_server.url, "--seed", "7", environment=others) as demo:
        demo.wait_for("fastq-worker")
        assert db.smembers("asynq:queues") == {b"demo:critical", b"demo:default", b"demo:low"}
        db.delete(LOW_PAUSED)
        assert demo.wait() == 0, demo.output()
        assert_nothing_is_left(demo)
    assert db.keys() == []


def contents(db: Redis) -> dict[bytes, bytes | None]:
    return {key: db.dump(key) for key in db.scan_iter()}


def test_queues_that_hold_tasks_are_not_touched(url: str, db: Redis) -> None:
    with Client(url) as client:
        client.enqueue("mine", queue="demo:low")
    before = contents(db)
    with running_demo("--tasks", TASKS, "--redis", url) as demo:
        assert demo.wait() == 1
        assert "the demo's queues are in use: demo:low holds 1 tasks" in demo.output()
    assert contents(db) == before


def test_a_task_that_vanishes_is_named(url: str, db: Redis) -> None:
    pending = "asynq:{demo:low}:pending"
    db.set(LOW_PAUSED, 1)
    with running_demo("--tasks", TASKS, "--redis", url) as demo:
        wait_until(lambda: db.llen(pending) > 100)
        task_id = bytes(db.lpop(pending)).decode()  # type: ignore[arg-type]  # redis-py's union of answers
        assert db.delete(f"asynq:{{demo:low}}:t:{task_id}") == 1
        db.delete(LOW_PAUSED)
        assert demo.wait() == 1
        assert f"task {task_id} " in demo.output()
        assert "'lost' after 0 runs" in demo.output()
        assert "queue demo:low: processed is" in demo.output()
        assert "accounted for" not in demo.output()
    assert db.keys() == []


def wait_for_worker(demo: DemoProcess) -> None:
    """Wait until the worker starts, and see to it that the demo does not end meanwhile."""
    demo.keep_working()
    demo.wait_for_file("fastq-demo-*/worker.log")


def wait_for_runs(demo: DemoProcess) -> None:
    """Wait until handlers run, and see to it that the demo does not end meanwhile."""
    demo.keep_working()
    demo.wait_for_file("fastq-demo-*/ledger")


MOMENTS: dict[str, tuple[str, signal.Signals, Callable[[DemoProcess], None]]] = {
    "its directory is there": (MANY, signal.SIGINT, lambda demo: demo.wait_for_file("fastq-demo-*")),
    "Redis is starting": (MANY, signal.SIGINT, lambda demo: demo.wait_for_file("fastq-*/log")),
    "Redis listens": (MANY, signal.SIGINT, lambda demo: demo.wait_for_file("fastq-*/redis.sock")),
    "text is made": (MANY, signal.SIGINT, lambda demo: demo.wait_for("fastq 0")),
    "the worker is starting": (TASKS, signal.SIGINT, wait_for_worker),
    "tasks are running": (TASKS, signal.SIGTERM, wait_for_runs),
    "the terminal is closed": (TASKS, signal.SIGHUP, wait_for_runs),
}


@needs_proc
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_leaves_nothing(moment: str) -> None:
    tasks, signum, wait = MOMENTS[moment]
    with running_demo("--tasks", tasks) as demo:
        wait(demo)
        demo.process.send_signal(signum)
        assert demo.wait() == 128 + signum, demo.output()
        assert_nothing_is_left(demo)
        assert "Traceback" not in demo.output()
        assert f"{signum.name}: stopping the worker" in demo.output()


@needs_proc
def test_ctrl_c_while_the_worker_is_told_to_stop_leaves_nothing() -> None:
    for _ in range(10):  # that takes it a moment, in which a busy machine may have no time for us
        with running_demo("--tasks", TASKS) as demo:
            with suppress(AssertionError):  # it has ended already
                demo.wait_for("100%")
            demo.process.send_signal(signal.SIGINT)
            code = demo.wait()
            assert_nothing_is_left(demo)
            assert "Traceback" not in demo.output()
            if "SIGINT: stopping the worker" in demo.output():
                assert code == 130, demo.output()
                return
            assert "is accounted for" in demo.output(), (code, demo.output())
    pytest.fail("it had always ended already")


@needs_proc
def test_impatience_leaves_nothing(shared_server: RedisServer, db: Redis) -> None:
    db.set(LOW_PAUSED, 1)  # it does not end by itself
    with running_demo("--tasks", TASKS, "--redis", shared_server.url) as demo:
        demo.wait_for_file("fastq-demo-*/ledger")
        while "SIGINT: stopping the worker" not in demo.output():
            assert demo.process.poll() is None, demo.output()
            demo.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                demo.process.wait(0.02)
        assert demo.wait() == 130
        assert_nothing_is_left(demo)
    db.delete(LOW_PAUSED)
    assert db.keys() == []


@needs_proc
def test_a_demo_that_is_killed_takes_its_processes_along() -> None:
    with running_demo("--tasks", TASKS) as demo:
        wait_for_runs(demo)
        assert len(demo.members()) >= 5
        demo.process.kill()
        demo.process.wait()
        wait_until(lambda: not demo.members())


@needs_proc
def test_a_worker_that_dies_is_told_with_its_last_words(url: str, db: Redis) -> None:
    paused = [f"asynq:{{demo:{queue}}}:paused" for queue in WEIGHTS]
    db.mset(dict.fromkeys(paused, 1))  # it says no more than that it is ready
    with running_demo("--tasks", TASKS, "--redis", url) as demo:
        demo.wait_for_file("fastq-demo-*/worker.log")
        (log,) = demo.temporary.glob("fastq-demo-*/worker.log")
        wait_until(lambda: "ready: " in log.read_text())
        os.kill(demo.worker_pid(), signal.SIGKILL)
        assert demo.wait() == 1
        assert "fastq-worker exited unexpectedly with code -9" in demo.output()
        assert "INFO: ready: " in demo.output()
        wait_until(lambda: not demo.members())
        assert list(demo.temporary.iterdir()) == []
    assert db.keys("asynq:{demo:*}:t:*") == []


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "text"),
    [
        (("--tasks", "10"), {}, 2, "10 is not in the range"),
        (("--redis", "mysql://x"), {}, 2, "mysql"),
        (("--redis", "redis://127.0.0.1:1"), {}, 1, "fastq demo: "),
        ((), {"FASTQ_REDIS_SERVER": "/no/such/program"}, 1, "FASTQ_REDIS_SERVER is '/no/such/program'"),
    ],
)
def test_what_cannot_be_is_said(arguments: tuple[str, ...], environment: dict[str, str], code: int, text: str) -> None:
    with running_demo(*arguments, environment=environment) as demo:
        assert demo.wait() == code
        assert text in demo.output()
        assert "Traceback" not in demo.output()
        assert list(demo.temporary.iterdir()) == []


def test_a_terminal_gets_a_block_that_is_written_over() -> None:
    screen, terminal = pty.openpty()
    text = b""
    with running_demo("--tasks", TASKS, terminal=terminal, environment={"TERM": "xterm", "NO_COLOR": ""}) as demo:
        os.close(terminal)
        demo.keep_working()
        while text.count(b"\x1b[5F") < 3:
            text += os.read(screen, 4096)
        demo.process.send_signal(signal.SIGINT)
        with suppress(OSError):
            while data := os.read(screen, 4096):
                text += data
        assert demo.wait() == 130
    os.close(screen)
    assert b"weight 6" in text
    assert b"\x1b[32m" in text
