"""Wake-ups of the main process: a descriptor that children write and it, asleep in ``poll``, finds readable.

An eventfd on Linux, a pipe elsewhere. ``Timer`` is a doorbell that rings a little later by itself, so that a batch of
results costs one wake-up even if the child that armed it is by then deep in a handler that holds the GIL; it is a
timerfd, and where there is none (``fd`` -1) the main process' tick takes its place.
"""

import contextlib
import ctypes
import os
import sys
from dataclasses import dataclass

__all__ = ["Wakeup", "new_timer_fd"]

_CLOCK_MONOTONIC = 1


@dataclass(slots=True)
class Wakeup:
    """The two ends of a wake-up; an eventfd has the same descriptor at both."""

    read_fd: int
    write_fd: int

    @classmethod
    def create(cls) -> "Wakeup":
        """Make a new one; both ends do not block and are not inherited."""
        if hasattr(os, "eventfd"):
            with contextlib.suppress(OSError):  # the seccomp profile of a container may refuse it
                fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                return cls(fd, fd)
        read_fd, write_fd = os.pipe()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)
        return cls(read_fd, write_fd)

    def close(self) -> None:
        """Close both ends."""
        for fd in {self.read_fd, self.write_fd} - {-1}:
            os.close(fd)
        self.read_fd = self.write_fd = -1


def new_timer_fd() -> int:
    """Return a disarmed timerfd that does not block, or -1 where the system has none."""
    if not sys.platform.startswith("linux"):
        return -1
    # os.timerfd_create exists from Python 3.13 on only.
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
    return max(fd, -1)
