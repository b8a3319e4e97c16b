"""Output that never blocks: a blocked pipe, a stopped terminal or a full disk costs log lines, not heartbeats.

A thread writes. O_NONBLOCK is not used, since it would apply to all processes that share the descriptor, such as the
children.
"""

import io
import logging
import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MAX_WAITING: Final = 1_000_000
"""How many bytes are buffered for stderr at most; further output is dropped, and its lines are counted."""
FINISH_S: Final = 1.0
STEPS: Final = 10

_log = logging.getLogger("fastq.log")


class UnblockedOutput:
    """Lines for a file descriptor, written by a thread, so that the thread that adds them never waits.

    ``dropped`` counts the lines that were dropped, because the buffer was full or the descriptor took no more.
    ``linger_s`` is how long a line waits for more lines, to be written together.
    """

    most_waiting: int
    linger_s = 0.0
    is_told_elsewhere = False
    """Whether another output reports lost lines. If so, it also reports when a loss begins, and losses at the end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.dropped = 0
        self._is_losing = False
        self._changed = threading.Condition()  # reentrant, since a signal handler may write, too
        self._size = 0
        self._is_writing = False
        self._is_finished = False
        self._is_torn = False
        threading.Thread(target=self._hand_on, name="fastq log", daemon=True).start()

    def _grew_to(self, size: int) -> None:
        """Note how many bytes wait now, and wake the thread if none waited before; the caller has the lock."""
        if not self._size:  # otherwise the thread is awake already
            self._changed.notify_all()
        self._size = size

    def finish(self, within_s: float) -> bool:
        """Wait until all lines are written, up to a limit; return whether all are."""
        with self._changed:
            self._is_finished = True
            self._changed.notify_all()
            for _ in range(STEPS):  # a process that was stopped, however long, loses only one step of the limit
                self._changed.wait_for(self._is_through, within_s / STEPS)
            return self._is_through()

    def _is_through(self) -> bool:
        return not self._size and not self._is_writing

    def _hand_on(self) -> None:
        told = 0
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._size or self._is_finished)
                if not self._size:
                    break
                if self.linger_s:
                    self._changed.wait_for(lambda: self._is_finished, self.linger_s)
                self._is_writing = True
                lines, self._size = self._take(), 0
            lost = self._write(lines)
            with self._changed:  # report dropped lines now: another line may never come
                self.dropped += lost
                news, dropped = self.dropped - told, self.dropped
                has_room = self._size <= self.most_waiting // 2  # otherwise the report itself would be dropped
                is_first, self._is_losing = lost and not self._is_losing, lost > 0
            if is_first and self.is_told_elsewhere:
                self._tell_losing()
            if news and not lost and has_room:
                told = dropped
                self._tell_dropped(news)
        if self.is_told_elsewhere and self.dropped > told:
            self._tell_dropped(self.dropped - told)

    def _take(self) -> bytes | memoryview:
        """Take all waiting lines and return them; the next call may overwrite them."""
        raise NotImplementedError

    def _write(self, data: bytes | memoryview) -> int:
        """Write data, however long it takes; return how many lines could not be written."""
        whole = b"\n" + data if self._is_torn else data
        left = memoryview(whole)
        fd = self._descriptor()
        while left:
            try:
                left = left[os.write(fd, left) :]
            except BlockingIOError:  # a process that shares the descriptor has set O_NONBLOCK
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()
            except OSError:  # the reader is gone, or the disk is full
                if written := len(whole) - len(left):
                    self._is_torn = whole[written - 1 : written] != b"\n"
                return bytes(left[-len(data) :]).count(b"\n")
        self._is_torn = False
        return 0

    def _descriptor(self) -> int:
        """Return the descriptor to write to."""
        return self._fd

    def _tell_losing(self) -> None:
        """Report that lines are lost from now on."""

    def _tell_dropped(self, count: int) -> None:
        """Report dropped lines, now that lines can be written again."""
        raise NotImplementedError


class UnblockedStderr(UnblockedOutput, io.TextIOBase):
    """A text stream that replaces stderr, for the log and all other output."""

    encoding = "utf-8"
    errors = "backslashreplace"

    most_waiting = MAX_WAITING

    def __init__(self, fd: int) -> None:
        self._pid = os.getpid()
        self._waiting: list[bytes] = []
        super().__init__(fd)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return whether the output is a terminal."""
        return os.isatty(self._fd)

    def flush(self) -> None:
        """Do nothing: the caller must not wait."""

    def write(self, text: str) -> int:
        """Buffer text that the thread will write, or drop it if the buffer is full."""
        if not isinstance(text, str):  # as any text stream does; click tries bytes to find out
            raise TypeError(f"write takes a str, not {type(text).__name__}")
        data = text.encode(self.encoding, self.errors)
        if os.getpid() != self._pid:  # a forked process has no such thread
            os.write(self._fd, data)
            return len(text)
        with self._changed:
            if self._size + len(data) > self.most_waiting:
                self.dropped += data.count(b"\n")
            else:
                self._waiting.append(data)
                self._grew_to(self._size + len(data))
        return len(text)

    def _take(self) -> bytes:
        lines, self._waiting = self._waiting, []
        return b"".join(lines)

    def _tell_dropped(self, count: int) -> None:
        _log.error("%d lines of this log were dropped here because stderr was blocked", count)


@contextmanager
def unblocked_stderr() -> Iterator[None]:
    """Keep this process from waiting for stderr within the block, whether for log lines or for tracebacks.

    At the end, the thread gets one second for the remaining output.
    """
    before = sys.stderr
    if isinstance(before, UnblockedStderr):
        yield
        return
    try:
        stream = UnblockedStderr(before.fileno())
    except (AttributeError, OSError, ValueError):  # stderr is missing or closed, or, as in tests, not a file
        yield
        return
    sys.stderr = stream
    try:
        yield
    finally:
        if stream.finish(FINISH_S):
            sys.stderr = before
