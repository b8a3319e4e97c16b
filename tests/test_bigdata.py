"""The benchmark on big data goes through all of its cases; here on small data, whose times are nobody's business."""

import re

import pytest

from benchmarks.bigdata import Size, cases, main


def test_each_case_is_timed_and_none_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tasks", "2000", "--groups", "40", "--repeats", "1"]) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    rows = [re.fullmatch(r"(?P<name>.+?) +[\d.]+ ms  \w+ +(?P<calls>\d+)", line) for line in lines[2:-1]]
    named = {row["name"]: int(row["calls"]) for row in rows if row}
    assert list(named) == [case.name for case in cases(Size(2000, 40))]
    assert named["delete_all_pending_tasks"] == 3 + 2000 // 200  # how many there are, which is the newest, the pieces
    assert lines[-1].startswith("above 5 ms: ")
