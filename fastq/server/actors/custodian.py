"""The custodian: checks that every task in flight is in the pool, or has ended and is about to be written.

Wakes: at each heartbeat. Reads: the tasks in flight, in the pool, and about to be written. A task that two checks in a
row find in neither place is requeued, because nothing would ever end it and its lease would be extended forever. This
is a defect, and logged as one. If no child can work for a while, the server is shown as stopped until one can again.
Cancellations whose time is up are dropped, too. If it dies: such tasks stay active.
"""

from collections.abc import Callable
from typing import Final

from fastq.server.actors.actor import Actor, first_of
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.processor import requeued
from fastq.server.inflight.tasks import InFlightTask

UNABLE_S: Final = 10.0
"""How long the pool may lack a child that can run tasks, as in a replacement, until the server is shown as stopped."""


class Custodian(Actor):
    """The actor that finds tasks in flight that nothing would end, and a pool without working children.

    ``forget`` drops cancellations whose time is up. Otherwise the last ones would stay until others come.
    """

    name = "custodian"

    def __init__(
        self,
        in_flight: InFlight,
        accounted: Callable[[], set[object]],
        write: Callable[[list[InFlightTask]], None],
        can_work: Callable[[], bool],
        set_can_work: Callable[[bool], None],
        forget: Callable[[], None],
    ) -> None:
        super().__init__(in_flight.stats.outage)
        self._tasks = in_flight.tasks
        self._clock = in_flight.clock
        self._interval_s = in_flight.timing.heartbeat_interval_s
        self._accounted = accounted
        self._write = write
        self._can_work = can_work
        self._set_can_work = set_can_work
        self._forget = forget
        self._suspects: set[InFlightTask] = set()
        self._unable_since_s: float | None = None
        self._is_unable = False

    async def tick(self) -> float:
        """Check once."""
        self._forget()
        self._look_at_pool()
        self._look_for_tasks()
        return self._interval_s

    def _look_for_tasks(self) -> None:
        accounted = self._accounted()
        astray = {task for _, tasks in self._tasks.by_queue() for task in tasks if task not in accounted}
        # A task that is just passed from the pool to the acker may be in neither at one check, but not at two.
        found = sorted(astray & self._suspects, key=lambda task: (task.queue, task.seq))
        self._suspects = astray.difference(found)
        if found:
            ids = first_of([f"{task.id} ({task.queue})" for task in found])
            self._log.error("internal error: lost track of %d tasks in flight; requeueing them: %s", len(found), ids)
            self._write([requeued(task) for task in found])

    def _look_at_pool(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._can_work():
            self._unable_since_s = None
        elif self._unable_since_s is None:
            self._unable_since_s = now_s
        is_unable = self._unable_since_s is not None and now_s - self._unable_since_s >= UNABLE_S
        if is_unable is not self._is_unable:
            self._is_unable = is_unable
            if is_unable:
                self._log.error(
                    "no child has been able to run tasks for %g s; this server is listed as stopped until one is",
                    UNABLE_S,
                )
            else:
                self._log.info("children can run tasks again; this server is listed as active")
            self._set_can_work(not is_unable)
