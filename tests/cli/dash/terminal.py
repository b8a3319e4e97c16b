"""Runs a command in a terminal of its own, presses keys there, and reads what it wrote."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.e2e.harness import ROOT
from tests.waiting import PATIENCE_S

LIMIT_S = PATIENCE_S


class Terminal:
    """The other end of the terminal."""

    def __init__(self, leader: int, follower: int, process: "subprocess.Popen[bytes]") -> None:
        self._leader, self._follower = leader, follower
        self._process = process
        self.before: list[Any] = []
        self.text = ""

    @property
    def attributes(self) -> list[Any]:
        """Return how the terminal is set."""
        return termios.tcgetattr(self._follower)

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._leader, keys.encode())

    def sees(self, *parts: str) -> None:
        """Read until all of this was written since the last call."""
        begun = len(self.text)
        self._read(lambda: all(part in self.text[begun:] for part in parts), repr(parts))

    def ended(self) -> int:
        """Read until the command has ended, and return its exit code."""
        self._read(lambda: self._process.poll() is not None, "an end")
        return self._process.wait()

    def _read(self, is_done: Any, what: str) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not is_done():
            assert time.monotonic() < deadline_s, f"no {what} within {LIMIT_S:g} s:\n{self.text}"
            if select.select([self._leader], [], [], 0.05)[0]:
                self.text += os.read(self._leader, 65_536).decode(errors="replace")


@contextmanager
def terminal(*words: str, env: Mapping[str, str]) -> Iterator[Terminal]:
    """Run ``python -m fastq`` with these words in a terminal of 80x24."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(follower)
    command = [sys.executable, "-W", "error", "-m", "fastq", *words]
    environment = {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
    process = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env={**environment, **env}, start_new_session=True
    )
    try:
        seen = Terminal(leader, follower, process)
        seen.before = before
        yield seen
    finally:
        process.kill()
        process.wait()
        os.close(leader)
        os.close(follower)
