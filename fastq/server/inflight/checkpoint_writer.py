"""Saves the checkpoints of running tasks: the last one of each task, one write at a time, until Redis has it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from fastq.broker.operations.presence import save_checkpoint
from fastq.checkpoint import with_checkpoint
from fastq.errors import BrokerError
from fastq.log.limit import LogLimit
from fastq.pool.main.protocol import Submission
from fastq.server.base.commands import Commands
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.tasks import InFlightTask
from fastq.wire.codec import view_task_message

AGAIN_S: Final = 1.0

_log = logging.getLogger("fastq")


class CheckpointWriter:
    """The writer of checkpoints; ``note_saved`` reports a saved checkpoint to the handler, which waits for that."""

    def __init__(self, commands: Commands, in_flight: InFlight, note_saved: Callable[[Submission, int], None]) -> None:
        self._commands = commands
        self._owner = in_flight.owner
        self._clock = in_flight.clock
        self._lease_s = in_flight.timing.lease_s
        self._note_saved = note_saved
        self._last: dict[InFlightTask, tuple[Submission | None, bytes, int]] = {}
        self._writes: set[asyncio.Task[None]] = set()
        self._limit = LogLimit[str]()

    def save(self, task: InFlightTask, state: bytes, number: int) -> None:
        """Start to save the checkpoint of a running task."""
        is_under_way = task in self._last
        self._last[task] = task.submission, state, number
        if is_under_way:
            return  # the last one counts: it is written when the previous write has finished
        writing = asyncio.create_task(self._write(task))
        self._writes.add(writing)
        writing.add_done_callback(self._writes.discard)

    async def _write(self, task: InFlightTask) -> None:
        try:
            while task.in_flight and not task.ended:
                last = submission, state, number = self._last[task]
                message = with_checkpoint(task.view.data, state)
                score = self._owner.score(self._clock.unix_ns() / 1e9, self._lease_s)
                saving = save_checkpoint(task.queue, task.id, self._owner, message, score)
                try:
                    is_ours = await self._commands.run(saving)
                except BrokerError as error:
                    self._warn(task, error)
                    await asyncio.sleep(AGAIN_S)
                    continue
                if not is_ours:
                    await asyncio.sleep(
                        AGAIN_S
                    )  # the next heartbeat restores our mark on the lease, or cancels the task
                    continue
                task.view = view_task_message(message)
                if submission is not None:  # of the run that saved: each run has its own numbers
                    self._note_saved(submission, number)
                if self._last[task] is last:
                    return
        finally:
            del self._last[task]

    def _warn(self, task: InFlightTask, error: BrokerError) -> None:
        if self._limit.allows(type(error).__name__, self._clock.monotonic_s(), most=1):
            _log.warning("could not save a checkpoint of task %s, which waits for it; trying again: %s", task.id, error)
