"""Run the demo as a command, with a temporary directory of its own, by which all that belongs to it is known."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from redis import Redis, RedisError

from tests.starting import ROOT, Forked, can_be_forked, start
from tests.waiting import wait_until

_Process: TypeAlias = subprocess.Popen[bytes] | Forked

PROC = Path("/proc")
LOW_PAUSED = "asynq:{demo:low}:paused"
LIMIT_S = 600.0


class DemoProcess:
    """A running demo; its stdout and stderr are one file, unless it has a terminal."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        terminal: int = -1,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.directory = directory
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self._output = directory / "output"
        set_here = {"TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
        words, environment = ["fastq.cli.demo", *arguments], {**os.environ, **set_here, **environment}
        with self._output.open("wb") as output:
            self.process = self._begin(words, environment, output.fileno() if terminal < 0 else terminal)

    def _begin(self, words: Sequence[str], environment: Mapping[str, str], output: int) -> _Process:
        if can_be_forked(self.directory) and not os.isatty(output):
            return start(words, self.directory, environment, (output, output), ["fastq.cli.demo"])
        program = [sys.executable, "-m", *words]
        stdin = subprocess.DEVNULL
        return subprocess.Popen(program, cwd=self.directory, env=environment, stdin=stdin, stdout=output, stderr=output)

    def output(self) -> str:
        return self._output.read_text("utf-8")

    def wait(self) -> int:
        return self.process.wait(LIMIT_S)

    def wait_for(self, text: str) -> None:
        """Wait until it has written something."""

        def is_written() -> bool:
            has_ended = self.process.poll() is not None  # before the look: its last words are there then
            is_there = text in self.output()
            assert is_there or not has_ended, self.output()
            return is_there

        wait_until(is_written, LIMIT_S)

    def wait_for_file(self, pattern: str) -> None:
        """Wait until there is a file with something in it, or a socket or directory."""

        def is_there() -> bool:
            assert self.process.poll() is None, self.output()
            found = list(self.temporary.glob(pattern))
            return any(path.stat().st_size or path.is_socket() for path in found)

        wait_until(is_there, LIMIT_S, interval_s=0.001)

    def keep_working(self) -> None:
        """Pause a queue of its private Redis, so that it does not end before it is told to."""

        def is_paused() -> bool:
            assert self.process.poll() is None, self.output()
            for socket in self.temporary.glob("fastq-*/redis.sock"):
                with suppress(RedisError), Redis(unix_socket_path=str(socket)) as db:
                    return bool(db.set(LOW_PAUSED, 1))
            return False

        wait_until(is_paused, LIMIT_S)

    def members(self) -> dict[int, str]:
        """Return the command lines of all processes that were started by it, however indirectly."""
        mark = str(self.directory).encode()
        found = {}
        for entry in PROC.iterdir():
            if entry.name.isdigit() and (command := _command_if_marked(entry, mark)):
                found[int(entry.name)] = command
        return found

    def worker_pid(self) -> int:
        """Return the process of fastq-worker itself."""
        [pid] = (pid for pid, command in self.members().items() if "fastq.cli.worker" in command)
        return pid

    def found(self) -> dict[str, tuple[int, int]]:
        """Return the table of the summary: what was expected and found of each fate."""
        rows = re.findall(r"^  (\S.*?)  +(\d[\d ]*?)  +(\d[\d ]*)$", self.output(), re.MULTILINE)
        return {name: (_number(expected), _number(found)) for name, expected, found in rows}


def _number(text: str) -> int:
    return int(text.replace(" ", ""))


def _command_if_marked(entry: Path, mark: bytes) -> str:
    """Look at environment, command and working directory: redis-server writes its title over its environment."""
    try:
        command = (entry / "cmdline").read_bytes()
        where = os.fsencode(os.readlink(entry / "cwd"))
        return (
            command.replace(b"\0", b" ").decode() if mark in (entry / "environ").read_bytes() + command + where else ""
        )
    except OSError:  # gone, or another user's
        return ""


@contextmanager
def running_demo(
    *arguments: str, terminal: int = -1, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[DemoProcess]:
    """Start a demo; kill all that is left of it at the end."""
    # Not tmp_path: the path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="fastq-test-", ignore_cleanup_errors=True) as directory:
        demo = DemoProcess(Path(directory), *arguments, terminal=terminal, environment=environment)
        try:
            yield demo
        finally:
            if demo.process.poll() is None:
                demo.process.kill()
                demo.process.wait()
            for pid in demo.members() if PROC.exists() else ():
                with suppress(ProcessLookupError):  # it has ended since the look
                    os.kill(pid, signal.SIGKILL)
