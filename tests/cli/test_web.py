"""``fastq web``: where it listens, what it refuses, and asynqmon's flags and variables."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from fastq import Client
from fastq.cli.main import main
from fastq.web.access import Role, User
from fastq.web.auth import new_user_line
from tests.cli.commands import begin
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server
from tests.starting import ROOT, Forked
from tests.waiting import PATIENCE_S

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("FASTQ_", "REDIS_"))}


@contextmanager
def web(home: Path, *words: str, **environment: str) -> Iterator[tuple[str, subprocess.Popen[bytes] | Forked]]:
    """Run the command on a free port; gives the line that says where it listens."""
    with (home / "log").open("wb") as log:
        reader, writer = os.pipe()
        env = {**CLEAN, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(home), **environment}
        process = begin(["web", *words], env, home, writer, log)
        os.close(writer)
    try:
        with os.fdopen(reader) as stdout:
            line = stdout.readline()
            assert line, (home / "log").read_text()
            yield line, process
    finally:
        process.kill()
        process.wait()


def queues_of(line: str) -> list[str]:
    url = line.split(" shows ")[0]
    with urllib.request.urlopen(f"{url}api/queues", timeout=PATIENCE_S) as reply:
        return [queue["queue"] for queue in json.load(reply)["queues"]]


def test_it_says_where_it_listens_serves_and_ends(tmp_path: Path, url: str) -> None:
    with Client(url) as client:
        client.enqueue("t", queue="here")
    with web(tmp_path, "--port", "0", "--redis", url, "--root-path", "/tasks") as (line, process):
        assert line.startswith("http://127.0.0.1:")
        assert line.rstrip().endswith(f"/tasks/ shows {url.removeprefix('unix://')}")
        assert queues_of(line) == ["here"]
        request = urllib.request.Request(f"{line.split(' shows ')[0]}api/queues/here:pause", method="POST")
        urllib.request.urlopen(request, timeout=PATIENCE_S).close()
        with urllib.request.urlopen(f"{line.split(' shows ')[0]}events?of=/", timeout=PATIENCE_S) as stream:
            process.send_signal(signal.SIGTERM)  # which ends the streams of open pages
            process.wait(PATIENCE_S)
            assert stream.read().startswith(b": here")
        assert "graceful shutdown exceeded" not in (tmp_path / "log").read_text()
        (audit,) = [line for line in (tmp_path / "log").read_text().splitlines() if "queue.pause" in line]
        assert '"outcome": "done"' in audit


@pytest.fixture(scope="module")
def secured() -> Iterator[RedisServer]:
    """Run a Redis with a port and a password, as asynqmon's flags name it."""
    with redis_server(port=free_port(), password="secret") as server:
        with server.client(db=3) as db:
            db.sadd("asynq:queues", "three")
        yield server


@pytest.mark.parametrize("how", ["flags", "variables", "ours first"])
def test_asynqmons_flags_and_variables_name_the_redis(tmp_path: Path, secured: RedisServer, how: str, url: str) -> None:
    given = {"redis-addr": f"127.0.0.1:{secured.port}", "redis-db": "3", "redis-password": "secret"}
    words = [f"--{name}={value}" for name, value in given.items()] if how == "flags" else []
    variables = {} if how == "flags" else {name.upper().replace("-", "_"): value for name, value in given.items()}
    ours: Mapping[str, str] = {"FASTQ_REDIS_URL": url} if how == "ours first" else {}
    with web(tmp_path, "--port=0", "--read-only", *words, **variables, **ours) as (line, _):
        assert queues_of(line) == ([] if ours else ["three"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 is reachable from other machines, and needs --auth"),
        (["--host", "::"], "needs --auth"),
        (["--auth", "basic:/none", "--no-auth"], "--auth and --no-auth contradict each other"),
        (["--auth", "basic:/none"], "/none: No such file or directory"),
        (["--forbid", "task.eat"], "'task.eat' is not an action; actions are queue.pause"),
        (["--root-path", "x"], "root_path must be like /monitoring/tasks, not 'x'"),
        (["--prometheus-addr", "localhost:9090"], "must be like http://prometheus.example:9090"),
        (["--link", "Logs"], "--link 'Logs': write NAME=URL, such as Logs=https://logs.example.com/{id}"),
        (["--also", "redis://x"], "--also 'redis://x': write NAME=URL, such as staging=redis://staging:6379/0"),
        (["--also", "a/b=redis://x"], "letters, digits, -, _ and . only, not 'a/b'"),
        (["--link", "Logs=javascript:{id}"], "must begin with http:// or https://"),
        (["--link", "Logs=https://x/{uuid}"], "{uuid} is not a field; fields are {id}, {queue}, {type}, {trace_id}"),
        (["--link", "Logs=https://x/{id.__class__}"], "{id.__class__} is not a field"),
        (["--app", "tests.web.test_asgi:json"], "'tests.web.test_asgi:json' must be a fastq.App, not module"),
        (["--port", "99999"], "99999 is not in the range"),
        (["--new-user", "ann"], "write NAME:ROLE, such as ann:operator"),
    ],
)
def test_what_is_refused_is_named_in_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    result = CliRunner().invoke(main, ["web", *words])
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_metrics_without_their_library_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "fastq.web.exporting", raising=False)
    result = CliRunner().invoke(main, ["web", "--port", "0"], env={"ENABLE_METRICS_EXPORTER": "true"})
    assert result.exit_code == 1
    assert "metrics need prometheus_client; install it: pip install 'fastq-worker[web,metrics]'" in result.stderr
    assert result.stderr.count("\n") == 1


def test_metrics_are_served_beside_the_pages(tmp_path: Path, url: str) -> None:
    with Client(url) as client:
        client.enqueue("t", queue="here")
    words = ("--port", "0", "--redis", url, "--enable-metrics-exporter")
    with web(tmp_path, *words) as (line, process):
        with urllib.request.urlopen(f"{line.split(' shows ')[0]}metrics", timeout=PATIENCE_S) as reply:
            assert b'asynq_queue_size{queue="here"} 1.0' in reply.read()
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_line_for_a_user_is_made(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["web", "--new-user", "ann:operator"], input="secrets!\nsecrets!\n")
    assert result.exit_code == 0
    name, role, salt, digest = result.stdout.strip().split(":")
    assert (name, role, len(salt), len(digest)) == ("ann", "operator", 32, 128)
    assert "secrets!" not in result.stdout
    assert new_user_line(User("ann", Role.OPERATOR), "secrets!") != result.stdout.strip()  # another salt each time
    short = CliRunner().invoke(main, ["web", "--new-user", "ann:operator"], input="x\nx\n")
    assert (short.exit_code, "the password has 1 characters; at least 8" in short.output) == (2, True)
