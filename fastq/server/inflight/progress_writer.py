"""Writes how far running tasks have come: the last progress of each task, once a second at most."""

import asyncio
import logging
from typing import Final

from fastq.broker.operations.lease import Owner
from fastq.broker.operations.presence import write_progress
from fastq.errors import BrokerError
from fastq.server.commands import Commands
from fastq.server.inflight.tasks import InFlightTask

__all__ = ["ProgressWriter"]

EVERY_S: Final = 1.0

_log = logging.getLogger("fastq")


class ProgressWriter:
    """The progress of running tasks that is being written, or was within the last second."""

    def __init__(self, commands: Commands, owner: Owner, every_s: float = EVERY_S) -> None:
        self._commands = commands
        self._owner = owner
        self._every_s = every_s
        self._last: dict[InFlightTask, bytes] = {}
        self._writes: set[asyncio.Task[None]] = set()

    def write(self, task: InFlightTask, data: bytes) -> None:
        """Write the progress of a running task, at once or when its second is over."""
        is_under_way = task in self._last
        self._last[task] = data
        if is_under_way:
            return
        writing = asyncio.create_task(self._write(task))
        self._writes.add(writing)
        writing.add_done_callback(self._writes.discard)

    async def stop(self) -> None:
        """Write no more."""
        for writing in self._writes:
            writing.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)

    async def _write(self, task: InFlightTask) -> None:
        try:
            written: bytes | None = None
            while task.in_flight and not task.ended and written is not self._last[task]:
                written = self._last[task]
                await self._commands.run(write_progress(task.queue, task.id, self._owner, written))
                await asyncio.sleep(self._every_s)
        except BrokerError as error:
            _log.debug("could not write the progress of task %s: %s", task.id, error)
        finally:
            del self._last[task]
