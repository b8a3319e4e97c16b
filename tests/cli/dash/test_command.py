"""``fastq dash`` as the shell sees it: its options, what it says when it cannot run, and a real run in a terminal."""

import os
import sys
from pathlib import Path

import pytest

from tests.cli.commands import Fastq
from tests.cli.dash.terminal import terminal
from tests.redis_servers import redis_server


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_it_runs_in_a_terminal_and_leaves_it_as_it_was(filled: Fastq, tmp_path: Path, key: str) -> None:
    env = {"FASTQ_REDIS_URL": filled.url, "HOME": str(tmp_path)}
    with terminal("dash", env=env) as seen:
        seen.sees("\x1b[?1049h", "(paused)")
        assert seen.attributes != seen.before
        seen.press("j\r")
        seen.sees("slow", "running")
        seen.press("?")
        seen.sees("Keys")
        seen.press(key)
        seen.sees("\x1b[?1049l")
        assert seen.ended() == 0
        assert seen.attributes == seen.before
    assert "Traceback" not in seen.text


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--refresh", "0.5"), "'0.5' is less than 1s"),
        (("--refresh", "soon"), "'soon'"),
        (("--queue", " "), "queue must contain one or more characters"),
        ((), "the dashboard needs a terminal; fastq stats does not (see fastq dash --help)"),
    ],
)
def test_misuse_is_said_in_one_line(filled: Fastq, words: tuple[str, ...], line: str) -> None:
    assert line in filled.failure("dash", *words, code=2)


def test_a_queue_that_there_is_not_is_said_before_it_begins(filled: Fastq) -> None:
    line = filled.failure("dash", "--queue", "defalt")
    assert line == "fastq: queue not found (queue='defalt'); did you mean 'default'?"


def test_a_wrong_password_is_said_before_it_begins(fastq: Fastq) -> None:
    with redis_server(password="right") as server:
        assert "Redis asks for a password" in Fastq(server.url).failure("dash")
        assert "needs a terminal" in Fastq(server.url).failure("dash", "--password", "right", code=2)


def test_without_textual_it_says_what_to_install(fastq: Fastq, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("textual", "fastq.cli.dash."))]:
        if not name.startswith("fastq.cli.dash.command"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    line = fastq.failure("dash")
    assert line == "fastq: the dashboard needs Textual; install it: pip install 'fastq-worker[dash]'"


def test_other_commands_do_not_wait_for_textual(fastq: Fastq) -> None:
    with os.popen(f"{sys.executable} -X importtime -m fastq --redis {fastq.url} queue ls 2>&1") as output:
        text = output.read()
    assert "fastq.cli.session" in text
    assert "textual" not in text
