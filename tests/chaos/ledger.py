"""The ledger: every beginning and end of a handler, in a file that owes nothing to Redis.

A record is one write to a file opened for appending, which the kernel keeps whole, and which outlives the death of its
writer. Times are CLOCK_MONOTONIC, which all processes of a machine share, so that they can be compared with faults.
"""

import os
import time
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

# Task id, what, retried, generation of the server, pid, monotonic and Unix nanoseconds.
_RECORD: Final = Struct("<16sBBHIqq")


class What(IntEnum):
    """What a record reports."""

    BEGAN = 0
    RETURNED = 1
    RAISED = 2
    OVERFULL = 3
    """A handler began although every slot of its server had one."""


class Record(NamedTuple):
    """One line of the ledger."""

    task_id: str
    what: What
    retried: int
    generation: int
    pid: int
    at_ns: int
    unix_ns: int


class LedgerWriter:
    """Append records of this process."""

    def __init__(self, path: str, generation: int) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._generation = generation

    def write(self, task_id: str, what: What, retried: int) -> None:
        """Write down what a task did just now."""
        times = time.monotonic_ns(), time.time_ns()
        data = _RECORD.pack(task_id.encode(), what, min(retried, 255), self._generation, os.getpid(), *times)
        written = os.write(self._fd, data)
        assert written == len(data), f"the ledger took {written} bytes of {len(data)}"


def read_ledger(path: Path) -> Iterator[Record]:
    """Yield all records in the order in which they were written."""
    data = path.read_bytes() if path.exists() else b""
    if len(data) % _RECORD.size:
        raise ValueError(f"the ledger has {len(data)} bytes, which is not a multiple of the record size {_RECORD.size}")
    yield from _records(data)


def _records(data: bytes) -> Iterator[Record]:
    for task_id, what, *rest in _RECORD.iter_unpack(data):
        yield Record(task_id.rstrip(b"\0").decode(), What(what), *rest)


class Run(NamedTuple):
    """One run of a task's handler; ``ended_ns`` is None where its process died, or it did not end."""

    task_id: str
    retried: int
    generation: int
    pid: int
    began_ns: int
    ended_ns: int | None = None
    what: What = What.BEGAN

    @property
    def returned(self) -> bool:
        return self.what is What.RETURNED


def runs_of(records: Iterator[Record] | list[Record]) -> dict[str, list[Run]]:
    """Return each task's runs in the order in which they began; ``ValueError`` for an end without a beginning."""
    runs: dict[str, list[Run]] = {}
    for record in records:
        of_task = runs.setdefault(record.task_id, [])
        who = (record.generation, record.pid)
        if record.what is What.BEGAN:
            of_task.append(Run(record.task_id, record.retried, *who, record.at_ns))
        elif record.what is not What.OVERFULL:
            at = next((at for at in reversed(range(len(of_task))) if _is_open(of_task[at], who)), None)
            if at is None:
                raise ValueError(f"the ledger has an end without a beginning: {record}")
            of_task[at] = of_task[at]._replace(ended_ns=record.at_ns, what=record.what)
    return runs


def _is_open(run: Run, who: tuple[int, int]) -> bool:
    return run.ended_ns is None and (run.generation, run.pid) == who


class LedgerTail:
    """Follow a ledger that is being written: which processes of a server run what."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._running: dict[tuple[int, int], int] = {}
        self.began = 0

    def update(self) -> None:
        """Read what has been added."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        data = data[: len(data) // _RECORD.size * _RECORD.size]  # what follows may be under way
        self._read += len(data)
        for record in _records(data):
            who = (record.generation, record.pid)
            if record.what is What.BEGAN:
                self.began += 1
                self._running[who] = self._running.get(who, 0) + 1
            elif record.what is not What.OVERFULL:
                self._running[who] -= 1

    def workers(self, generation: int) -> tuple[list[int], list[int]]:
        """Return the processes of a server that run something now, and all that ever did; dead ones may be among."""
        known = {pid: count for (of, pid), count in self._running.items() if of == generation}
        return [pid for pid, count in known.items() if count > 0], list(known)
