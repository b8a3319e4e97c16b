"""The syncer: retries writes that Redis failed to take, until they succeed or another server has the task.

Wakes: a second after a write of ends has failed, or once Redis is known to answer again. Each write checks the owner.
If a task is gone after a write of ours whose reply was lost, that write succeeded. A lease that has ended is still ours
until a recoverer takes the task, and no recoverer can while Redis is away: results are kept however long an outage
lasts. Nothing is fetched meanwhile, so there are no more results than there were tasks in flight when the outage began.
A write that Redis refuses for good is given up at the end of the lease that its task had at the refusal. Each node of a
cluster gets its own writes. If it dies: the tasks are recovered after their leases, and run again.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence

from fastq.errors import BrokerError
from fastq.server.actors.actor import first_of
from fastq.server.actors.per_node import PerNodeActor
from fastq.server.inflight.ack_writer import AckWriter
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.tasks import InFlightTask

INTERVAL_S = 1.0


class Syncer(PerNodeActor):
    """The actor that writes uncertain ends (``UncertainEnds``) again, until each is settled."""

    name = "syncer"

    def __init__(self, writer: AckWriter, in_flight: InFlight) -> None:
        super().__init__(in_flight.stats.outage, writer.node_name_of)
        self._writer = writer
        self._tasks = in_flight.tasks
        self._ends = in_flight.ends
        self._dequeues = in_flight.dequeues
        self._clock = in_flight.clock
        self._timer: asyncio.TimerHandle | None = None

    def wake_soon(self) -> None:
        """Tick in about a second if there is an end to be written again."""
        if self._timer is None and self._ends.waiting:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S * random.uniform(0.75, 1.25), self.wake)

    def try_again(self) -> None:
        """Write again at once: until these ends are written, nothing is fetched from their queues."""
        if self._ends.waiting:
            self.wake()

    def write_soon(self, tasks: Sequence[InFlightTask]) -> None:
        """Let the next tick write the ends of tasks, except ends in doubt."""
        self._ends.add(tasks)
        self.wake_soon()

    def first_tick_after_s(self) -> None:
        """Wait for the first failed write."""

    def node_is_free(self) -> None:
        """Retry the failed writes soon, but not at once."""
        self.wake_soon()

    @property
    def is_writing(self) -> bool:
        """Return whether a write to a node of a cluster is under way."""
        return bool(self._per_node)

    async def tick(self) -> None:
        """Retry every failed write once; a write that fails again causes another tick."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._per_node.spread(self._ends.waiting, lambda task: task.queue, self._write)

    async def _write(self, tasks: Sequence[InFlightTask]) -> None:
        """Write the due ends of the tasks' queues.

        The ends are taken from ``UncertainEnds`` only here, so that none is lost if this coroutine never runs.
        """
        queues = {task.queue for task in tasks}
        due = self._ends.take_due(self._clock.monotonic_s(), self._dequeues.may_bring, queues)
        self._give_up(due.given_up)
        try:
            if due.ready:
                await self._writer.write(due.ready, checks_done=True)
        finally:
            self.wake_soon()

    def _give_up(self, refused: Sequence[tuple[InFlightTask, BrokerError]]) -> None:
        """Give up tasks whose end Redis refuses, and log that once for each queue and reason."""
        by_reason: defaultdict[tuple[str, str], list[InFlightTask]] = defaultdict(list)
        for task, error in refused:
            by_reason[task.queue, str(error)].append(task)
            self._tasks.drop(task)
        for (queue, why), given_up in by_reason.items():
            self._log.error(
                "queue %s: Redis refused to save the outcomes of %d tasks until their leases expired: %s; "
                "a recoverer will treat them as lost: %s",
                queue,
                len(given_up),
                why,
                first_of([task.id for task in given_up]),
            )
