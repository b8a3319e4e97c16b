"""The frame of ``fastq``: what it says without words, with wrong ones, and when Redis is not there."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from fastq import Client
from fastq._version import __version__
from fastq.cli.commands import Noun
from fastq.cli.main import main
from tests.cli.commands import NOWHERE, Fastq, commands_of
from tests.e2e.harness import ROOT, workers_on
from tests.redis_servers import redis_server, tls_redis_server

TALKING = [
    "stats",
    "bench --yes",
    "queue ls",
    "queue inspect default",
    "queue history default",
    "queue pause default",
    "queue resume default",
    "queue drain default",
    "queue move default other --yes",
    "queue rm default --yes",
    "queue limit default 5",
    "task ls -q default -s retry",
    "task inspect -q default -i x",
    "task cancel x",
    "task run -q default -i x",
    "task archive -q default -i x",
    "task delete -q default -i x --yes",
    "task enqueue -t t -l x",
    "task retry -q default --all --yes",
    "task run-all -q default -s retry --yes",
    "task archive-all -q default -s retry --yes",
    "task delete-all -q default -s retry --yes",
    "task export -q default",
    "task import",
    "task tail -q default",
    "group ls -q default",
    "lane ls -q default",
    "lane limit x 2 -q default",
    "lane pause x -q default",
    "lane resume x -q default",
    "lane drain x -q default",
    "server ls",
    "server quiet x --yes",
    "server stop --all --yes",
    "cron ls",
    "cron history x",
    "doctor",
    "leave",
    "dash",
    "exporter",
]
"""Every command that asks something of Redis."""


def test_every_command_that_talks_to_redis_is_tried() -> None:
    silent = {
        "acl",
        "worker",
        "scheduler",
        "run",
        "metrics",
        "schema",
        "demo",
        "plan",
        "completion",
        "version",
        "web",
        "celery",
        "outbox",
    }
    leaves = [path for path in every_command(main) if path and path[0] not in silent]
    nouns = {path[:-1] for path in leaves if len(path) > 1}
    known = {tuple(words.split()[: len(path)]) for words in TALKING for path in leaves}
    assert {path for path in leaves if path not in nouns} <= known


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = [path]
    for name, command in commands_of(group).items():
        if isinstance(command, click.Group):
            paths += every_command(command, (*path, name))
        else:
            paths.append((*path, name))
    return paths


@pytest.mark.parametrize("words", every_command(main), ids=" ".join)
def test_every_command_has_help(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*words, "--help"], terminal_width=80)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: fastq{''.join(f' {word}' for word in words)} ")
    wide = [line for line in result.stdout.splitlines() if len(line) > (80 if not is_example(line) else 105)]
    assert wide == []


def is_example(line: str) -> bool:
    return line.startswith("    ") and "fastq" in line.split(" #")[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["queue", "limit", "q", "100k"], "'100k' is not a valid integer (see"),
        (["queue", "history", "q", "--days", "x"], "'x' is not a valid integer (see"),
        (["stats", "--db", "x"], "'x' is not a valid integer (see"),
        (["task", "tail", "-q", "q", "--interval", "x"], "'x' is not a valid number (see"),
        (["outbox", "sqlite://", "--interval", "nan"], "nan is not in the range 0.01<=x<=3600 (see"),
    ],
    ids=" ".join,
)
def test_what_is_no_number_is_told_in_words_of_the_user(words: list[str], said: str) -> None:
    result = Fastq(NOWHERE).run(*words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_without_words_the_commands_are_shown() -> None:
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 0
    assert "Exit codes: 0 done, 1 failed, 2 misused, 130 interrupted." in " ".join(result.stdout.split())
    for name in commands_of(main):
        assert f"  {name}" in result.stdout
    noun = CliRunner().invoke(main, ["queue"])
    assert noun.exit_code == 0
    assert "ls, list " in noun.stdout


@pytest.mark.parametrize("words", [["version"], ["--version"], ["-v"]])
def test_version_is_said(words: list[str]) -> None:
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stdout) == (0, f"fastq {__version__}\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("stast",), "no command 'stast'; did you mean 'stats'? (see fastq --help)"),
        (("queue", "lst"), "no command 'lst'; did you mean 'list'? (see fastq queue --help)"),
        (("queue", "history", "q", "--day", "3"), "No such option"),
        (("queue", "history", "q", "-x", "0"), "0 is not in the range 1<=x<=90"),
        (("queue", "inspect"), "Missing argument 'QUEUE...' (see fastq queue inspect --help)"),
        (("queue", "pause", " "), "queue must contain one or more characters that are not blank: ' '"),
        (("--redis", "http://x", "stats"), "scheme 'http' is none of redis"),
        (("--redis", "http://:pass-word@x", "stats"), "'http://:***@x'"),
        (
            ("worker",),
            "APP is missing: name your App or ServeMux, for example myapp.tasks:app (see fastq worker --help)",
        ),
        (("--redis", "http://x", "worker", "a:b"), "scheme 'http' is none of redis"),
    ],
)
def test_misuse_is_said_in_one_line_with_code_2(fastq: Fastq, words: tuple[str, ...], line: str) -> None:
    assert line in fastq.failure(*words, code=2)


@pytest.mark.parametrize("words", TALKING)
def test_without_redis_each_command_says_so_in_one_line(fastq: Fastq, words: str) -> None:
    line = Fastq(NOWHERE).failure(*words.split())
    assert "cannot reach Redis at /nowhere/redis.sock: " in line
    assert "Is it running, and is FASTQ_REDIS_URL or --redis right?" in line


def test_of_many_names_redis_away_is_said_once() -> None:
    for words in ("queue pause a b c", "queue rm a b -y", "task run -q a -i x -i y", "task cancel x y"):
        Fastq(NOWHERE).failure(*words.split())


def test_a_worker_is_told_where_redis_is(fastq: Fastq, tmp_path: Path) -> None:
    with Client(fastq.url) as client:
        client.enqueue("ok")
    program = (sys.executable, "-m", "fastq", "--redis", fastq.url, "worker")
    with workers_on(NOWHERE, tmp_path) as workers:
        worker = workers.start("--burst", "--concurrency", "1", program=program)
        assert worker.ended() == 0, worker.text
        assert "1 tasks done" in worker.text


def test_with_a_wrong_password_each_command_says_so_in_one_line(fastq: Fastq) -> None:
    with redis_server(password="right") as server:
        for words in TALKING:
            assert "Redis asks for a password" in Fastq(server.url).failure(*words.split())
            line = Fastq(f"unix://:pass-wrong@{server.socket_path}").failure(*words.split())
            assert "Redis refuses the user name or password" in line
            assert "pass-wrong" not in line
        assert Fastq(server.url).done("queue", "ls", "--password", "right") == ""


@pytest.mark.parametrize(("shell", "mark"), [("bash", "complete"), ("zsh", "#compdef fastq"), ("fish", "complete")])
def test_completion_is_written_for_each_shell(shell: str, mark: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert mark in result.stdout
    assert "_FASTQ_COMPLETE" in result.stdout


def completed(fastq: Fastq, words: str) -> list[str]:
    env = {"_FASTQ_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    result = CliRunner().invoke(main, [], env={**env, "FASTQ_REDIS_URL": fastq.url}, catch_exceptions=False)
    return [line.partition(",")[2] for line in result.stdout.split()]


def test_shells_complete_commands_and_queues(filled: Fastq) -> None:
    assert completed(filled, "fastq st") == ["stats"]
    assert completed(filled, "fastq queue pau") == ["pause"]
    assert completed(filled, "fastq queue inspect ") == ["critical", "default", "low"]
    assert completed(filled, "fastq queue inspect d") == ["default"]
    assert completed(Fastq(NOWHERE), "fastq queue inspect ") == []


def test_the_first_help_says_of_each_command_what_the_command_says_of_itself() -> None:
    rows = " ".join(CliRunner().invoke(main, ["--help"], terminal_width=300).stdout.split())
    for name, command in commands_of(main).items():
        assert f" {name} {command.get_short_help_str(300)} " in rows


def test_the_first_help_imports_no_command_and_no_redis() -> None:
    code = "import sys; sys.argv = ['fastq']; from fastq.cli.main import main; import atexit;"
    code += "atexit.register(lambda: print('imported:', *sys.modules)); main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, _, imported = done.stdout.partition("imported:")
    assert "Exit codes" in shown
    heavy = ("redis", "google", "asyncio", "fastq.client", "fastq.inspector", "fastq.pool", "fastq.cli.stats")
    assert [name for name in imported.split() if name.startswith(heavy)] == []


def test_a_noun_lists_its_commands_in_their_order() -> None:
    noun = Noun("noun")
    noun.verb("b", "c")(lambda: None)
    noun.verb("a")(lambda: None)
    assert noun.list_commands(click.Context(noun)) == ["b", "a"]
    assert noun.get_command(click.Context(noun), "c") is noun.commands["b"]


@pytest.mark.parametrize("program", [("-m", "fastq"), ("-c", "from fastq.cli.main import main; main()")])
def test_it_runs_as_a_program(filled: Fastq, tmp_path: Path, program: tuple[str, ...]) -> None:
    env = {"PYTHONPATH": str(ROOT), "FASTQ_REDIS_URL": filled.url, "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, *program, "queue", "ls"], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "critical\ndefault\nlow\n", "")
    failed = subprocess.run([sys.executable, *program, "queue", "l"], env=env, capture_output=True, text=True)
    assert (failed.returncode, failed.stdout) == (2, "")


def test_an_encoding_without_the_characters_is_no_reason_to_fail(filled: Fastq, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(ROOT), "FASTQ_REDIS_URL": filled.url, "HOME": str(tmp_path), "PYTHONIOENCODING": "ascii"}
    program = [sys.executable, "-m", "fastq", "task", "ls", "-q", "default", "-s", "pending"]
    done = subprocess.run(program, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u043f\\u0438\\u0441" in done.stdout


def test_a_user_who_may_not_do_it_is_told_so(filled: Fastq, db: Any) -> None:
    db.execute_command("ACL", "SETUSER", "reader", "on", ">word", "~*", "&*", "+@all", "-@write")
    try:
        reader = Fastq(f"{filled.url}?username=reader&password=word")
        assert reader.done("queue", "ls")
        for words in ("queue pause default", "task delete-all -q default -s pending --yes", "task enqueue -t t -l x"):
            assert "the Redis user may not do this; extend its ACL rules" in reader.failure(*words.split())
    finally:
        db.execute_command("ACL", "DELUSER", "reader")


@pytest.mark.slow
def test_any_certificate_is_accepted_if_that_is_wished(fastq: Fastq, tmp_path: Path) -> None:
    with tls_redis_server(tmp_path) as (_, port, authority):
        server = Fastq(f"127.0.0.1:{port}")
        assert "certificate verify failed" in server.failure("queue", "ls", "--tls")
        assert server.done("queue", "ls", "--insecure") == ""
        assert Fastq(f"rediss://localhost:{port}?ssl_ca_certs={authority}").done("queue", "ls") == ""
