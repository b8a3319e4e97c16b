"""asynq's own command, whose binary $FASTQ_ASYNQ_CLI names, and what it prints, read back.

Its sources are a module of their own that module proxies do not have; README.md says how to build it.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import PATIENCE_S

BINARY = os.environ.get("FASTQ_ASYNQ_CLI", "")
WHY_NOT = "$FASTQ_ASYNQ_CLI names no binary of asynq's command, which no module proxy has"
LIMIT_S = PATIENCE_S


@dataclass(frozen=True)
class Asynq:
    """The command, on one Redis."""

    binary: str
    port: int
    home: Path

    def __call__(self, *words: str) -> str:
        """Run it, and return what it wrote."""
        command = [self.binary, "--uri", f"127.0.0.1:{self.port}", *words]
        env = {"HOME": str(self.home), "TZ": "UTC"}
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=LIMIT_S)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout


def tables(text: str) -> list[list[dict[str, str]]]:
    """Return the tables in a text: of each the rows, of these the cells by the heading."""
    lines = text.splitlines()
    return [list(_rows(lines, at)) for at, line in enumerate(lines) if re.fullmatch(r"(-+ +)+", line)]


def _rows(lines: list[str], rule: int) -> Iterator[dict[str, str]]:
    starts = [found.start() for found in re.finditer("-+", lines[rule])]
    ends = [*starts[1:], None]
    names = [lines[rule - 1][start:end].strip() for start, end in zip(starts, ends, strict=True)]
    for line in lines[rule + 1 :]:
        if not line.strip():
            return
        yield {name: line[start:end].strip() for name, start, end in zip(names, starts, ends, strict=True)}


def details(text: str) -> dict[str, str]:
    """Return the lines ``name: value`` of a text."""
    return {name: value.strip() for name, value in re.findall(r"^([A-Z][\w ]*):\s(.*)$", text, re.MULTILINE)}
