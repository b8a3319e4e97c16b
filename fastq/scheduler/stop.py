"""Wait for the first signal to stop, in the main thread."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """A stop flag to wait for. It is a pipe without a lock: the code that a signal interrupts may hold any lock."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd

    def tell(self) -> None:
        """Set the flag, so that ``wait`` returns."""
        os.write(self._write_fd, b".")

    def wait(self) -> None:
        """Return once the flag is set."""
        os.read(self._read_fd, 1)


@contextmanager
def told_to_stop() -> Iterator[Stop]:
    """Yield a ``Stop`` that SIGTERM and SIGINT set. After the first signal, both have their previous effect again."""
    read_fd, write_fd = os.pipe()
    stop = Stop(read_fd, write_fd)
    before = {signum: signal.getsignal(signum) for signum in _SIGNALS}

    def restore() -> None:
        for signum, handler in before.items():
            signal.signal(signum, handler)

    def tell(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        restore()
        stop.tell()

    try:
        for signum in _SIGNALS:
            signal.signal(signum, tell)
        yield stop
    finally:
        restore()
        os.close(read_fd)
        os.close(write_fd)
