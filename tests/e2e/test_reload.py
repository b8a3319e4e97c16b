"""Signals that reload, tell, or do nothing; and the one preloader that all children come from."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from fastq import Client, Task
from tests.chaos.fleet import parent_of
from tests.e2e.harness import ROOT, Worker, Workers
from tests.e2e.view import View
from tests.processes import children, is_running
from tests.waiting import PATIENCE_S, wait_until

APP = """
import os, time
from fastq import ServeMux
mux = ServeMux()

@mux.handler("code")
{kind} which(task):
    return {code!r}

@mux.handler("hold")
def hold(task):
    open("held", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.001)
    return {code!r}

@mux.handler("orphan")
def leave_orphan(task):
    if (pid := os.fork()) == 0:
        if os.fork() == 0:
            time.sleep(0.2)
        os._exit(0)
    os.waitpid(pid, 0)

def check(error):
    open("checking", "w").write(str(os.getpid()))
    os.replace("checking", "checked")  # whoever reads it finds a whole one
"""


def write_app(workers: Workers, code: str, kind: str = "def") -> None:
    (workers.directory / "served.py").write_text(APP.format(code=code, kind=kind))


def code_of(client: Client, view: View) -> bytes:
    """Return the code by which a task is done."""
    task_id = client.enqueue("code", retention=3600).id
    view.until("completed", task_id)
    return view.fields(task_id)[b"result"]


def start(workers: Workers, *flags: str) -> Worker:
    # Bytecode is told apart by seconds and sizes, which are the same here.
    return workers.start(*flags, app="served:mux", env={"PYTHONDONTWRITEBYTECODE": "1"})


def test_sighup_replaces_the_code_while_running_tasks_finish(workers: Workers, client: Client, view: View) -> None:
    write_app(workers, "old")
    worker = start(workers, "--concurrency", "2").is_ready()
    assert code_of(client, view) == b'"old"'
    held = client.enqueue("hold", retention=3600).id
    wait_until((workers.directory / "held").exists)
    write_app(workers, "new", "async def")
    worker.signal(signal.SIGHUP)
    wait_until(lambda: code_of(client, view) == b'"new"')
    assert view.state(held) == "active"
    (workers.directory / "go").touch()
    view.until("completed", held)
    assert view.fields(held)[b"result"] == b'"old"'
    worker.wait_for("reloaded: all children run the new code")
    assert {code_of(client, view) for _ in range(20)} == {b'"new"'}
    wait_until(lambda: len(worker.family()) == 4)  # the main process, one preloader, two children
    assert worker.stop() == 0, worker.text
    assert (view.size("retry"), view.size("archived")) == (0, 0)
    assert view.count("failed") == 0


def test_code_that_cannot_be_imported_changes_nothing(workers: Workers, client: Client, view: View) -> None:
    write_app(workers, "old")
    worker = start(workers, "--concurrency", "1").is_ready()
    before = worker.family()
    (workers.directory / "served.py").write_text("raise RuntimeError('half deployed')")
    worker.signal(signal.SIGHUP)
    worker.wait_for("served:mux cannot be reloaded")
    worker.wait_for("RuntimeError: half deployed")
    assert code_of(client, view) == b'"old"'
    wait_until(lambda: worker.family() == before)
    write_app(workers, "new")
    worker.signal(signal.SIGHUP)
    wait_until(lambda: code_of(client, view) == b'"new"')
    assert worker.stop() == 0, worker.text


def test_a_reload_loses_no_task_of_a_busy_worker(workers: Workers, client: Client, view: View) -> None:
    write_app(workers, "old")
    worker = start(workers, "--concurrency", "2").is_ready()
    for reloads in range(1, 4):
        for _ in range(5):
            client.enqueue_many([Task("code") for _ in range(400)])
        worker.signal(signal.SIGHUP)
        wait_until(lambda reloads=reloads: worker.text.count("reloaded: all children run the new code") == reloads)  # type: ignore[misc]  # mypy cannot infer it
    wait_until(lambda: view.count("processed") == 6000)
    assert worker.stop() == 0, worker.text
    assert (view.count("failed"), view.size("active"), view.size("pending")) == (0, 0, 0)


def test_signals_for_the_service_kill_none_of_its_processes(workers: Workers, client: Client, view: View) -> None:
    write_app(workers, "old")
    worker = start(workers, "--concurrency", "1").is_ready()
    family = worker.family()
    for signum in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTTIN, signal.SIGTTOU):
        for pid in family:
            os.kill(pid, signum)
    for pid in family - {worker.pid}:
        for signum in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
            os.kill(pid, signum)
    worker.wait_for("0 tasks done; 0 in flight")  # SIGUSR1
    assert code_of(client, view) == b'"old"'
    assert worker.family() == family
    assert worker.stop() == 0, worker.text


def test_sigquit_skips_the_waiting(workers: Workers, client: Client, view: View) -> None:
    task_id = client.enqueue("wait").id
    worker = workers.start("--concurrency", "1", "--shutdown-timeout", "600").is_ready()
    view.expect("started", task_id)
    worker.signal(signal.SIGQUIT)
    assert worker.ended() == 0, worker.text
    assert view.ids("pending") == [task_id]


def test_a_terminal_that_is_closed_shuts_down(workers: Workers, tmp_path: Path) -> None:
    terminal, far = pty.openpty()
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "fastq.cli.worker", "tests.e2e.apps:mux", "--concurrency", "1"],
            stdin=far,
            stdout=file,
            stderr=file,
            cwd=ROOT,
            env={**os.environ, "FASTQ_REDIS_URL": workers.url},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no thread runs here
        )
    os.close(far)
    try:
        wait_until(lambda: "ready: " in log.read_text())
        os.close(terminal)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
    assert "the terminal was closed" in log.read_text()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="only Linux tells of relations")
def test_one_preloader_serves_tasks_and_hooks(workers: Workers) -> None:
    write_app(workers, "old")
    worker = start(workers, "--concurrency", "1", "--health-check", "served:check", "--health-check-interval", "0.05")
    worker.is_ready()
    checked = workers.directory / "checked"
    wait_until(checked.exists)
    hooks = int(checked.read_text())
    preloader = parent_of(hooks)
    family = worker.family()
    assert {pid for pid in family if parent_of(pid) == worker.pid} == {preloader}
    assert len({pid for pid in family if parent_of(pid) == preloader} - {hooks}) == 1
    worker.signal(signal.SIGHUP)
    worker.wait_for("reloaded: all children run the new code")
    wait_until(lambda: not is_running(hooks))
    wait_until(lambda: checked.read_text() != str(hooks))
    assert worker.stop() == 0, worker.text


AS_PID_1 = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def can_unshare() -> bool:
    return not subprocess.run(
        ["unshare", "-p", "-f", "--mount-proc", "true"], capture_output=True, check=False
    ).returncode


@pytest.mark.skipif(sys.platform != "linux" or not can_unshare(), reason="needs the right to make a PID namespace")
def test_as_pid_1_it_reaps_orphans(workers: Workers, client: Client, view: View) -> None:
    write_app(workers, "old")
    program = (*AS_PID_1, sys.executable, "-m", "fastq.cli.worker")
    worker = workers.start("--concurrency", "1", app="served:mux", program=program).is_ready()
    (main,) = children(worker.pid)
    before = children(main)
    for task_id in [client.enqueue("orphan", retention=3600).id for _ in range(5)]:
        view.until("completed", task_id)
    wait_until(lambda: children(main) == before)
    os.kill(main, signal.SIGTERM)
    assert worker.ended() == 0, worker.text
    assert "5 tasks done" in worker.text


def test_a_worker_that_watches_reloads_what_was_written(workers: Workers, client: Client, view: View) -> None:
    write_app(workers, "old")
    worker = start(workers, "--concurrency", "1", "--reload").is_ready()
    assert code_of(client, view) == b'"old"'
    write_app(workers, "newer")
    worker.wait_for("reloaded: all children run the new code")
    assert code_of(client, view) == b'"newer"'
    (workers.directory / "served.py").write_text("import nowhere\n")
    worker.wait_for("served:mux cannot be reloaded, the code loaded before stays in use: ")
    assert code_of(client, view) == b'"newer"'
    write_app(workers, "newest")
    wait_until(lambda: worker.text.count("reloaded: all children run the new code") == 2)
    assert code_of(client, view) == b'"newest"'
    assert worker.stop() == 0, worker.text
