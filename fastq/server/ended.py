"""The way of tasks that have ended to the acker; once the server stops, those that go back wait for one another."""

from collections.abc import Callable

from fastq.server.actors.acker import Acker
from fastq.server.inflight.tasks import InFlightTask, InFlightTasks

__all__ = ["EndedTasks"]


class EndedTasks:
    """The tasks of a server that have ended and are not written yet.

    Tasks that go back to their queues go there in the order in which they were fetched. Children end in any order, so
    during the shutdown these tasks are kept until all are here.
    """

    def __init__(
        self, tasks: InFlightTasks, acker: Acker, pool_is_dry: Callable[[], bool], wake_fetcher: Callable[[], None]
    ) -> None:
        self._tasks = tasks
        self._acker = acker
        self._pool_is_dry = pool_is_dry
        self._wake_fetcher = wake_fetcher
        self._keeps = False
        self._kept: list[InFlightTask] = []

    def add(self, ended: list[InFlightTask]) -> None:
        """Give tasks to the acker, save those that are kept; there is room for others now."""
        if self._keeps:
            self._kept += [task for task in ended if task.is_requeued]
            ended = [task for task in ended if not task.is_requeued]
        if ended:
            self._acker.add(ended, pool_is_dry=self._pool_is_dry())
            self._wake_fetcher()

    def keep_requeued(self) -> None:
        """From now on keep the tasks that go back to their queues."""
        self._keeps = True

    def release(self) -> None:
        """Give the tasks that were kept to the acker."""
        places = {task: place for _, of_queue in self._tasks.by_queue() for place, task in enumerate(of_queue)}
        self._acker.add(sorted(self._kept, key=lambda task: places.get(task, -1)), pool_is_dry=True)

    def tasks(self) -> set[object]:
        """Return the tasks whose ends are to be written, or are being written."""
        return self._acker.tasks().union(self._kept)
