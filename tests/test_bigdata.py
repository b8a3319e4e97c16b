"""The benchmark on big data goes through all of its cases; here on small data, whose times are nobody's business."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from benchmarks.bigdata import cases, main
from benchmarks.bigdata_commands import COMMANDS, PROGRAM
from benchmarks.bigdata_keyspace import Size
from tests.starting import COMMAND, can_be_forked, start
from tests.waiting import PATIENCE_S

COMMAND_ROW = r"(?P<words>.+?) +[\d.]+ ms  \w+ +[\d.]+ s +\d+ MB"


def run_forked(words: Sequence[str], folder: Path, output: IO[bytes]) -> tuple[int, int]:
    """Run the program as a fork that need not import it; of its peak it leaves a file, as the process does."""
    (folder / "measured.py").write_text(PROGRAM)
    streams = [output.fileno(), output.fileno()]
    environment = {**os.environ, "HOME": str(folder)}
    return start(["measured", *words], folder, environment, streams, COMMAND).wait(PATIENCE_S), 0


@pytest.fixture
def _forks(monkeypatch: pytest.MonkeyPatch) -> None:
    if can_be_forked(Path()):
        monkeypatch.setattr("benchmarks.bigdata_commands.run_program", run_forked)


@pytest.mark.usefixtures("_forks")
def test_each_case_is_timed_and_none_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tasks", "2000", "--groups", "40", "--repeats", "1"]) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    commands = next(n for n, line in enumerate(lines) if line.startswith("command "))
    rows = [re.fullmatch(r"(?P<name>.+?) +[\d.]+ ms  \w+ +(?P<calls>\d+)", line) for line in lines[2:commands]]
    named = {row["name"]: int(row["calls"]) for row in rows if row}
    assert list(named) == [case.name for case in cases(Size(2000, 40))]
    assert named["delete_all_pending_tasks"] == 3 + 2000 // 200  # how many there are, which is the newest, the pieces
    rows = [re.fullmatch(COMMAND_ROW, line) for line in lines[commands + 1 : -1]]
    assert [row["words"] for row in rows if row] == [f"fastq {command.words}" for command in COMMANDS]
    assert lines[-1].startswith("above 5 ms: ")


def test_a_command_is_run_as_a_process_whose_memory_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tasks", "2000", "--groups", "40", "--repeats", "1", "--only", "fastq stats"]) in (0, 1)
    (row,) = filter(None, (re.fullmatch(COMMAND_ROW, line) for line in capsys.readouterr().out.splitlines()))
    assert row["words"] == "fastq stats"
