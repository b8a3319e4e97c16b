"""The tutorial and the README's first lines are followed to the letter: files, commands, and what they print."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Block, blocks_of
from tests.waiting import wait_until

STEPS = sorted((ROOT / "docs" / "tutorial").glob("[1-9]-*.md"))
SERVICES = ("fastq-worker", "fastq scheduler")
# What differs from run to run.
CHANGING = [
    (r"fastq: pid=\d+ \S+ \S+ ", ""),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r"fastq [\d.]+(rc\d+)? on Python [\d.]+", "fastq X on Python X"),
    (r"Python [\d.]+", "Python X"),
    (r"(Redis|Valkey) [\d.]+ at \S+;", "SERVER;"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),  # before spans: it may have a part like 302d
    (r"\b\d+(\.\d+)? ?(ms|s|m|h|d)\b( \d+(s|m|h)\b)?", "SPAN"),
    (r" on \S+:\d+:", " on HOST:"),
    (r'File ".*/', 'File "'),
    (r"now\b|\bSPAN ago", "SPAN"),
    (r"Traceback of attempt \d", "Traceback of attempt N"),
    (r"[ ─-]{2,}", " "),
    (r" +$", ""),
]


def steady(text: str) -> str:
    for pattern, replacement in CHANGING:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text.strip()


def expect(read: Callable[[], str], fits: Callable[[str], bool]) -> None:
    """Wait until what is read fits, and show it if it never does."""
    last = ""

    def is_fit() -> bool:
        nonlocal last
        last = read()
        return fits(last)

    with suppress(AssertionError):
        wait_until(is_fit)
    assert fits(last), last


class Reader:
    """A reader of the tutorial: a directory, an environment, and the services that were started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("FASTQ_", "PYTEST_"))
        }
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment["PYTHONPATH"] = str(ROOT)
        self.services: dict[str, subprocess.Popen[bytes]] = {}

    def follow(self, block: Block) -> None:
        if found := re.match(r"# (\w+\.py)\n", block.code):
            (self.directory / found[1]).write_text(block.code)
        elif block.language == "text":
            wanted = [steady(line) for line in block.code.splitlines()]
            expect(self.log, lambda log: all(line in steady(log) for line in wanted))
        else:
            for line, printed in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.code, re.MULTILINE):
                self.type(line.replace("/tmp/fastq-tutorial", str(self.directory / "data")), printed)

    def type(self, line: str, printed: str) -> None:
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self.environment[name] = value
        elif line.startswith(SERVICES):
            self.start(line)
        elif line.startswith(
            ("fastq task ls", "fastq task inspect", "fastq lane ls")
        ):  # what it shows may take a moment to come about
            expect(lambda: self.run(line), lambda seen: steady(seen) == steady(printed))
        else:
            assert steady(self.run(line)) == steady(printed)

    def run(self, line: str) -> str:
        command = ["bash", "-c", line]
        done = subprocess.run(command, cwd=self.directory, env=self.environment, capture_output=True, text=True)
        return done.stdout + done.stderr

    def start(self, line: str) -> None:
        name = line.split()[0]
        if name in self.services:
            end(self.services.pop(name))
        log = self.directory / f"{len(list(self.directory.glob('*.log')))}.log"
        with log.open("wb") as output:
            self.services[name] = subprocess.Popen(
                line.split(), cwd=self.directory, env=self.environment, stdout=output, stderr=subprocess.STDOUT
            )
        expect(log.read_text, lambda text: "ready:" in text)

    def log(self) -> str:
        return "".join(log.read_text() for log in sorted(self.directory.glob("*.log")))


@contextmanager
def reader(directory: Path) -> Iterator[Reader]:
    one = Reader(directory)
    try:
        yield one
    finally:
        for service in one.services.values():
            end(service)


def end(service: subprocess.Popen[bytes]) -> None:
    service.terminate()
    service.wait(60)


@pytest.mark.slow
def test_the_tutorial_works_by_the_letter(tmp_path: Path) -> None:
    assert len(STEPS) == 6
    with reader(tmp_path) as one:
        for page in STEPS:
            for block in blocks_of(page):
                one.follow(block)


def test_the_first_lines_of_the_readme_print_the_result(tmp_path: Path) -> None:
    code, console = [block.code for block in blocks_of(ROOT / "README.md") if block.language in ("python", "")][:2]
    (tmp_path / "tasks.py").write_text(code)
    command, printed = re.fullmatch(r"\$ (.*)\n((?s:.*))", console).groups()  # type: ignore[union-attr]  # or it fails
    one = Reader(tmp_path)
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=one.environment, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr
