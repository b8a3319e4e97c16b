"""Wake-ups of the main process: a descriptor that children write and it, asleep in ``poll``, finds readable.

An eventfd on Linux, a pipe elsewhere.
"""

import contextlib
import os
from dataclasses import dataclass

__all__ = ["Wakeup"]


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
