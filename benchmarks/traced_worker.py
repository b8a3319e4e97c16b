"""``fastq-worker`` with a clock at four places of its main process; the stamps are written down when it ends.

``python -m benchmarks.traced_worker STAMPS ARGUMENT...``; a line of STAMPS is a name and unix nanoseconds.
"""

import functools
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection

from fastq.broker.transport import aio
from fastq.broker.transport.wait import TaskWatch
from fastq.cli.worker import main
from fastq.pool.main.pool import ProcessPool

STAGES: Final = ("woken", "asked", "answered", "in the ring")


class Stamps:
    """Note when functions have returned."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, name: str) -> None:
        """Note that something has happened."""
        self.lines.append(f"{name}\t{time.time_ns()}\n")

    def after(self, name: str, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return a coroutine function that does as this one and notes its end."""

        @functools.wraps(function)
        async def noted(*args: Any, **kwargs: Any) -> Any:
            result = await function(*args, **kwargs)
            self.note(name)
            return result

        return noted


def install(stamps: Stamps) -> None:
    """Put the clocks where a waiting server is woken, asks for the task, has it, and has passed it on."""
    submit = ProcessPool.submit

    def submitted(self: ProcessPool, batch: Any) -> None:
        submit(self, batch)
        stamps.note("in the ring")

    places: list[tuple[Any, str, Any]] = [
        (TaskWatch, "wait", stamps.after("woken", TaskWatch.wait)),
        (AbstractConnection, "send_packed_command", stamps.after("asked", AbstractConnection.send_packed_command)),
        (aio, "exchange_on", stamps.after("answered", aio.exchange_on)),
        (ProcessPool, "submit", submitted),
    ]
    for owner, name, function in places:
        setattr(owner, name, function)


if __name__ == "__main__":
    made = Stamps()
    install(made)
    try:
        main(sys.argv[2:])
    finally:
        Path(sys.argv[1]).write_text("".join(made.lines))
