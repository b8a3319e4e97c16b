"""The benchmark on big data goes through all of its cases; here on small data, whose times are nobody's business."""

import re

import pytest

from benchmarks.bigdata import cases, main
from benchmarks.bigdata_commands import COMMANDS
from benchmarks.bigdata_keyspace import Size

COMMAND_ROW = r"(?P<words>.+?) +[\d.]+ ms  \w+ +[\d.]+ s +\d+ MB"


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
