"""Output that nobody takes: each command ends without a traceback, and says what there is to say."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import pytest

from fastq import Client, Task
from fastq.wire import keys
from tests.cli.commands import Fastq, begin, run_alone
from tests.cli.test_task_bulk import environment
from tests.e2e.harness import ROOT
from tests.waiting import PATIENCE_S

WRITING = [
    "--help",
    "version",
    "completion bash",
    "task ls --help",
    "stats",
    "stats --json",
    "queue ls",
    "queue inspect default --json",
    "queue pause default critical",
    "task ls -q default -s pending",
    "task ls -q default -s pending --json",
    "task ls -q default -s pending --type mail:*",
    "task inspect -q default -i p1",
    "task delete-all -q default -s retry --yes --json",
    "task export -q default",
    "doctor",
]
"""Commands that write in each of the ways that there are."""
MANY = 1_500


def run(fastq: Fastq, home: Path, words: str, stdout: IO[bytes]) -> tuple[int, str]:
    return run_alone(words.split(), environment(fastq.url, home), ROOT, stdout)


# They fail where those of a full disk do: one is enough for click's own words, tables, JSON, and what is streamed.
@pytest.mark.parametrize("words", ["--help", "stats", "queue inspect default --json", "task export -q default"])
def test_a_reader_that_went_away_ends_each_command_without_a_word(filled: Fastq, tmp_path: Path, words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as stdout:
        assert run(filled, tmp_path, words, stdout) == (1, "")


@pytest.mark.parametrize("words", ["task ls -q default -s pending --size 1500", "task export -q default"])
def test_a_reader_that_goes_away_in_the_middle_ends_it_without_a_word(fastq: Fastq, tmp_path: Path, words: str) -> None:
    with Client(fastq.url) as client:
        client.enqueue_many(Task("t", b"x" * 100) for _ in range(MANY))  # more than a pipe holds
    reader, writer = os.pipe()
    with TemporaryFile() as stderr:
        process = begin(words.split(), environment(fastq.url, tmp_path), ROOT, writer, stderr)
        os.close(writer)
        with os.fdopen(reader, "rb") as stdout:
            assert stdout.readline()
        assert process.wait(PATIENCE_S) == 1
        assert stderr.seek(0, os.SEEK_END) == 0


def test_tail_ends_when_nobody_reads_it_though_nothing_happens(filled: Fastq, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as stdout:
        assert run(filled, tmp_path, "task tail -q low", stdout) == (1, "")


@pytest.mark.parametrize("words", WRITING)
def test_a_full_disk_is_said_in_one_line(filled: Fastq, tmp_path: Path, words: str) -> None:
    with Path("/dev/full").open("wb") as stdout:
        done = run(filled, tmp_path, words, stdout)
    assert done == (1, "fastq: cannot write: No space left on device\n")


def test_a_failure_that_nobody_reads_is_a_failure_all_the_same(filled: Fastq, tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        for words in ("queue inspect nix", "stats --nix"):
            assert begin(words.split(), environment(filled.url, tmp_path), ROOT, full, full).wait(PATIENCE_S) == 1


@pytest.mark.parametrize(
    ("words", "closed"),
    [
        ("stats", ">&-"),
        ("stats", "2>&-"),
        ("stats", ">&- 2>&-"),
        ("stats --json", ">&-"),
        ("task ls -q default -s pending", ">&-"),
        ("queue pause default", ">&- 2>&-"),
    ],
)
def test_with_closed_streams_the_work_is_done(filled: Fastq, db: Any, tmp_path: Path, words: str, closed: str) -> None:
    program = ["/bin/sh", "-c", f'exec "{sys.executable}" -m fastq {words} {closed}']
    done = subprocess.run(program, env=environment(filled.url, tmp_path), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert db.exists(keys.paused("default")) == ("pause" in words)


def test_an_export_to_a_closed_stdout_is_misuse(filled: Fastq, tmp_path: Path) -> None:
    program = ["/bin/sh", "-c", f'exec "{sys.executable}" -m fastq task export -q default >&-']
    done = subprocess.run(program, env=environment(filled.url, tmp_path), capture_output=True, text=True)
    assert done.returncode == 2
    assert "stdout is closed: name a file with --output" in done.stderr
