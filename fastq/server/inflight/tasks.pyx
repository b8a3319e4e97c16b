"""The tasks in flight of one server: leased to it, from their dequeue until their end is written.

Compiled, since every task passes here twice on the main process' hot path: once when it is taken, and once when it has
ended, to be grouped with others by disposition.
"""

from collections import namedtuple

from fastq._codec cimport ID, RETRIED, TaskView
from fastq.server.inflight.tally cimport Tally
from libc.stdint cimport int64_t

from fastq.broker.operations.finish import Requeued
from fastq.errors import InvalidMessageError
from fastq.wire.codec import view_task_message

SeqRange = namedtuple("SeqRange", ("first", "last", "size"), module=__name__)


cdef class InFlightTask:
    """A task that is leased to us: a view of its message, and until when (monotonic seconds) the lease is surely ours.

    - ``in_flight``: false once the server has let go of it
    - ``disposition``: what becomes of it, once its run has ended
    - ``reruns``: restarts after its child was killed for a reason outside of the task
    - ``unexplained_reruns``: the reruns for which no other task was charged
    - ``is_alone``: whether it was in a batch that died with its child, so that it must run alone
    - ``canceled``: the outcome asked for, once somebody has canceled it
    - ``awaiter``: the client that waits for its end, if one does
    - ``marks``: what else its headers ask for (``wire/marks.py``)
    - ``written``: the last result that the handler wrote while it ran
    - ``seq``: how many tasks of the queue were taken before it
    - ``submission``: its submission to the pool, while it is in flight
    - ``tally``: the tally that counts it; None if it never got to the pool
    - ``failure``: the ``EventKind`` of an end other than success, 0 for none
    - ``error``: the class of its error, if it ended with one
    - ``ran_ns``: how long its handler ran, 0 if it did not
    - ``wait_s``: how long it had been pending, -1 if that is not known

    """

    def __cinit__(self):
        self.in_flight = True
        self.wait_s = -1.0

    def __init__(self, queue: str, view: TaskView, leased_until_s: float, seq: int) -> None:
        self.queue = queue
        self.view = view
        self.id = view.id
        self.seq = seq
        self.leased_until_s = leased_until_s

    @property
    def ended(self) -> bool:
        """Whether its run has ended, or it never began."""
        return self.disposition is not None

    @property
    def is_requeued(self) -> bool:
        """Whether it goes back to its queue."""
        return type(self.disposition) is Requeued


cdef class _QueueTasks:
    """The tasks in flight of a queue by id, oldest first, and how many were taken so far."""

    cdef dict by_id
    cdef int64_t taken

    def __cinit__(self):
        self.by_id = {}


cdef class InFlightTasks:
    """The tasks in flight of every queue; ``lease_s`` is the duration of a lease.

    ``marked_queues`` are the queues that have had a task with marks.
    """

    def __init__(self, lease_s: float = 30.0) -> None:
        self.lease_s = lease_s
        self.queues = {}
        self.marked_queues = set()

    def add(self, queue: str, view: TaskView, now_s: float) -> InFlightTask:
        """Add a task that was leased just now."""
        return self.take(queue, view, now_s)

    cdef InFlightTask take(self, str queue, TaskView view, double now_s):
        cdef _QueueTasks tasks = self.queues.get(queue)
        cdef InFlightTask task = InFlightTask.__new__(InFlightTask)
        if tasks is None:
            tasks = self.queues[queue] = _QueueTasks()
        task.queue = queue
        task.view = view
        task.id = <str><object>view.slots[ID]
        task.seq = tasks.taken
        task.leased_until_s = now_s + self.lease_s
        tasks.by_id[task.id] = task
        tasks.taken += 1
        return task

    def drop(self, task: InFlightTask) -> None:
        """Let go of a task: its outcome is written, or it is not ours any more."""
        self.let_go(task)

    def drop_all(self, tasks: list[InFlightTask]) -> None:
        """Let go of tasks whose ends are written."""
        cdef InFlightTask task
        for task in tasks:
            self.let_go(task)

    cdef void let_go(self, InFlightTask task):
        cdef _QueueTasks tasks
        task.in_flight = False
        # The submission refers to the task: without this, only the cycle collector would free the two.
        task.submission = None
        tasks = self.queues.get(task.queue)
        if tasks is not None and tasks.by_id.get(task.id) is task:
            del tasks.by_id[task.id]

    def find(self, task_id: str, queue: str | None = None) -> list[InFlightTask]:
        """Return the tasks with an id, of one queue or of any; more than one only if queues share it."""
        cdef _QueueTasks tasks
        if queue is not None:
            task = self.look(queue, task_id)
            return [] if task is None else [task]
        return [tasks.by_id[task_id] for tasks in self.queues.values() if task_id in tasks.by_id]

    def get(self, queue: str, task_id: str) -> InFlightTask | None:
        """Return the task of a queue that has this id."""
        return self.look(queue, task_id)

    cdef InFlightTask look(self, str queue, str task_id):
        cdef _QueueTasks tasks = self.queues.get(queue)
        return None if tasks is None else tasks.by_id.get(task_id)

    def by_queue(self) -> list[tuple[str, list[InFlightTask]]]:
        """Return each queue with its tasks, oldest first."""
        cdef _QueueTasks tasks
        return [(queue, list(tasks.by_id.values())) for queue, tasks in self.queues.items() if tasks.by_id]

    def seq_range(self, queue: str) -> SeqRange:
        """Return the first ``seq`` of a queue's tasks in flight, the last ``seq`` given, and the number of tasks."""
        cdef _QueueTasks tasks = self.queues.get(queue)
        cdef InFlightTask oldest
        if tasks is None:
            return SeqRange(-1, -1, 0)
        for oldest in tasks.by_id.values():
            return SeqRange(oldest.seq, tasks.taken - 1, len(tasks.by_id))
        return SeqRange(tasks.taken - 1, tasks.taken - 1, 0)

    def steps_to(self, queue: str, wanted: list[InFlightTask]) -> int:
        """Return how many of our own tasks LREM passes to find all wanted ones from the oldest end.

        ``wanted`` must be in order. This visits every task that is older than the last wanted one.
        """
        cdef _QueueTasks tasks = self.queues.get(queue)
        cdef InFlightTask task
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t count = len(wanted)
        cdef int64_t older = 0
        cdef int64_t steps = 0
        if tasks is None or not wanted:
            return 0
        for task in tasks.by_id.values():
            # LREM also searches for wanted tasks that were let go of meanwhile.
            while at < count and (<InFlightTask>wanted[at]).seq < task.seq:
                steps += older
                at += 1
            if at == count:
                break
            if (<InFlightTask>wanted[at]).seq == task.seq:
                steps += older
                at += 1
            else:
                older += 1
        return steps + older * (count - at)

    def __len__(self) -> int:
        cdef _QueueTasks tasks
        return sum([len(tasks.by_id) for tasks in self.queues.values()])


def count_waits(tasks: list[InFlightTask], first_ns: int, last_ns: int, now_ns: int) -> None:
    """Count how long tasks had been pending; between the first and the last one, the times are interpolated.

    ``first_ns`` and ``last_ns`` are the Unix times at which these two became pending; if either is 0 (unknown), nothing
    is counted.
    """
    cdef InFlightTask task
    cdef double wait_s = (now_ns - first_ns) / 1e9
    cdef double step_s = (first_ns - last_ns) / 1e9 / max(1, len(tasks) - 1)
    if first_ns == 0 or last_ns == 0:
        return
    for task in tasks:
        if task.tally is not None:
            task.wait_s = max(0.0, wait_s)
            task.tally.wait_s.add(task.wait_s)
        wait_s += step_s


def count_ends(tasks: list[InFlightTask]) -> None:
    """Count the ends of tasks that were just written; the tasks may have left, and their ids may be leased again."""
    cdef InFlightTask task
    for task in tasks:
        if task.tally is not None:
            task.tally.count(task.disposition, task.failure, <object>task.view.slots[RETRIED])


def live(tasks: list[InFlightTask]) -> list[InFlightTask]:
    """Return the tasks that are still in flight."""
    cdef InFlightTask task
    return [task for task in tasks if task.in_flight]


def awaited(tasks: list[InFlightTask]) -> list[InFlightTask]:
    """Return the tasks that a client waits for."""
    cdef InFlightTask task
    return [task for task in tasks if task.awaiter is not None]


def marked(tasks: list[InFlightTask], marks: int) -> list[InFlightTask]:
    """Return the tasks that have one of these marks."""
    cdef InFlightTask task
    cdef int wanted = marks
    return [task for task in tasks if task.marks & wanted]


def by_disposition(tasks: list[InFlightTask]) -> dict[tuple[str, type], list[InFlightTask]]:
    """Group tasks that have ended by queue and kind of disposition, the oldest first.

    Children are not equally fast. In this order LREM finds each task at the end of active. If the tasks of one child
    came after those of another, LREM would pass the tasks of the other child every time.
    """
    cdef InFlightTask task
    cdef list group = None
    queue = kind = None
    groups = {}
    for task in tasks:
        if task.queue is not queue or type(task.disposition) is not kind:
            queue = task.queue
            kind = type(task.disposition)
            group = groups.setdefault((queue, kind), [])
        group.append(task)
    for group in groups.values():
        if not is_in_order(group):
            group.sort(key=seq_of)
    return groups


def dispositions(tasks: list[InFlightTask]) -> list[Disposition]:
    """Return the dispositions of tasks."""
    cdef InFlightTask task
    return [task.disposition for task in tasks]


def seq_of(task: InFlightTask) -> int:
    """Return the place of a task in the order in which its queue's tasks were taken."""
    return task.seq


cdef bint is_in_order(list tasks):
    cdef InFlightTask task
    cdef int64_t last = -1
    for task in tasks:
        if task.seq < last:
            return False
        last = task.seq
    return True


def most_steps(tasks: list[InFlightTask], seq_range) -> int:
    """Return how many elements LREM passes at most to find all tasks from the oldest end, one after the other.

    ``tasks`` must be in order. How many tasks stand between them is known only as an upper bound, from ``seq_range``.
    """
    cdef InFlightTask task
    cdef int64_t first = seq_range.first
    cdef int64_t others = seq_range.size - 1
    cdef int64_t steps = 0
    cdef int64_t at = 0
    for task in tasks:
        steps += max(0, min(task.seq - first, others) - at)
        at += 1
    return steps


def view_leased(leased):
    """Return the view of a leased task's message; ``InvalidMessageError`` if it is malformed or another task's."""
    view = view_task_message(leased.message)
    if view.id != leased.id:
        raise InvalidMessageError(f"the message under id {leased.id!r} is of task {view.id!r}")
    return view
