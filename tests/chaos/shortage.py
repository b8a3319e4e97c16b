"""What a process can be short of without being struck itself: descriptors, and a reader of what it writes."""

import contextlib
import os
import resource
import threading
from pathlib import Path
from typing import Final

_CHUNK: Final = 1 << 16


class Descriptors:
    """The limit that a process had."""

    def __init__(self, pid: int, limits: tuple[int, int]) -> None:
        self._pid = pid
        self._limits = limits

    def give_back(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self._pid, resource.RLIMIT_NOFILE, self._limits)


def take_descriptors(pid: int) -> Descriptors | None:
    """Let a process open nothing more, by its soft limit; what is open stays. None if it is gone."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        free = next(number for number in range(len(taken) + 1) if number not in taken)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, limits[1]))
        return Descriptors(pid, limits)
    return None


class LogPipe:
    """A pipe that a thread copies into a file, unless it is told to stand still."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        self._reads = threading.Event()
        self._reads.set()
        self._holds = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="chaos log")
        self._path.touch()
        self._thread.start()

    def stand_still(self) -> None:
        """Read no more, and fill the pipe, so that whoever writes next has to wait."""
        self._reads.clear()
        # A description of its own: the servers' one is to go on blocking.
        filler = os.open(f"/proc/self/fd/{self._read_fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _fill(filler)  # the thread may take what is there, once
            self._holds.wait()
            _fill(filler)
        finally:
            os.close(filler)

    def go_on(self) -> None:
        """Read again."""
        self._holds.clear()
        self._reads.set()

    def close(self) -> None:
        """Wait until all is copied; the processes that write must have ended."""
        self.go_on()
        self._thread.join()

    def _copy(self) -> None:
        with self._path.open("wb", buffering=0) as file:
            while data := os.read(self._read_fd, _CHUNK):
                if not self._reads.is_set():
                    self._holds.set()
                    self._reads.wait()
                file.write(data)
        self._holds.set()
        os.close(self._read_fd)


def _fill(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(fd, b"\n" * 512)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(fd, b"\n")
