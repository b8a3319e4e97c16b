"""The task log: a line of JSON for each attempt, in a file or on stdout.

The line is added once Redis has the end, or once the lease is known to be lost.

A thread does the writing, so the main process never waits for a disk.
"""

import os
import time
from contextlib import suppress
from logging import getLogger
from typing import Final

from fastq.common.clock import Clock
from fastq.log.output import FINISH_S, UnblockedOutput
from fastq.pool.main.protocol import PoolStartError
from fastq.server.inflight._task_log import TaskLines
from fastq.server.inflight.tasks import InFlightTask

STDOUT: Final = "-"
LEASE_LOST: Final = "lease_lost"
"""The end of an attempt whose lease was lost, so that another server decides the fate of the task."""
_OPEN: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
"""O_NONBLOCK, because a FIFO without a reader would otherwise block the start."""

_log = getLogger("fastq.log")


class TaskLog:
    """The lines of a server's attempts; no lines are made while the log is not open."""

    def __init__(self, path: str | None, server: str, clock: Clock) -> None:
        self._path = path
        self._server = server
        self._clock = clock
        self._output: _Output | None = None
        self.is_open = False

    @property
    def dropped(self) -> int:
        """Return how many lines were dropped, because the file took no more."""
        return 0 if self._output is None else self._output.dropped

    def open(self) -> None:
        """Begin to write, if a file is set; ``PoolStartError`` if it cannot be opened."""
        if self._path is None:
            return
        try:
            self._output = _Output(self._path, self._server)
        except OSError as error:
            why = f"the file cannot be written: {error.strerror or error}"
            raise PoolStartError(f"task_log={self._path!r}: {why}", is_misuse=True) from error
        self.is_open = True

    def add(self, tasks: list[InFlightTask], end: str | None = None) -> None:
        """Add the lines of tasks that have ended; ``end``, if given, replaces the names of their dispositions."""
        if self._output is not None:
            now_ns = self._clock.unix_ns()
            seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ns // 1_000_000_000))
            time_text = f"{seconds}.{now_ns // 1000 % 1_000_000:06d}Z"
            self._output.add(tasks, end, time_text)

    def close(self) -> None:
        """Wait up to a second until all is written."""
        if self._output is not None and not self._output.finish(FINISH_S):
            _log.error("the last lines of the task log were lost because %s took no more", self._path)


class _Output(UnblockedOutput):
    """A file that is opened again when it was renamed or deleted, as logrotate does; or stdout."""

    most_waiting = 8_000_000
    is_told_elsewhere = True
    linger_s = 0.05  # waking the thread for a write takes as long as hundreds of lines

    def __init__(self, path: str, server: str) -> None:
        self._path = path
        self._lines = TaskLines(server)
        super().__init__(1 if path == STDOUT else os.open(path, _OPEN, 0o644))

    def add(self, tasks: list[InFlightTask], end: str | None, time_text: str) -> None:
        """Buffer the lines of tasks, or drop the lines for which the buffer has no room."""
        with self._changed:
            dropped = self._lines.add(tasks, end, time_text, self.most_waiting)
            self.dropped += dropped
            is_first = dropped and not self._is_losing
            self._is_losing = self._is_losing or dropped > 0
            self._grew_to(len(self._lines))
        if is_first:
            self._tell_losing()

    def _take(self) -> memoryview:
        return self._lines.take()

    def _descriptor(self) -> int:
        if self._path != STDOUT and not self._is_same():
            with suppress(OSError):  # if the directory is gone, too, the old file is better than none
                self._fd, old = os.open(self._path, _OPEN, 0o644), self._fd
                os.close(old)
        return self._fd

    def _is_same(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except OSError:
            return False

    def _tell_losing(self) -> None:
        text = "lines of the task log are lost because %s takes no more; their number follows once it does"
        _log.error(text, self._path)

    def _tell_dropped(self, count: int) -> None:
        _log.error("%d lines of the task log were dropped because %s took no more", count, self._path)
