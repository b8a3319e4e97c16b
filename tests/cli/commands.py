"""Runs ``fastq`` as a user would, holds what it writes as JSON against the schema, and fills a Redis to look at."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any
from urllib.parse import quote

import click
import jsonschema
from click.testing import CliRunner, Result
from redis import Redis

from fastq import Client, Task
from fastq.cli.main import main
from fastq.wire import keys
from tests.inspector.harness import Seeded
from tests.starting import COMMAND, Forked, can_be_forked, start
from tests.waiting import PATIENCE_S

NOWHERE = "unix:///nowhere/redis.sock"
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "cli.schema.json").read_text())
FAR_S = 4_000_000_000
BINARY = bytes(range(128, 160))


def run_alone(
    words: Sequence[str], environment: Mapping[str, str], directory: Path, stdout: IO[bytes]
) -> tuple[int, str]:
    """Run it in a process of its own; return its exit code, and what it wrote to stderr."""
    with TemporaryFile() as stderr:
        code = begin(words, environment, directory, stdout, stderr).wait(PATIENCE_S)
        stderr.seek(0)
        return code, stderr.read().decode()


def begin(
    words: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    program: str = "fastq.__main__",
) -> subprocess.Popen[bytes] | Forked:
    """Start it, or another module, in a process of its own."""
    if not can_be_forked(directory):
        command = [sys.executable, "-m", program, *words]
        return subprocess.Popen(command, cwd=directory, env=environment, stdin=stdin, stdout=stdout, stderr=stderr)
    with Path(os.devnull).open("r+b") as nothing:
        given = [nothing if stream == subprocess.DEVNULL else stream for stream in (stdout, stderr, stdin)]
        out, err, source = (stream if isinstance(stream, int) else stream.fileno() for stream in given)
        return start([program, *words], directory, environment, (out, err, source), COMMAND)


def completed(
    words: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    *,
    code: str = "",
    stdin: IO[bytes] | int = subprocess.DEVNULL,
) -> "subprocess.CompletedProcess[str]":
    """Run it, or a program of this ``code``, in a process of its own, and wait for its end."""
    if code:
        (directory / "coded.py").write_text(code)
    program = "coded" if code else "fastq.__main__"
    with TemporaryFile() as stdout, TemporaryFile() as stderr:
        exit_code = begin(words, environment, directory, stdout, stderr, stdin, program).wait(PATIENCE_S)
        for stream in (stdout, stderr):
            stream.seek(0)
        return subprocess.CompletedProcess(words, exit_code, stdout.read().decode(), stderr.read().decode())


def commands_of(group: click.Group) -> dict[str, click.Command]:
    """Return all commands of a group, imported."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


class Fastq:
    """The command, on one Redis."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, *words: str, input: str | None = None, env: dict[str, str] | None = None) -> Result:
        """Run it in this process."""
        words = ("--redis", self.url, *words)
        result = CliRunner().invoke(main, words, input=input, env=env, catch_exceptions=False)
        return result

    def done(self, *words: str, input: str | None = None) -> str:
        """Run it, see that all went well, and return what it wrote."""
        result = self.run(*words, input=input)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return result.stdout

    def lines(self, *words: str) -> list[str]:
        """Return the words of each line that is not blank, single-spaced."""
        return [" ".join(line.split()) for line in self.done(*words).splitlines() if line.strip()]

    def json(self, *words: str) -> Any:
        """Run it with ``--json``, and hold what it wrote against the schema."""
        name = " ".join(words[: 1 if words[0] in ("stats", "doctor", "leave") else 2])
        return checked_json(self.done(*words, "--json"), name)

    def failure(self, *words: str, code: int = 1, input: str | None = None) -> str:
        """Run it, see it fail with this code and one line on stderr, and return that line."""
        result = self.run(*words, input=input)
        assert result.exit_code == code, result.output
        (line,) = result.stderr.splitlines()
        assert line.startswith("fastq: ")
        return line


def checked_json(text: str, command: str) -> Any:
    """Read what a command wrote, and hold it against the schema."""
    found = json.loads(text)
    validator(command).validate(found)
    return found


@cache
def validator(command: str) -> Any:
    """Return what checks the JSON of a command."""
    return jsonschema.Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{quote(command)}"})


def fill(db: Redis, url: str) -> None:
    """Put tasks of every state into the queue default, none into the paused queue low, and count runs for today."""
    with Client(url) as client:
        client.enqueue("mail:send", {"to": "ann"}, task_id="p1")
        client.enqueue("mail:send", BINARY, task_id="p2")
        client.enqueue("письмо", "строка\x1b[31m\n".encode(), task_id="p3", headers={"trace": "7"})
        client.enqueue("report", b"later", task_id="s1", process_in=timedelta(hours=2), retention=60)
        client.enqueue("report", b"at last", task_id="s2", process_in=timedelta(days=3))
        client.enqueue_many([Task("digest", b"g", group="mails", task_id=f"g{n}") for n in (1, 2)])
        client.enqueue("other", task_id="o1", queue="critical")
    queue = Seeded(db)
    queue.activate("a1", type="slow", payload=b"running")
    queue.activate("a2", type="slow", until_s=1_000_000)
    failed = {"retried": 3, "error_msg": "ValueError: no such\nuser", "last_failed_at": now_s() - 65}
    queue.add("retry", {"r1": FAR_S}, type="mail:send", payload=b"again", **failed)
    queue.add("archived", {"d1": now_s() - 65}, type="mail:send", **{**failed, "retried": 25})
    queue.add("completed", {"c1": FAR_S}, type="sum", completed_at=now_s() - 5, retention=600)
    db.hset(keys.task("default", "c1"), "result", b'{"sum": 3}')
    now = datetime.now(UTC)
    for today in {now.date(), (now + timedelta(minutes=5)).date()}:  # in case that midnight is about to come
        db.mset({keys.processed("default", today): 40, keys.failed("default", today): 10})
    db.mset({keys.processed_total("default"): 1040, keys.failed_total("default"): 110})
    db.sadd(keys.all_queues(), "low")
    db.set(keys.paused("low"), now_s())


def now_s() -> int:
    return int(datetime.now(UTC).timestamp())


def read_terminal(leader: int) -> str:
    """Read until everybody has closed the terminal's other end."""
    text = b""
    while True:
        try:
            some = os.read(leader, 65_536)
        except OSError:  # how Linux says so
            some = b""
        if not some:
            return text.decode()
        text += some
