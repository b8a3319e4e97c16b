"""``Server`` as an object: run here, started as a process of its own, its states, and what it refuses."""

import os
import signal
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from fastq import (
    BrokerError,
    Client,
    FastqError,
    ServeMux,
    Server,
    ServerClosedError,
    ServerConfig,
    ServerStartError,
    current_task,
)
from tests.e2e.apps import mux, ok
from tests.e2e.harness import MARK, Workers, marked_processes, workers_on
from tests.e2e.view import View
from tests.redis_servers import RedisServer, redis_server
from tests.waiting import wait_until

APP = "tests.e2e.apps:mux"
CONFIG = ServerConfig(concurrency=1, shutdown_timeout=600)
ours = ServeMux()


@pytest.fixture
def mark() -> str:
    """Give what the processes of one test are found by; other runs of it may be under way."""
    return uuid.uuid4().hex


@pytest.fixture
def server(url: str, mark: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Give a server that is not started yet; nothing may be left of it."""
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setenv("FASTQ_REDIS_URL", url)
    server = Server(APP, url, CONFIG)
    yield server
    try:
        server.shutdown()
    finally:
        wait_until(lambda: not marked_processes(mark))


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def view(db: Redis) -> View:
    return View(db)


# A process of its own ---------------------------------------------------------------------------------------------


def test_start_returns_once_it_serves_and_shutdown_once_it_has_ended(
    server: Server, client: Client, view: View, mark: str
) -> None:
    server.start()
    assert server.pid in marked_processes(mark)
    task_id = client.enqueue("echo", 5, retention=60).id
    view.until("completed", task_id)
    assert view.json_result(task_id) == 5
    server.ping()
    server.shutdown()
    wait_until(lambda: not marked_processes(mark))
    assert view.db.keys("asynq:servers*") == []
    server.shutdown()


def test_a_running_task_is_finished_by_shutdown(server: Server, client: Client, view: View) -> None:
    server.start()
    task_id = client.enqueue("wait", retention=60).id
    view.expect("started", task_id)
    ending = threading.Thread(target=server.shutdown)
    ending.start()
    view.open()
    ending.join()
    assert view.state(task_id) == "completed"


def test_stop_is_shutdown(server: Server, view: View, mark: str) -> None:
    server.stop()  # before the start nothing happens
    server.start()
    server.stop()
    wait_until(lambda: not marked_processes(mark))
    with pytest.raises(ServerClosedError):
        server.start()


def test_a_quiet_server_fetches_no_more(server: Server, client: Client, view: View) -> None:
    server.start()
    task_id = client.enqueue("wait", retention=60).id
    view.expect("started", task_id)
    server.quiet()
    wait_until(lambda: b"stopped" in view.published())
    late = client.enqueue("ok").id
    view.open()
    view.until("completed", task_id)
    with pytest.raises(RuntimeError, match="waits for its shutdown"):
        server.start()
    server.quiet()
    server.shutdown()
    assert view.state(late) == "pending"


def test_a_server_starts_once(server: Server) -> None:
    server.quiet()
    server.shutdown()  # neither does anything before the start
    server.start()
    with pytest.raises(RuntimeError, match="already running"):
        server.start()
    with pytest.raises(RuntimeError, match="already running"):
        server.run()
    server.shutdown()
    for again in (server.start, server.run):
        with pytest.raises(ServerClosedError):
            again()
    server.quiet()
    server.shutdown()


def test_its_log_and_its_session_are_its_own(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    server.start()
    assert server.pid is not None
    assert os.getsid(server.pid) == server.pid  # Ctrl-C is the starter's
    server.shutdown()
    assert "ready: 1 children" in capfd.readouterr().err


def test_a_password_is_not_in_the_list_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_server(password="secret-word") as redis:
        server = Server(APP, f"unix://:secret-word@{redis.socket_path}", CONFIG)
        server.start()
        try:
            command = Path(f"/proc/{server.pid}/cmdline").read_bytes()
            assert b"fastq.server.launch" in command
            assert b"secret-word" not in command
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("app", "password", "text"),
    [
        ("nothere:mux", "", "there is no module 'nothere'"),
        ("tests.e2e.apps:ok", "", "must be a fastq.App or ServeMux"),
        (APP, ":wrong@", "password"),
    ],
)
def test_a_server_that_cannot_begin_says_why(shared_server: RedisServer, app: str, password: str, text: str) -> None:
    server = Server(app, f"unix://{password}{shared_server.socket_path}", CONFIG)
    with pytest.raises(ServerStartError, match=text):
        server.start()
    with pytest.raises(ServerClosedError):
        server.start()
    server.shutdown()


def test_a_process_that_dies_before_it_serves_is_said(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "killer.py").write_text("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ServerStartError, match="ended with exit code -9 before it served"):
        Server("killer:mux", url, CONFIG).start()


def test_the_death_of_its_process_shows(url: str, db: Redis) -> None:
    server = Server(APP, url, CONFIG)
    server.start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: _has_died(server))
    with pytest.raises(FastqError, match="had ended by itself with exit code -9"):
        server.shutdown()
    server.shutdown()


def _has_died(server: Server) -> bool:
    try:
        server.ping()
    except FastqError as error:
        return "has ended with exit code -9" in str(error)
    return False


def test_ping_tells_whether_redis_is_there(tmp_path: Path) -> None:
    with redis_server() as redis:
        server = Server(APP, redis.url, CONFIG)
        server.ping()
    with pytest.raises(BrokerError):
        server.ping()


# Programs ---------------------------------------------------------------------------------------------------------


STARTER = """
import os, sys, time
from fastq import Server, ServerConfig
if __name__ == "__main__":
    server = Server("tests.e2e.apps:mux", None, ServerConfig(concurrency=1, shutdown_timeout=1))
    server.start()
    print("started", flush=True)
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
"""
RUNNER = """
import tests.e2e.apps
from fastq import Server, ServerConfig, ServerClosedError
if __name__ == "__main__":
    server = Server(tests.e2e.apps.mux, config=ServerConfig(concurrency=1))
    server.run()
    try:
        server.run()
    except ServerClosedError:
        print("came back", flush=True)
"""


@pytest.fixture
def workers(url: str, tmp_path: Path) -> Iterator[Workers]:
    with workers_on(url, tmp_path) as workers:
        yield workers


def program(workers: Workers, text: str) -> tuple[str, str]:
    script = workers.directory / "program.py"
    script.write_text(text)
    return sys.executable, str(script)


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_started_server_ends_with_its_starter(workers: Workers, client: Client, view: View, is_killed: bool) -> None:
    task_id = client.enqueue("wait").id
    starter = workers.start(str(workers.directory / "go"), app="", program=program(workers, STARTER))
    starter.wait_for("started")
    view.expect("started", task_id)
    if is_killed:
        starter.signal(signal.SIGKILL)
    else:
        (workers.directory / "go").touch()
    starter.ended()
    starter.leaves_nothing()
    assert view.ids("pending") == [task_id]  # it was shut down, not killed
    assert view.db.keys("asynq:servers*") == []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_run_serves_in_this_process_and_returns_after_a_signal(
    workers: Workers, client: Client, view: View, signum: signal.Signals
) -> None:
    worker = workers.start(app="", program=program(workers, RUNNER)).is_ready()
    task_id = client.enqueue("echo", 1, retention=60).id
    view.until("completed", task_id)
    worker.signal(signum)
    assert worker.ended() == 0, worker.text
    assert worker.lines[-1] == "came back"
    assert "serves tests.e2e.apps:mux" in worker.text


def test_settings_that_are_no_config_are_answered_with_how_they_are_given(url: str) -> None:
    with pytest.raises(TypeError, match=r"Server\(\.\.\., config=ServerConfig\(concurrency=2\)\)$"):
        Server(APP, url, concurrency=2)  # type: ignore[arg-type]  # a type checker refuses it, too
    with pytest.raises(TypeError, match=r"^redis must be a URL, not a ServerConfig: write Server\(\.\.\., config="):
        Server(APP, CONFIG)  # type: ignore[arg-type]  # as above


def test_run_is_for_the_main_thread(url: str) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            Server(APP, url, CONFIG).run()
        except RuntimeError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "main thread" in str(failures[0])


def test_run_raises_why_it_cannot_begin(shared_server: RedisServer, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ServerStartError, match="there is no module 'nothere'"):
        Server("nothere:mux", shared_server.url, CONFIG).run()
    with pytest.raises(ServerStartError, match="password") as caught:
        Server(APP, f"unix://:wrong@{shared_server.socket_path}", CONFIG).run()
    assert isinstance(caught.value.__cause__, BrokerError)


# What it refuses --------------------------------------------------------------------------------------------------


def test_an_app_is_a_name_or_a_mux_that_a_module_holds() -> None:
    Server(mux)
    Server(ours)
    Server("not.imported.before:its.start")
    with pytest.raises(TypeError, match="be an object that a module holds under a name of its own"):
        Server(ServeMux())
    with pytest.raises(ValueError, match="not of the form module:attr"):
        Server("myapp")


@pytest.mark.parametrize("app", [ok, 5, None, b"a:b", object()])
def test_anything_else_is_no_app(app: Any) -> None:
    with pytest.raises(TypeError, match=r"app must be 'module:attr' or a fastq\.ServeMux"):
        Server(app)


def test_redis_is_a_url(db: Redis) -> None:
    given: Any = db
    with pytest.raises(TypeError, match="redis must be a URL"):
        Server(APP, given)
    with pytest.raises(ValueError, match="scheme"):
        Server(APP, "http://x")


def test_a_config_is_a_server_config() -> None:
    given: Any = {"concurrency": 2}
    with pytest.raises(TypeError, match=r"config must be a fastq\.ServerConfig"):
        Server(APP, config=given)


def test_current_task_is_for_handlers() -> None:
    with pytest.raises(LookupError, match="no task is running here"):
        current_task()
