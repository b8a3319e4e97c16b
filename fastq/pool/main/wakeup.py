"""The wake-up of the main process: a descriptor on which it sleeps and to which children write.

It is an eventfd on Linux, and a pipe elsewhere.
"""

import contextlib
import os
from dataclasses import dataclass


@dataclass(slots=True)
class Wakeup:
    """The two ends of a wake-up; an eventfd has one descriptor for both."""

    read_fd: int
    write_fd: int

    @classmethod
    def create(cls) -> "Wakeup":
        """Make a wake-up; neither end blocks or is inherited."""
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
