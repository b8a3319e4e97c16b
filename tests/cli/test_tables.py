"""Tables on a terminal and in a pipe."""

import os
from collections.abc import Iterator

import pytest

from fastq.cli.tables import Cell, Column, facts, table
from fastq.terminal.screen import Screen

COLUMNS = [Column("NAME", cut=True), Column("N", right=True), Column("PAYLOAD", cut=True)]
ROWS = [("a", "1", "x" * 60), (Cell("žluťák", fg="red"), "1,000", "漢字")]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Screen, int]]:
    """Give a screen on a real pseudo-terminal of 40 columns, and where its output can be read."""
    leader, follower = os.openpty()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with os.fdopen(follower, "w", encoding="utf-8") as out:
        yield Screen(out), leader
    os.close(leader)


def written(screen: Screen, leader: int) -> list[str]:
    """Return the lines so far; what is read of a pseudo-terminal at once may end anywhere."""
    screen.say("the end")
    read = b""
    while b"the end" not in read:
        read += os.read(leader, 65_536)
    return read.decode().splitlines()[:-1]


def test_in_a_pipe_nothing_is_cut_or_coloured(capsys: pytest.CaptureFixture[str]) -> None:
    table(Screen(), COLUMNS, ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "NAME        N  PAYLOAD",
        f"a           1  {'x' * 60}",
        "žluťák  1,000  漢字",
    ]


def test_without_rows_there_are_the_titles(capsys: pytest.CaptureFixture[str]) -> None:
    table(Screen(), COLUMNS, [])
    assert capsys.readouterr().out == "NAME  N  PAYLOAD\n"


def test_on_a_terminal_lines_fit_the_window_and_have_colour(terminal: tuple[Screen, int]) -> None:
    table(terminal[0], COLUMNS, ROWS)
    lines = written(*terminal)
    assert lines == [
        "\x1b[1mNAME        N  PAYLOAD\x1b[0m",
        f"a           1  {'x' * 23}…",
        "\x1b[31mžluťák\x1b[0m  1,000  漢字",
    ]
    assert len(lines[1]) == 39


def test_a_wide_character_is_cut_to_the_window(terminal: tuple[Screen, int]) -> None:
    table(terminal[0], [Column("T", cut=True)], [("漢" * 30,)])
    assert written(*terminal)[1] == "漢" * 19 + "…"


def test_a_narrow_window_leaves_something_of_each_column(
    terminal: tuple[Screen, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    table(terminal[0], COLUMNS, [("n" * 50, "1", "x" * 50)])
    assert written(*terminal)[1] == f"{'n' * 11}…  1  {'x' * 11}…"


@pytest.mark.parametrize(
    ("window", "lines"),
    [
        (33, ["NAME  PROCESSED  MEMORY  LATENCY", "q             1       2        3"]),
        (32, ["NAME  DONE  MEMORY  LATENCY", "q        1       2        3"]),
        (27, ["NAME  DONE  LATENCY", "q        1        3"]),
        (19, ["NAME  DONE", "q        1"]),
        (5, ["NAME  DONE", "q        1"]),
    ],
)
def test_a_narrow_window_gets_short_titles_then_fewer_columns(
    terminal: tuple[Screen, int], monkeypatch: pytest.MonkeyPatch, window: int, lines: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(window))
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen(terminal[0]._out)
    columns = [
        Column("NAME"),
        Column("PROCESSED", right=True, short="DONE"),
        Column("MEMORY", right=True, rank=2),
        Column("LATENCY", right=True, rank=1),
    ]
    table(screen, columns, [("q", "1", "2", "3")])
    assert written(screen, terminal[1]) == lines


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch, terminal: tuple[Screen, int]) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen(terminal[0]._out)
    table(screen, COLUMNS, ROWS)
    assert "\x1b" not in "".join(written(screen, terminal[1]))


def test_facts_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    facts(Screen(), [("Size", "3"), ("Memory", "1.0 kB"), ("", "")])
    assert capsys.readouterr().out == "Size    3\nMemory  1.0 kB\n\n"
