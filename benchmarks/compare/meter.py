"""Counts handled tasks in a file mapped into memory, which the harness reads from outside; has the tasks, too.

Every thread of every process has a slot of its own, so that counting takes one addition and no lock, and asks nothing
of Redis. Only the standard library is needed here: this runs inside the contenders' workers.
"""

import array
import asyncio
import fcntl
import functools
import mmap
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PAYLOAD: Final = "0123456789" * 10
"""What every task carries: 100 bytes, as text, since some libraries send JSON."""

VARIABLE: Final = "COMPARE_METER"
SLOTS: Final = 1 << 16
WORDS: Final = 8  # a slot is a cache line of 64-bit words: count, begin, process
COUNT, BEGAN_NS, PROCESS = range(3)
CPU_S: Final[Mapping[str, float]] = {"short": 0.0002, "ms": 0.001, "at": 0.001}
WAIT_S: Final = 0.01
TRACKED_S: Final = 0.2
"""How long a task takes whose runs are written down one by one."""


class AskedForError(Exception):
    """Raised by tasks that are to fail."""


class Meter:
    """The mapped file. Word 0 of it is the number of slots that are taken; slot 0 has nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("r+b") as file:
            self.words = memoryview(mmap.mmap(file.fileno(), SLOTS * WORDS * 8)).cast("Q")

    @classmethod
    def create(cls, path: Path) -> "Meter":
        """Make the file anew, with nothing counted."""
        with path.open("wb") as file:
            file.truncate(SLOTS * WORDS * 8)
        return cls(path)

    @property
    def late_path(self) -> Path:
        """Return the file with the delays of tasks that began late, as 64-bit words in no order."""
        return self._path.with_suffix(".late")

    def late_ms(self) -> list[float]:
        """Return the delays that were recorded so far, in milliseconds."""
        words = array.array("q")
        if self.late_path.exists():
            words.frombytes(self.late_path.read_bytes())
        return [word / 1e6 for word in words]

    @property
    def ledger_path(self) -> Path:
        """Return the file with a line for each begin and end of a tracked task."""
        return self._path.with_suffix(".ledger")

    def claim(self) -> int:
        """Take the next slot for this thread and return the index of its first word."""
        # Opened anew: a descriptor inherited over a fork would share its parent's lock.
        with self._path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            number = self.words[0] + 1
            if number >= SLOTS:
                raise RuntimeError(f"no more than {SLOTS - 1} threads can be counted")
            self.words[0] = number
        self.words[number * WORDS + PROCESS] = os.getpid()
        return number * WORDS

    def count(self) -> int:
        """Return how many tasks have been handled, by all."""
        return sum(self._column(COUNT))

    def last_began_ns(self) -> int:
        """Return when the latest task began of those that tell, by the monotonic clock."""
        return max(self._column(BEGAN_NS), default=0)

    def processes(self) -> int:
        """Return how many processes have handled a task."""
        return len(set(self._column(PROCESS)))

    def _column(self, word: int) -> list[int]:
        return self.words[WORDS + word : (self.words[0] + 1) * WORDS : WORDS].tolist()


class _Slot(threading.local):
    """The thread's place in the file."""

    def __init__(self, meter: Meter) -> None:
        self.at = meter.claim()


class Counter:
    """Count on behalf of this thread, and of any that a fork makes of it."""

    def __init__(self) -> None:
        self._meter = Meter(Path(os.environ[VARIABLE]))
        self.words = self._meter.words
        self._slot = _Slot(self._meter)
        self._late = os.open(self._meter.late_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._ledger = os.open(self._meter.ledger_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._slot = _Slot(self._meter)

    def add(self, count: int = 1) -> None:
        """Count tasks as handled."""
        self.words[self._slot.at] += count

    def note_delay(self, nanoseconds: int) -> None:
        """Record how late a task began."""
        os.write(self._late, nanoseconds.to_bytes(8, "little", signed=True))

    def write(self, what: str, id: str) -> None:
        """Write down that a tracked task began or ended, where and when."""
        os.write(self._ledger, f"{what} {id} {os.getpid()} {time.monotonic_ns()}\n".encode())

    def stamp(self) -> None:
        """Record when a task began, and count it."""
        now_ns = time.monotonic_ns()
        self.words[self._slot.at + BEGAN_NS] = now_ns
        self.words[self._slot.at] += 1


@functools.cache
def counter() -> Counter:
    """Return the counter of this process, in the file that the harness named in the environment."""
    return Counter()


def run(kind: str) -> str | None:
    """Do a task and return its result.

    ``noop`` does nothing; ``short`` and ``ms`` use 0.2 and 1 ms of this thread's CPU time; ``wait`` sleeps for 10 ms;
    ``fail`` raises; ``keep`` returns 100 bytes; ``when`` records when it began, and ``at:NS``, which is ``ms``
    otherwise, by how much that was later than NS on the monotonic clock; ``track:ID`` takes 0.2 s and is written down.
    """
    if kind == "noop":
        counter().add()
        return None
    name, _, rest = kind.partition(":")
    if name == "when":
        counter().stamp()
        return None
    if name == "at":
        counter().note_delay(time.monotonic_ns() - int(rest))
    elif name == "wait":
        time.sleep(WAIT_S)
    elif name == "track":
        counter().write("began", rest)
        time.sleep(TRACKED_S)
        counter().write("ended", rest)
    _spin(CPU_S.get(name, 0.0))
    counter().add()
    if name == "fail":
        raise AskedForError("as asked for")
    return PAYLOAD if name == "keep" else None


async def run_async(kind: str) -> str | None:
    """Do as ``run``, but let other coroutines run while it waits."""
    name, _, rest = kind.partition(":")
    if name == "track":
        counter().write("began", rest)
        await asyncio.sleep(TRACKED_S)
        counter().write("ended", rest)
    elif name == "wait":
        await asyncio.sleep(WAIT_S)
    else:
        return run(kind)
    counter().add()
    return None


def _spin(seconds: float) -> None:
    end_s = time.thread_time() + seconds
    while seconds and time.thread_time() < end_s:
        pass
