"""Start Python programs as forks of a process that has imported them already: most of a start's CPU is imports.

The fork has a directory, an environment, a search path and streams of its own before the program's first line runs, and
nothing open but those. ``python -m tests.starting MODULE…`` is the process that is forked; it has one thread.
"""

import atexit
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
MOST_BYTES: Final = 1 << 18
COMMAND: Final = ("fastq.cli.main", "fastq.cli.parameters", "fastq.cli.run")
"""What has been imported before a fork becomes the command ``fastq``."""
NUMBER: Final = 4


class Forked:
    """A program that was started by a fork; as far as tests use it, like a ``subprocess.Popen``."""

    def __init__(self, pid: int, ends: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ends = ends

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it has ended, or minus the signal that ended it."""
        if self.returncode is None:
            if not select.select([self._ends], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = _read_number(self._ends)
            os.close(self._ends)
        return self.returncode

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, signum: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended, and its starter has waited for it
                os.kill(self.pid, signum)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(SIGKILL)


class Starter:
    """A process that has imported modules, and forks itself for each program."""

    def __init__(self, modules: Sequence[str], settings: Mapping[str, str]) -> None:
        self._control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", __name__, str(its.fileno()), *modules]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with its:
            # Streams that were made for a pipe do not seek, whatever they lead to in a fork.
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**environment, **settings},
                pass_fds=[its.fileno()],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        atexit.register(self.close)

    def start(self, order: Mapping[str, Any], streams: Sequence[int]) -> Forked:
        """Start the program of an order."""
        ends, its_end = os.pipe()
        socket.send_fds(self._control, [json.dumps(order).encode()], [*streams, its_end])
        os.close(its_end)
        try:
            return Forked(_read_number(ends), ends)
        except EOFError:
            raise AssertionError(f"cannot be forked: {self._process.communicate()[0].decode()}") from None

    def close(self) -> None:
        """End it; it is not asked for more."""
        self._control.close()
        self._process.communicate()


@lru_cache
def _starter(modules: Sequence[str], settings: Sequence[tuple[str, str]]) -> Starter:
    return Starter(modules, dict(settings))


def can_be_forked(directory: Path) -> bool:
    """Return whether a program in a directory needs nothing that only the start of an interpreter does."""
    return hasattr(os, "pidfd_open") and not (directory / "sitecustomize.py").exists()


def start(
    words: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    streams: Sequence[int],
    modules: Sequence[str],
) -> Forked:
    """Start ``python -m WORDS`` with stdout, stderr and perhaps stdin in a fork that has ``modules``."""
    names = {name for name in environment if name.startswith("PYTHON")} - {"PYTHONPATH"}
    settings = tuple((name, environment[name]) for name in sorted(names))  # the interpreter's own, read at its start
    order = {"words": words, "directory": str(directory), "environment": dict(environment)}
    return _starter(tuple(modules), settings).start(order, streams)


def _read_number(fd: int) -> int:
    data = os.read(fd, NUMBER)
    if not data:
        raise EOFError
    return int.from_bytes(data, signed=True)


def _write_number(fd: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(fd, number.to_bytes(NUMBER, signed=True))


# The process that is forked -----------------------------------------------------------------------------------------


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork for each order and tell how each fork ends; return the order in a fork, None where no more will come."""
    running: dict[int, tuple[int, int]] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd != control.fileno():
                poll.unregister(fd)
                os.close(fd)
                pid, reply = running.pop(fd)
                _write_number(reply, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(reply)
                continue
            data, fds, *_ = socket.recv_fds(control, MOST_BYTES, 4)
            if not data:
                return None
            *streams, reply = fds
            assert threading.active_count() == 1
            pid = os.fork()
            if not pid:
                control.detach()
                order: dict[str, Any] = json.loads(data)
                become(order, streams)
                return order
            for stream in streams:
                os.close(stream)
            _write_number(reply, pid)
            watch = os.pidfd_open(pid)
            running[watch] = pid, reply
            poll.register(watch, select.POLLIN)


def become(order: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Take on what a new process would have been given."""
    stdout, stderr, *others = streams
    for number, stream in enumerate((others[0] if others else os.open(os.devnull, os.O_RDONLY), stdout, stderr)):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:1] = [order["directory"], *paths]
    sys.argv[:] = order["words"]


def main(control_fd: str, *modules: str) -> None:
    for module in modules:
        import_module(module)
    order = serve(socket.socket(fileno=int(control_fd)))
    if order is not None:
        name = order["words"][0]
        sys.modules.pop(name, None)  # as after ``python -m``, which knows it as __main__
        runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
