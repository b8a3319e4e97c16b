"""The handlers' own account of what ran: a file to which every child appends when it begins and ends a task.

The ledger does not depend on Redis, so that the two can be compared. Each record is one write to a file opened for
appending, so the kernel does not mix it with the records of other processes.
"""

import os
import time
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from fastq.errors import RevokeTask
from fastq.mux import Handler
from fastq.running import RunningTask

LEDGER_VARIABLE: Final = "FASTQ_DEMO_LEDGER"
"""The environment variable with the path of the ledger; without it nothing is recorded."""

# Task id, how often the task had been retried, the ending (0: it begins), Unix nanoseconds.
_RECORD: Final = Struct("<36sBBxxQ")


class Ending(IntEnum):
    """The end of a run, as its handler saw it. A run whose process died has no end."""

    RETURNED = 1
    RAISED = 2
    REVOKED = 3


class LedgerWriter:
    """The writer of the ledger: a record at the beginning and the end of each run.

    ``middleware`` is for ``ServeMux.use``.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def middleware(self, next: Handler[RunningTask]) -> Handler[RunningTask]:
        """Wrap a handler."""

        def run(task: RunningTask) -> object:
            self._write(task, 0)
            try:
                result = next(task)
            except BaseException as error:
                self._write(task, Ending.REVOKED if isinstance(error, RevokeTask) else Ending.RAISED)
                raise
            self._write(task, Ending.RETURNED)
            return result

        return run

    def _write(self, task: RunningTask, ending: int) -> None:
        os.write(self._fd, _RECORD.pack(task.id.encode(), task.retried, ending, time.time_ns()))


class Run(NamedTuple):
    """One run of a task: its earlier retries, and its begin and end in Unix ns (0: it did not end)."""

    retried: int
    begun_ns: int
    ended_ns: int
    ending: Ending | None


def read_ledger(path: Path) -> dict[str, list[Run]]:
    """Return the runs of each task id in the order in which they began; ``ValueError`` for a file that is damaged."""
    runs: dict[str, list[Run]] = {}
    for task_id, retried, ending, at_ns in _records(path):
        of_task = runs.setdefault(task_id, [])
        if not ending:
            of_task.append(Run(retried, at_ns, 0, None))
            continue
        # Two runs of a task at the same time would be a defect that the audit must see, so find the run that ends here.
        open_at = next((at for at, run in enumerate(of_task) if run.retried == retried and run.ending is None), None)
        if open_at is None:
            raise ValueError(f"the ledger has an end without a beginning for task {task_id}")
        of_task[open_at] = of_task[open_at]._replace(ended_ns=at_ns, ending=Ending(ending))
    return runs


def _records(path: Path) -> Iterator[tuple[str, int, int, int]]:
    data = path.read_bytes() if path.exists() else b""
    if len(data) % _RECORD.size:
        raise ValueError(f"the ledger has {len(data)} bytes, which is not a multiple of the record size {_RECORD.size}")
    for task_id, retried, ending, at_ns in _RECORD.iter_unpack(data):
        yield task_id.rstrip(b"\0").decode(), retried, ending, at_ns


class LedgerTail:
    """A reader of a ledger that is still being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def names(self, task_id: str) -> bool:
        """Return whether a task was recorded since the last call. Always pass the same task, since records are read
        once.
        """
        if not self._path.exists():
            return False
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        # Skip whole records only: the last one may be incomplete.
        self._read += len(data) // _RECORD.size * _RECORD.size
        return task_id.encode() in data
