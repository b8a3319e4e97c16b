"""The acker: writes the ends of tasks, many in one round trip.

Wakes: when tasks have ended. It flushes when 500 have ended, 2 ms after the first, or when the pool runs dry. If its
last flush was 10 ms ago or more, it flushes at once: a pool that reports ends so seldom reports many at a time. Writes:
completed, retry, archived, and pending for requeued tasks; it removes all of them from active and lease. Each node of a
cluster gets its own writes. The syncer repeats writes that fail. If it dies: tasks stay in flight and leased until it
is back.

Requeued tasks go back in the order in which they were fetched. Children end in any order, so during the shutdown
requeued tasks are kept until all have ended.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from fastq.server.actors.per_node import PerNodeActor
from fastq.server.inflight.ack_writer import AckWriter
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.tasks import InFlightTask

FLUSH_AT: Final = 500
FLUSH_AFTER_S: Final = 0.002
RESTED_S: Final = 0.01


class Acker(PerNodeActor):
    """The actor that makes the first write of each end.

    ``pool_is_dry`` returns whether no more tasks will end for now. ``make_room`` is called when tasks have ended, so
    that others can be fetched. ``wake_syncer`` is called after each write, since the write may have failed.
    """

    name = "acker"

    def __init__(
        self,
        writer: AckWriter,
        in_flight: InFlight,
        pool_is_dry: Callable[[], bool],
        make_room: Callable[[], None],
        wake_syncer: Callable[[], None],
    ) -> None:
        super().__init__(in_flight.stats.outage, writer.node_name_of)
        self._writer = writer
        self._tasks = in_flight.tasks
        self._stall = in_flight.stall
        self._clock = in_flight.clock
        self._flushed_s = self._clock.monotonic_s()
        self._pool_is_dry = pool_is_dry
        self._make_room = make_room
        self._wake_syncer = wake_syncer
        self._waiting: list[InFlightTask] = []
        self._behind: dict[str, list[InFlightTask]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._keeps_requeued = False
        self._kept: list[InFlightTask] = []

    def first_tick_after_s(self) -> None:
        """Wait for the first task."""

    def add(self, tasks: list[InFlightTask]) -> None:
        """Take tasks that have ended, and write their ends soon."""
        if self._keeps_requeued:
            self._kept += [task for task in tasks if task.is_requeued]
            tasks = [task for task in tasks if not task.is_requeued]
        if not tasks:
            return
        self._waiting += tasks
        has_rested = self._clock.monotonic_s() - self._flushed_s >= RESTED_S
        if has_rested or len(self._waiting) >= FLUSH_AT or self._pool_is_dry():
            self.wake()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self.wake)
        self._make_room()

    def keep_requeued(self) -> None:
        """From now on keep requeued tasks until ``release``."""
        self._keeps_requeued = True

    def release(self) -> None:
        """Write the ends of the kept tasks, in the order in which the tasks were fetched."""
        places = {task: place for _, of_queue in self._tasks.by_queue() for place, task in enumerate(of_queue)}
        self._waiting += sorted(self._kept, key=lambda task: places.get(task, -1))
        self._kept = []
        self.wake()

    async def tick(self) -> None:
        """Write everything that waits, in one round trip; on a cluster, begin one write to each node that is free."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks, self._waiting = self._waiting, []
        if tasks:
            self._flushed_s = self._clock.monotonic_s()
        if self._per_node.are_many:
            for node, part in self._per_node.split(tasks, lambda task: task.queue).items():
                self._behind.setdefault(node, []).extend(part)
            for node in [node for node in self._behind if node not in self._per_node]:
                self._per_node.begin(node, self._write_to(node))
        elif tasks:
            await self._write(tasks)

    async def _write_to(self, node: str) -> None:
        await self._write(self._behind.pop(node))

    async def _write(self, tasks: list[InFlightTask]) -> None:
        try:
            # The ack of a done task checks who holds the lease only if a stall has put this server's leases in doubt.
            await self._writer.write(tasks, checks_done=self._stall.suspect)
        finally:
            self._wake_syncer()

    def tasks(self) -> set[object]:
        """Return the tasks whose ends are to be written, or are being written."""
        return self._writer.tasks().union(self._waiting, self._kept, *self._behind.values())

    async def flush(self) -> None:
        """Write what waits now; for the shutdown, after the loop of ticks has ended."""
        await self.tick()
        while self._per_node or self._behind:
            await self._per_node.settle()
            await self.tick()
