"""What is written on a terminal and what into a pipe."""

import io
from pathlib import Path

import click
import pytest

from fastq.demo.audit import Audit
from fastq.demo.display import Display
from fastq.demo.fates import Fate
from fastq.demo.figures import measure
from fastq.demo.findings import QueueCounts
from fastq.demo.summary import print_summary
from fastq.terminal.screen import Screen, grouped
from tests.demo.sample import Sample

WEIGHTS = {"a": 6, "b": 3, "c": 1}


def counts(pending: int, processed: int) -> dict[str, QueueCounts]:
    return {queue: QueueCounts(1, 2, pending, 0, 0, 5, processed, 0) for queue in WEIGHTS}


class Terminal(io.TextIOWrapper):
    """A terminal's stream, as far as one can be queried."""

    def __init__(self, encoding: str = "utf-8", *, is_terminal: bool = True) -> None:
        self.data = io.BytesIO()
        self._is_terminal = is_terminal
        super().__init__(self.data, encoding, write_through=True)

    def isatty(self) -> bool:
        return self._is_terminal

    def text(self) -> str:
        return self.data.getvalue().decode(self.encoding)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")


def test_a_terminal_gets_colour() -> None:
    out = Terminal()
    Screen(out).say("x", fg="red")
    assert out.text() == "\x1b[31mx\x1b[0m\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_that_wants_no_colour_gets_none(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    out = Terminal()
    Screen(out).say("x", fg="red")
    assert out.text() == "x\n"
    assert Screen(out).is_live is (name == "NO_COLOR")


def test_lines_are_written_over_until_something_is_said() -> None:
    out = Terminal()
    screen = Screen(out)
    screen.show(["1", "2"])
    screen.show(["3"])
    screen.say("4")
    screen.show(["5"])
    assert out.text() == "\x1b[2K1\n\x1b[2K2\n\x1b[2F\x1b[2K3\n4\n\x1b[2K5\n"


def test_a_line_that_would_wrap_is_cut() -> None:
    out = Terminal()
    screen = Screen(out)
    screen.show([screen.paint("x" * 79, fg="red"), screen.paint("y" * 80, fg="red")])
    assert out.text() == f"\x1b[2K\x1b[31m{'x' * 79}\x1b[0m\n\x1b[2K{'y' * 79}\n"


def test_progress_on_a_terminal_is_a_block_with_a_line_a_queue() -> None:
    out = Terminal()
    progress = Display(Screen(out), 1000, WEIGHTS, counts(0, 0))
    progress.show(counts(191, 10), 900)
    lines = click.unstyle(out.text()).splitlines()
    assert len(lines) == 5
    assert "  31%   " in lines[0]
    assert "318 of 1 000   30/s" in lines[0]
    assert "weight 6" in lines[1]
    assert " 33%" in lines[1]
    assert "191 waiting" in lines[1]
    assert "3 scheduled, 6 in retry, 15 archived" in lines[4]


def test_progress_in_a_pipe_is_a_plain_line_now_and_then() -> None:
    out = Terminal("ascii", is_terminal=False)
    progress = Display(Screen(out), 1000, WEIGHTS, counts(0, 0))
    for _ in range(9):
        progress.show(counts(191, 10), 900)
    assert out.text() == ""
    progress.show(counts(0, 200), 900, last=True)
    [line] = out.text().splitlines()
    assert "891 of 1 000   89%" in line
    assert "a 33%  b 33%  c 33%" in line
    assert "\x1b" not in line


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_summary_names_what_was_found_otherwise(encoding: str) -> None:
    sample = Sample()
    out = Terminal(encoding, is_terminal=False)
    found = sample.books.expected()
    found[Fate.RETRIED] -= 1
    found[Fate.LOST] += 1
    faults = [f"fault {number}" for number in range(25)]
    print_summary(Screen(out), sample.books, Audit(found, faults), measure(sample.books, sample.runs), {"a": 6, "b": 1})
    text = out.text()
    assert f"  {'failed, retried, done':<38}{2:>10}{1:>10}\n" in text
    assert f"  {'lost':<38}{0:>10}{1:>10}\n" in text
    assert "25 discrepancies:\n  fault 0\n" in text
    assert text.endswith("  fault 19\n  and 5 more\n")
    assert "accounted" not in text


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_summary_of_what_adds_up_says_where_to_go_next(encoding: str) -> None:
    sample = Sample()
    out = Terminal(encoding, is_terminal=False)
    audit = Audit(sample.books.expected(), [])
    print_summary(Screen(out), sample.books, audit, measure(sample.books, sample.runs), {"a": 6, "b": 1})
    text = out.text()
    assert "Every one of 28 tasks is accounted for" in text
    assert "fastq-worker --help" in text
    for name in ("fastq/demo/app.py", "README.md", "ARCHITECTURE.md"):
        assert name in text
        assert (Path(__file__).parents[2] / name).is_file()


def test_numbers_are_grouped_by_three() -> None:
    assert [grouped(number) for number in (0, 999, 1000, 1234567.8)] == ["0", "999", "1 000", "1 234 568"]
