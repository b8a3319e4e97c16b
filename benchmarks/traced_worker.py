"""``fastq-worker`` with a clock at places of its main process; the stamps are written down when it ends.

``python -m benchmarks.traced_worker STAMPS ARGUMENT...``; a line of STAMPS is a name and unix nanoseconds.
"""

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from fastq.broker.transport.line import Line
from fastq.cli.worker import main
from fastq.pool.main.pool import ProcessPool
from fastq.server.actors.fetcher import Fetcher
from fastq.server.inflight.processor import Processor

STAGES: Final = {
    "woken": "woken",
    "asks for tasks": "asks",
    "has sent that": "has asked",
    "has the task": "answered",
    "the task is in the ring": "in the ring",
    "the task has ended": "ended",
    "writes its end": "asks",
    "the end is written": "answered",
}
"""The stages of a task in their order, and the stamp of each."""


class Stamps:
    """Note when functions are called and have returned."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, name: str) -> None:
        """Note that something has happened."""
        self.lines.append(f"{name}\t{time.time_ns()}\n")

    def put(self, owner: type, function: str, before: str = "", after: str = "") -> None:
        """Note the calls of a method under the one name, their ends under the other."""
        noted: Callable[..., Any] = getattr(owner, function)

        @functools.wraps(noted)
        def noting(*args: Any, **kwargs: Any) -> Any:
            if before:
                self.note(before)
            result = noted(*args, **kwargs)
            if after:
                self.note(after)
            return result

        setattr(owner, function, noting)


def install(stamps: Stamps) -> None:
    """Put the clocks where a waiting server is woken, asks for a task, has it, passes it on, and writes its end."""
    stamps.put(Fetcher, "queue_has_tasks", before="woken")
    stamps.put(Line, "ask", before="asks", after="has asked")
    stamps.put(Line, "_end", before="answered")
    stamps.put(ProcessPool, "submit", after="in the ring")
    stamps.put(Processor, "on_events", before="ended")


if __name__ == "__main__":
    made = Stamps()
    install(made)
    try:
        main(sys.argv[2:])
    finally:
        Path(sys.argv[1]).write_text("".join(made.lines))
