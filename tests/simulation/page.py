"""The page from which a process under ``clock.so`` reads its clocks and its randomness."""

import mmap
import time
from pathlib import Path


def real_s() -> float:
    """Return the time of the one clock that is not simulated."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


class Page:
    """A mapped page; times are nanoseconds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), mmap.PAGESIZE)).cast("Q")

    def switch(self, is_on: bool) -> None:
        """Let the clocks be simulated, or real again."""
        self._words[0] = is_on

    def set(self, wall_ns: int, monotonic_ns: int) -> None:
        self._words[1], self._words[2] = wall_ns, monotonic_ns

    def seed(self, seed: int) -> None:
        self._words[3] = seed
