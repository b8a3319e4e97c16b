"""``fastq task tail``: writes what happens in a queue until it is interrupted."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from fastq import Client
from tests.cli.commands import Fastq, validator
from tests.cli.test_task_bulk import environment
from tests.e2e.harness import workers_on


@contextmanager
def tailing(fastq: Fastq, home: Path, *words: str) -> Iterator[Iterator[str]]:
    """Follow the queue default, give the lines, and interrupt it at the end."""
    program = [sys.executable, "-m", "fastq", "task", "tail", "-q", "default", "--interval", "0.05", *words]
    env = {**environment(fastq.url, home), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(program, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield iter(process.stdout.readline, "")
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()  # what it still says: a full pipe would keep it from ending
    assert process.returncode == 130


@contextmanager
def enqueuing(fastq: Fastq, *types: str) -> Iterator[None]:
    """Enqueue tasks all the time: the first look, of which nothing is told, is at nobody knows when."""
    ended = Event()

    def enqueue() -> None:
        with Client(fastq.url) as client:
            while not ended.wait(0.01):
                for each in types:
                    client.enqueue(each)

    thread = Thread(target=enqueue)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def listed(fastq: Fastq) -> Fastq:
    """Return the command on a Redis with the queue default."""
    with Client(fastq.url) as client:
        client.enqueue("first", process_in=3600)
    return fastq


def test_what_happens_is_written_as_lines_and_as_json(listed: Fastq, tmp_path: Path) -> None:
    with (
        tailing(listed, tmp_path) as lines,
        tailing(listed, tmp_path, "--json", "--type", "a*") as objects,
        enqueuing(listed, "other", "abc"),
    ):
        at, event, _, type = next(lines).split()
        told = json.loads(next(objects))
    assert re.fullmatch(r"\d\d:\d\d:\d\d", at)
    assert (event, type in ("other", "abc")) == ("enqueued", True)
    validator("task tail").validate(told)
    assert (told["type"], told["event"], told["state"], told["previous"]) == ("abc", "enqueued", "pending", None)


def test_only_what_comes_into_a_state_is_told_if_that_is_wished(listed: Fastq, tmp_path: Path) -> None:
    with (
        workers_on(listed.url, tmp_path) as workers,
        tailing(listed, tmp_path, "--json", "--state", "completed") as objects,
        enqueuing(listed, "ok"),
    ):
        workers.start("--concurrency", "1")
        events = {json.loads(next(objects))["event"] for _ in range(5)}
    assert events <= {"done", "missed"}


@pytest.mark.parametrize(
    ("words", "text"), [("-s nix", "'nix' is not one of"), ("--interval 0", "0.0 is not in the range")]
)
def test_wrong_words_are_misuse(fastq: Fastq, words: str, text: str) -> None:
    assert text in fastq.failure("task", "tail", "-q", "default", *words.split(), code=2)


def test_a_queue_that_there_is_not_is_said(filled: Fastq) -> None:
    assert "did you mean 'default'?" in filled.failure("task", "tail", "-q", "defalt")
