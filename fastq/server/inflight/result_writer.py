"""Writes the intermediate results of running tasks: the last one of each task, one write at a time."""

import asyncio
import logging

from fastq.broker.operations.lease import Owner
from fastq.broker.operations.presence import write_result
from fastq.errors import BrokerError
from fastq.server.base.commands import Commands
from fastq.server.inflight.tasks import InFlightTask

_log = logging.getLogger("fastq")


class ResultWriter:
    """The writer of intermediate results."""

    def __init__(self, commands: Commands, owner: Owner) -> None:
        self._commands = commands
        self._owner = owner
        self._writes: set[asyncio.Task[None]] = set()
        self._tasks: set[InFlightTask] = set()

    def write(self, task: InFlightTask, data: bytes) -> None:
        """Start to write the result of a running task."""
        is_under_way = task.written is not None and task in self._tasks
        task.written = data
        if is_under_way:
            return  # the last one counts: it is written when the previous write has finished
        self._tasks.add(task)
        writing = asyncio.create_task(self._write(task))
        self._writes.add(writing)
        writing.add_done_callback(self._writes.discard)

    async def settle(self) -> None:
        """Wait until nothing is being written."""
        await asyncio.gather(*self._writes, return_exceptions=True)

    async def _write(self, task: InFlightTask) -> None:
        try:
            stored: bytes | None = None
            while task.in_flight and not task.ended and task.written is not None and stored is not task.written:
                stored = task.written
                await self._commands.run(write_result(task.queue, task.id, self._owner, stored))
        except BrokerError as error:
            _log.warning(
                "could not save an intermediate result of task %s; its last one is saved on completion: %s",
                task.id,
                error,
            )
        finally:
            self._tasks.discard(task)
