"""What is kept of failed attempts: a record with each task, and one traceback for each kind of error of a queue.

The record goes with the write of the task's end. The traceback is a write of its own, since a lost traceback does no
harm.
"""

import asyncio
import logging
from typing import Final

from fastq.broker.operations.errors import keep_traceback
from fastq.common.clock import Clock
from fastq.errors import BrokerError
from fastq.server.base.commands import Commands
from fastq.server.inflight.tasks import InFlightTask
from fastq.wire.attempts import encode_attempt
from fastq.worker.shared.fingerprint import Turns
from fastq.worker.shared.report import FailureReport

MOST_WRITES: Final = 1000
"""The most tracebacks in ten seconds.

A child repeats a traceback only after ten minutes, even if it is left out here.
"""
_NS_A_MS: Final = 1_000_000

_log = logging.getLogger("fastq.pool")


class FailedAttempts:
    """The maker of the records; ``server`` is the name of this server in them.

    Each child passes on the traceback of a kind of error once in ten minutes. This process writes it once in ten
    minutes for all children.
    """

    def __init__(self, commands: Commands, clock: Clock, server: str) -> None:
        self._commands = commands
        self._clock = clock
        self._server = server
        self._turns = Turns[tuple[str, str]](MOST_WRITES)
        self._writes: set[asyncio.Task[None]] = set()

    def record(self, task: InFlightTask, report: FailureReport, ran_ns: int) -> bytes:
        """Return the record of an attempt that has just failed; write the traceback if one of its kind is due."""
        now_ns = self._clock.unix_ns()
        if report.kept and self._turns.allows((task.queue, report.fingerprint), self._clock.monotonic_s()):
            writing = asyncio.create_task(self._keep(task.queue, report, now_ns // 1_000_000_000))
            self._writes.add(writing)
            writing.add_done_callback(self._writes.discard)
        started_ms = (now_ns - ran_ns) // _NS_A_MS if ran_ns else 0
        attempt = task.view.retried + 1
        ended_ms = now_ns // _NS_A_MS
        return encode_attempt(attempt, started_ms, ended_ms, self._server, report.error, report.fingerprint)

    async def settle(self) -> None:
        """Wait until no traceback is being written."""
        await asyncio.gather(*self._writes, return_exceptions=True)

    async def _keep(self, queue: str, report: FailureReport, now_s: int) -> None:
        try:
            await self._commands.run(keep_traceback(queue, report.fingerprint, report.kept, now_s))
        except BrokerError as error:
            # An outage is logged by the actors that meet it, once.
            level = logging.DEBUG if error.transient else logging.WARNING
            _log.log(level, "queue %s: could not keep the traceback of an error (%s): %s", queue, report.error, error)
