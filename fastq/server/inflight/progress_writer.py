"""Writes how far running tasks have come: the last progress of each task, once a second at most, and with its end."""

import asyncio
import logging
from typing import Any, Final

from fastq.broker.operation import Operation
from fastq.broker.operations.finish import FATES
from fastq.broker.operations.lease import Owner
from fastq.broker.operations.presence import write_progress
from fastq.errors import BrokerError
from fastq.server.base.commands import Commands
from fastq.server.inflight.tasks import InFlightTask

EVERY_S: Final = 1.0

_log = logging.getLogger("fastq")


class ProgressWriter:
    """Writes the progress of running tasks: the newest of each task, at most once in ``every_s``."""

    def __init__(self, commands: Commands, owner: Owner, every_s: float = EVERY_S) -> None:
        self._commands = commands
        self._owner = owner
        self._every_s = every_s
        self.unwritten: dict[InFlightTask, bytes | None] = {}
        """For each task with progress in the last second: the progress that is not in Redis yet, or None."""
        self._writes: set[asyncio.Task[None]] = set()

    def write(self, task: InFlightTask, data: bytes) -> None:
        """Write the progress of a running task, at once or a second after the task's last write."""
        is_under_way = task in self.unwritten
        self.unwritten[task] = data
        if is_under_way:
            return
        writing = asyncio.create_task(self._write(task))
        self._writes.add(writing)
        writing.add_done_callback(self._writes.discard)

    def with_ends_of(self, tasks: list[InFlightTask]) -> list[Operation[Any]]:
        """Return the writes that go before the ends of tasks; a task that is deleted or runs again has none."""
        return [
            write_progress(task.queue, task.id, self._owner, data)
            for task in tasks
            if (data := self.unwritten.get(task)) is not None
            and task.disposition
            and FATES[type(task.disposition)].stays
        ]

    async def stop(self) -> None:
        """Write no more."""
        for writing in self._writes:
            writing.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)

    async def _write(self, task: InFlightTask) -> None:
        try:
            while task.in_flight and (data := self.unwritten[task]) is not None:
                if not task.ended:  # else it is written with the end
                    write = write_progress(task.queue, task.id, self._owner, data)
                    (outcome,) = await self._commands.run_many((write,))
                    if isinstance(outcome, BrokerError):
                        _log.debug("could not write the progress of task %s; trying again: %s", task.id, outcome)
                    elif self.unwritten[task] is data:
                        self.unwritten[task] = None
                await asyncio.sleep(self._every_s)
        finally:
            del self.unwritten[task]
