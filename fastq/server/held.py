"""The tasks that this server holds: leased to it, from their dequeue until their outcome is written."""

from collections.abc import Iterator
from typing import Final

from fastq.broker.lease import LEASE_S
from fastq.codec import TaskView
from fastq.pool.protocol import Submission

__all__ = ["HeldTask", "HeldTasks"]


class HeldTask:
    """Hold a leased task: its message unopened, and until when (monotonic seconds) the lease is surely ours.

    ``held`` is false once it was let go of, ``ended`` true once the pool has told its outcome, ``reruns`` how often it
    was started again because its child was killed for another's sake.
    """

    __slots__ = ("ended", "held", "leased_until_s", "queue", "reruns", "submission", "view")

    def __init__(self, queue: str, view: TaskView, leased_until_s: float) -> None:
        self.queue: Final = queue
        self.view: Final = view
        self.leased_until_s = leased_until_s
        self.held = True
        self.ended = False
        self.reruns = 0
        self.submission: Submission | None = None

    @property
    def id(self) -> str:
        """Return the task's id."""
        return self.view.id


class HeldTasks:
    """Keep the held tasks of every queue."""

    def __init__(self, lease_s: int = LEASE_S) -> None:
        self._lease_s = lease_s
        self._by_queue: dict[str, dict[str, HeldTask]] = {}

    def add(self, queue: str, view: TaskView, now_s: float) -> HeldTask:
        """Hold a task that was leased just now."""
        task = HeldTask(queue, view, now_s + self._lease_s)
        tasks = self._by_queue.get(queue)
        if tasks is None:
            tasks = self._by_queue[queue] = {}
        tasks[view.id] = task
        return task

    def drop(self, task: HeldTask) -> None:
        """Let go of a task: its outcome is written, or it is not ours any more."""
        task.held = False
        tasks = self._by_queue.get(task.queue, {})
        if tasks.get(task.id) is task:
            del tasks[task.id]

    def find(self, task_id: str) -> list[HeldTask]:
        """Return the tasks with an id; more than one only if queues share it."""
        return [tasks[task_id] for tasks in self._by_queue.values() if task_id in tasks]

    def get(self, queue: str, task_id: str) -> HeldTask | None:
        """Return the task of a queue that has this id."""
        return self._by_queue.get(queue, {}).get(task_id)

    def by_queue(self) -> Iterator[tuple[str, list[HeldTask]]]:
        """Yield each queue with the tasks held of it, oldest first."""
        for queue, tasks in list(self._by_queue.items()):
            if tasks:
                yield queue, list(tasks.values())

    def __len__(self) -> int:
        return sum(map(len, self._by_queue.values()))
