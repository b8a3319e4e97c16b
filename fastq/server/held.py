"""The tasks that this server holds: leased to it, from their dequeue until their outcome is written."""

from collections import Counter
from collections.abc import Iterator
from math import inf
from typing import Final, NamedTuple

from fastq.broker.cancel import CancelAs
from fastq.broker.lease import LEASE_S, LeasedTask
from fastq.codec import TaskView, view_task_message
from fastq.errors import BrokerError, InvalidMessageError
from fastq.pool.protocol import Submission

__all__ = ["HeldTask", "HeldTasks", "Span", "view_leased"]


def view_leased(leased: LeasedTask) -> TaskView:
    """Return the view of a leased task's message; ``InvalidMessageError`` if it is none, or another task's."""
    view = view_task_message(leased.message)
    if view.id != leased.id:
        raise InvalidMessageError(f"the message under id {leased.id!r} is of task {view.id!r}")
    return view


class HeldTask:
    """Hold a leased task: its message unopened, and until when (monotonic seconds) the lease is surely ours.

    ``held`` is false once it was let go of, ``ended`` true once the pool has told its outcome, ``reruns`` how often it
    was started again because its child was killed for another's sake. ``canceled`` is what is to become of it once
    somebody has cancelled it. ``written`` is the last result that the handler wrote while it ran. ``in_doubt`` is true
    while a write that ends it may or may not have been carried out; ``write_by_s`` is until when such writes are tried,
    once Redis has ``refused`` one for good. ``seq`` counts the tasks taken from the queue.
    """

    __slots__ = (
        "canceled",
        "ended",
        "held",
        "in_doubt",
        "leased_until_s",
        "queue",
        "refused",
        "reruns",
        "seq",
        "submission",
        "view",
        "write_by_s",
        "written",
    )

    def __init__(self, queue: str, view: TaskView, leased_until_s: float, seq: int) -> None:
        self.queue: Final = queue
        self.view: Final = view
        self.seq: Final = seq
        self.leased_until_s = leased_until_s
        self.held = True
        self.ended = False
        self.in_doubt = False
        self.refused: BrokerError | None = None
        self.write_by_s = inf
        self.written: bytes | None = None
        self.reruns = 0
        self.canceled: CancelAs | None = None
        self.submission: Submission | None = None

    @property
    def id(self) -> str:
        """Return the task's id."""
        return self.view.id

    def refuse(self, error: BrokerError) -> None:
        """Note that Redis refuses to write the outcome, which is tried no longer than for the lease of this moment.

        The heartbeater would otherwise keep it for ever.
        """
        if self.refused is None:
            self.write_by_s = self.leased_until_s
        self.refused = error

    def is_writable(self, now_s: float) -> bool:
        """Tell whether it is still worth trying to write the outcome."""
        return min(self.leased_until_s, self.write_by_s) > now_s


class Span(NamedTuple):
    """Hold the ``seq`` of the oldest task that is held and of the newest that was taken, and how many are held."""

    first: int
    last: int
    held: int


class _QueueTasks(dict[str, HeldTask]):
    """Keep a queue's held tasks by id, oldest first, and how many were taken so far."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0


class HeldTasks:
    """Keep the held tasks of every queue."""

    def __init__(self, lease_s: int = LEASE_S) -> None:
        self._lease_s = lease_s
        self._by_queue: dict[str, _QueueTasks] = {}
        self._doubts: Counter[str] = Counter()

    def add(self, queue: str, view: TaskView, now_s: float) -> HeldTask:
        """Hold a task that was leased just now."""
        tasks = self._by_queue.get(queue)
        if tasks is None:
            tasks = self._by_queue[queue] = _QueueTasks()
        task = tasks[view.id] = HeldTask(queue, view, now_s + self._lease_s, tasks.taken)
        tasks.taken += 1
        return task

    def drop(self, task: HeldTask) -> None:
        """Let go of a task: its outcome is written, or it is not ours any more."""
        task.held = False
        if task.in_doubt:
            task.in_doubt = False
            self._doubts[task.queue] -= 1
        tasks = self._by_queue.get(task.queue)
        if tasks is not None and tasks.get(task.id) is task:
            del tasks[task.id]

    def doubt(self, task: HeldTask) -> None:
        """Note that a write that ends a held task may or may not have been carried out, until it is dropped."""
        if task.held and not task.in_doubt:
            task.in_doubt = True
            self._doubts[task.queue] += 1

    def queues_in_doubt(self) -> frozenset[str]:
        """Return the queues from which nothing is to be taken now.

        A task whose outcome is in doubt might come back from them: the same write, sent again, would then end its
        next run.
        """
        return frozenset(queue for queue, count in self._doubts.items() if count)

    def find(self, task_id: str, queue: str | None = None) -> list[HeldTask]:
        """Return the tasks with an id, of one queue or of any; more than one only if queues share it."""
        if queue is not None:
            task = self.get(queue, task_id)
            return [] if task is None else [task]
        return [tasks[task_id] for tasks in self._by_queue.values() if task_id in tasks]

    def get(self, queue: str, task_id: str) -> HeldTask | None:
        """Return the task of a queue that has this id."""
        tasks = self._by_queue.get(queue)
        return None if tasks is None else tasks.get(task_id)

    def by_queue(self) -> Iterator[tuple[str, list[HeldTask]]]:
        """Yield each queue with the tasks held of it, oldest first."""
        for queue, tasks in list(self._by_queue.items()):
            if tasks:
                yield queue, list(tasks.values())

    def span(self, queue: str) -> Span:
        """Return from where to where the held tasks of a queue go, by the order in which they were taken."""
        tasks = self._by_queue.get(queue, _QueueTasks())
        last = tasks.taken - 1
        return Span(next((task.seq for task in tasks.values()), last), last, len(tasks))

    def __len__(self) -> int:
        return sum(map(len, self._by_queue.values()))
