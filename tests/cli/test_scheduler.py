"""The command ``fastq scheduler``: what it takes, what it says, with which code it ends."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from redis import Redis

from fastq._version import __version__
from fastq.cli.main import main
from fastq.cli.scheduler import command
from fastq.wire import keys
from tests.e2e.harness import FASTQ, ROOT, Worker, Workers, workers_on
from tests.redis_servers import redis_server
from tests.waiting import PATIENCE_S, wait_until

NOWHERE = "unix:///nowhere/redis.sock"
PROGRAM = (*FASTQ, "scheduler")
APPS = {
    "crons.py": "from fastq import *\nscheduler = Scheduler()\nscheduler.register('@every 1s', 't', queue='low')\n"
    "manager = PeriodicTaskManager(lambda: [PeriodicTaskConfig('@every 1s', 't', {'queue': 'low'})])\n"
    "number = 5\nfailing = PeriodicTaskManager(lambda: 1 / 0)\n"
    "elsewhere = Scheduler('unix:///nowhere/redis.sock')\n",
    "typed.py": "from fastq import App\napp = App()\nempty = App()\ninner = App()\n"
    "@inner.task('t', queue='low', cron='@every 1s', timeout=60)\ndef job(a: int = 1): ...\n"
    "app.include(inner)\n",
    "badspec.py": "from fastq import *\nscheduler = Scheduler()\n\nscheduler.register('0 0 * * 7', 't')\n",
    "broken.py": "import json\njson.loads('{')\n",
    "leaving.py": "import sys\nsys.exit(3)\n",
    "hasty.py": "import logging, signal\nfrom crons import manager, scheduler\n"
    "class Hasty(logging.Handler):\n    def emit(self, record):\n"
    "        if 'ready: ' in record.getMessage():\n            signal.raise_signal(signal.SIGTERM)\n"
    "logging.getLogger('fastq').addHandler(Hasty())\n",
    "begun.py": "from fastq import *\nscheduler = Scheduler()\nscheduler.start()\n",
}


@pytest.fixture
def commands(url: str, tmp_path: Path) -> Iterator[Workers]:
    for name, text in APPS.items():
        (tmp_path / name).write_text(text)
    with workers_on(url, tmp_path) as commands:
        yield commands


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FASTQ_REDIS_URL", "FASTQ_CONFIG", "FASTQ_LOG_LEVEL", "FASTQ_LOG_FORMAT"):
        monkeypatch.delenv(name, raising=False)


def start(commands: Workers, app: str, *flags: str, **how: Any) -> Worker:
    return commands.start(*flags, app=app, **{"program": PROGRAM, **how})


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, ["scheduler", *words])


def left_keys(db: Redis) -> list[bytes]:
    found: Any = db.keys("asynq:scheduler*")
    return list(found)


# What it takes ----------------------------------------------------------------------------------------------------


def test_help_says_how_to_use_it() -> None:
    result = invoke("--help")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: fastq scheduler [OPTIONS] [APP]\n")
    words = " ".join(result.stdout.split())
    for text in (
        "fastq scheduler myapp.schedule:scheduler",
        "--redis",
        "--connect-timeout SECONDS how long to wait for Redis at the start [default: 30]",
        "Exit codes: 0 done, 1 could not run, 2 misused.",
    ):
        assert text in words
    assert max(map(len, result.stdout.splitlines())) <= 110


def test_version_is_said() -> None:
    assert invoke("--version").stdout.split() == ["fastq", "scheduler,", "version", __version__]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "APP is missing: name your Scheduler, for example myapp.schedule:scheduler"),
        (["app"], "'app' is not of the form module:attr"),
        (["a:b", "c:d"], "unexpected extra argument"),
        (["a:b", "--redsi", "x"], "No such option"),
        (["a:b", "--redis", "http://x"], "scheme 'http' is none of redis, rediss"),
        (["a:b", "--connect-timeout", "x"], "connect-timeout: 'x' is neither seconds nor a duration"),
        (["a:b", "--log-level", "loud"], "'loud' is not one of"),
        (["a:b", "--config", "/nowhere.toml"], "cannot read /nowhere.toml: No such file"),
    ],
)
def test_misuse_is_said_in_one_line_with_code_2(words: list[str], text: str) -> None:
    result = invoke(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("fastq: ")
    assert line.endswith(" (see fastq scheduler --help)")
    assert text in line


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("FASTQ_REDIS_URL", "http://x", "scheme 'http'"),
        ("FASTQ_LOG_LEVEL", "loud", "log_level must be one of debug, info"),
        ("FASTQ_CONNECT_TIMEOUT", "soon", "FASTQ_CONNECT_TIMEOUT"),
        ("FASTQ_CONFIG", "/nowhere.toml", "cannot read /nowhere.toml"),
    ],
)
def test_a_bad_environment_variable_is_misuse(
    name: str, value: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    result = invoke("a:b")
    assert result.exit_code == 2
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("app", "text"),
    [
        ("nothere:scheduler", "'nothere:scheduler': there is no module 'nothere' in "),
        ("crons:schedular", "'crons:schedular': crons has no 'schedular'; did you mean 'scheduler'?"),
        ("crons:number", "'crons:number' must be a fastq.App, fastq.Scheduler or fastq.PeriodicTaskManager, not int"),
        ("typed:empty", "'typed:empty' has no task with a cron spec; give one a time with @app.task(cron='@daily')"),
        ("badspec:scheduler", "badspec.py: cron spec '0 0 * * 7', position 8: day of the week: '7' is outside 0-6"),
        ("badspec:scheduler", "'badspec:scheduler', line 4 of "),
    ],
)
def test_a_name_that_leads_to_no_scheduler_is_misuse(commands: Workers, app: str, text: str) -> None:
    command = start(commands, app, "--redis", NOWHERE)
    assert command.ended() == 2, command.text
    (line,) = command.lines
    assert line.startswith("fastq: ")
    assert text in line


@pytest.mark.parametrize(
    ("app", "text"),
    [
        ("broken:scheduler", "json.decoder.JSONDecodeError: "),
        ("leaving:scheduler", "SystemExit: 3"),
        ("begun:scheduler", "FATAL: the scheduler is already running"),
        ("crons:failing", "FATAL: the provider failed at the start: ZeroDivisionError: division by zero"),
    ],
)
def test_an_app_that_cannot_run_is_shown_with_code_1(commands: Workers, app: str, text: str) -> None:
    command = start(commands, app)
    assert command.ended() == 1, command.text
    assert "FATAL: " in command.text
    assert text in command.text


def test_the_command_ends_with_its_code_in_a_frame_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.cli.scheduler.run_scheduler", lambda options: 1)
    frame = click.Group("fastq", commands=[command])
    assert CliRunner().invoke(frame, ["scheduler", "a:b"]).exit_code == 1
    assert CliRunner().invoke(frame, ["scheduler"]).exit_code == 2


# What it does -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("app", "signum"),
    [
        ("crons:scheduler", signal.SIGTERM),
        ("crons:scheduler", signal.SIGINT),
        ("crons:manager", signal.SIGINT),
        ("typed:app", signal.SIGTERM),
    ],
)
def test_it_enqueues_until_told_to_stop_and_clears_up(
    commands: Workers, db: Redis, app: str, signum: signal.Signals
) -> None:
    command = start(commands, app).is_ready()
    wait_until(lambda: db.llen(keys.pending("low")), PATIENCE_S)
    command.signal(signum)
    assert command.ended() == 0, command.text
    assert left_keys(db) == [keys.scheduler_ticks().encode()]  # which count on
    said = [line.partition("INFO: ")[2] for line in command.lines]
    assert said[0].startswith(f"fastq {__version__} on Python ")
    assert said[0].endswith(f" schedules {app}")
    assert said[-1] == "stopped"


@pytest.mark.parametrize("what", ["scheduler", "manager"])
def test_it_stops_properly_as_soon_as_it_says_that_it_is_ready(commands: Workers, what: str) -> None:
    command = start(commands, f"hasty:{what}")
    assert command.ended() == 0, command.text
    assert command.lines[-1].endswith("INFO: stopped")


def test_the_redis_of_the_flag_is_that_of_a_scheduler_made_without_one(commands: Workers, db: Redis) -> None:
    file = commands.directory / "fastq.toml"
    file.write_text(f'redis = "{NOWHERE}"\nlog_format = "json"\n[queues]\nlow = 1\n')
    flags = ("--redis", commands.url, "--config", str(file))
    command = start(commands, "crons:scheduler", *flags, env={"FASTQ_REDIS_URL": NOWHERE})
    wait_until(lambda: db.llen(keys.pending("low")), PATIENCE_S)
    assert command.stop() == 0, command.text
    assert all(line.startswith('{"time":') for line in command.lines)


def test_the_app_is_found_where_the_command_is_started(commands: Workers, db: Redis) -> None:
    """An installed command has its own directory on the path, not the current one."""
    program = (sys.executable, "-P", "-m", "fastq", "scheduler")
    command = start(commands, "crons:scheduler", program=program, env={"PYTHONPATH": str(ROOT)}).is_ready()
    assert command.stop() == 0, command.text


# Redis ------------------------------------------------------------------------------------------------------------


def test_a_redis_that_does_not_come_is_said_and_ends_with_code_1(commands: Workers) -> None:
    command = start(commands, "crons:elsewhere", "--connect-timeout", "1")
    assert command.ended() == 1, command.text
    assert "FATAL: PING: cannot reach Redis at /nowhere/redis.sock: " in command.lines[-1]


def test_a_stop_while_redis_is_waited_for_is_no_failure(commands: Workers) -> None:
    command = start(commands, "crons:elsewhere", "--connect-timeout", str(PATIENCE_S))
    command.wait_for("WARN: PING: cannot reach Redis at /nowhere/redis.sock: ")
    assert command.stop() == 0, command.text
    assert command.lines[-1].endswith("INFO: stopped")


def test_it_begins_when_redis_comes(tmp_path: Path) -> None:
    (tmp_path / "crons.py").write_text(APPS["crons.py"])
    with redis_server() as server, workers_on(server.url, tmp_path) as commands:
        socket = Path(server.socket_path)
        moved = socket.rename(server.directory / "moved.sock")
        command = start(commands, "crons:scheduler", "--connect-timeout", str(PATIENCE_S))
        command.wait_for("cannot reach Redis")
        moved.rename(socket)
        command.is_ready()
        assert command.stop() == 0, command.text


def test_a_wrong_password_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "crons.py").write_text(APPS["crons.py"])
    with redis_server(password="right") as server, workers_on(server.url, tmp_path) as commands:
        command = start(commands, "crons:scheduler", "--redis", f"unix://:secret-wrong@{server.socket_path}")
        assert command.ended() == 1, command.text
        assert "FATAL: " in command.text
        assert "secret-wrong" not in command.text
