"""Tells clients that the tasks that they wait for have ended: one message per inbox and ack call.

A script publishes a few completed tasks in the pipeline of their write, so that clients hear of them a round trip
sooner. For many tasks this costs more than it gains: they are published after the write, like all other ends. A message
that is lost, or not sent because the write got no reply, does no harm: the client also looks by itself.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from fastq.broker.operation import Operation
from fastq.broker.operations.ends import tell_completed, tell_inbox
from fastq.broker.operations.finish import FATES, Completed
from fastq.errors import BrokerError
from fastq.server.base.commands import Commands
from fastq.server.inflight.ack_planner import AckCall
from fastq.server.inflight.tasks import InFlightTask, awaited
from fastq.wire.inbox import TaskEnd

TOLD_AT_ONCE: Final = 32
"""The most tasks of a write that a script publishes; each costs Redis and this process some microseconds."""

_log = logging.getLogger("fastq.acker")


class Inboxes:
    """The publisher of ends to the clients that wait for them."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._under_way: set[asyncio.Future[list[Any]]] = set()
        self._has_failed = False

    def with_completed(self, calls: Iterable[AckCall]) -> list[Operation[Any]]:
        """Return operations, to be sent behind the writes of ends, that tell clients of completed tasks."""
        operations = []
        for call in calls:
            by_inbox = defaultdict[str, list[tuple[Completed, str]]](list)
            for task in awaited(call.tasks) if len(call.tasks) <= TOLD_AT_ONCE else ():
                if isinstance(task.disposition, Completed) and task.awaiter is not None:
                    by_inbox[task.awaiter.inbox].append((task.disposition, task.awaiter.submit))
            operations += [tell_completed(inbox, call.tasks[0].queue, tasks) for inbox, tasks in by_inbox.items()]
        return operations

    def tell(self, tasks: Sequence[InFlightTask], of: int) -> None:
        """Begin to tell clients that tasks of a queue have ended, except where a script has told them.

        ``of`` is the number of tasks in the write of the ends.
        """
        by_inbox = defaultdict[str, list[tuple[str, TaskEnd, str]]](list)
        for task in tasks:
            is_told = of <= TOLD_AT_ONCE and isinstance(task.disposition, Completed)
            told = None if is_told or task.disposition is None else FATES[type(task.disposition)].told
            if told is not None and task.awaiter is not None:
                by_inbox[task.awaiter.inbox].append((task.id, told(task.disposition), task.awaiter.submit))
        if by_inbox:
            queue = tasks[0].queue
            telling = self._commands.begin(
                [tell_inbox(inbox, queue, ends) for inbox, ends in by_inbox.items()], joins=True
            )
            self._under_way.add(telling)
            telling.add_done_callback(self._told)

    async def settle(self) -> None:
        """Wait until no message is under way."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    def _told(self, telling: asyncio.Future[list[Any]]) -> None:
        self._under_way.discard(telling)
        if not telling.cancelled():
            self.note(telling.result())

    def note(self, results: Iterable[Any]) -> None:
        """Log the first message that could not be published."""
        error = next((each for each in results if isinstance(each, BrokerError)), None)
        if error is not None and not self._has_failed:
            self._has_failed = True
            _log.warning("cannot tell a client that its tasks have ended: %s; such clients find out within 5 s", error)
