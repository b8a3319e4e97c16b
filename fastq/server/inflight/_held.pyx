"""The tasks that this server holds: leased to it, from their dequeue until their outcome is written.

Compiled, since every task comes by here twice on the main process' hot path.
"""

from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from fastq._codec cimport ID, TaskView
from libc.math cimport INFINITY
from libc.stdint cimport int64_t

from fastq.errors import BrokerError
from fastq.server.inflight.span import Span


cdef class HeldTask:
    """Hold a leased task: its message unopened, and until when (monotonic seconds) the lease is surely ours.

    ``held`` is false once it was let go of, ``ended`` true once the pool has told its outcome, ``returning`` when it
    then goes back to its queue, ``reruns`` how often it was started again because its child was killed for another's sake. ``canceled`` is what is to become of it once
    somebody has canceled it. ``written`` is the last result that the handler wrote while it ran. ``in_doubt`` is true
    while a write that ends it may or may not have been carried out; ``write_by_s`` is until when such writes are tried,
    once Redis has ``refused`` one for good. ``seq`` counts the tasks taken from the queue. ``submission`` is what the
    pool has of it, while it is held.
    """

    def __cinit__(self):
        self.held = True
        self.write_by_s = INFINITY

    def __init__(self, queue: str, view: TaskView, leased_until_s: float, seq: int) -> None:
        self.queue = queue
        self.view = view
        self.id = view.id
        self.seq = seq
        self.leased_until_s = leased_until_s

    def refuse(self, error: BrokerError) -> None:
        """Note that Redis refuses to write the outcome, which is tried no longer than for the lease of this moment.

        The heartbeater would otherwise keep it for ever.
        """
        if self.refused is None:
            self.write_by_s = self.leased_until_s
        self.refused = error

    def is_writable(self, now_s: float) -> bool:
        """Return whether writing the outcome is to be tried again: always, unless Redis has refused it for good.

        A lease that has ended is no reason to stop: it is ours until a recoverer takes the task, and the write finds out.
        """
        return self.write_by_s > <double>now_s


cdef inline int64_t seq_at(list results, Py_ssize_t at):
    return (<HeldTask><object>PyTuple_GET_ITEM(results[at], 0)).seq


cdef class _QueueTasks:
    """Keep a queue's held tasks by id, oldest first, and how many were taken so far."""

    cdef dict by_id
    cdef int64_t taken

    def __cinit__(self):
        self.by_id = {}


cdef class HeldTasks:
    """Keep the held tasks of every queue; ``lease_s`` is for how long a task is leased."""

    def __init__(self, lease_s: float = 30.0) -> None:
        self.lease_s = lease_s
        self.queues = {}
        self.doubts = {}

    def add(self, queue: str, view: TaskView, now_s: float) -> HeldTask:
        """Hold a task that was leased just now."""
        return self.hold(queue, view, now_s)

    cdef HeldTask hold(self, str queue, TaskView view, double now_s):
        cdef _QueueTasks tasks = self.queues.get(queue)
        cdef HeldTask task = HeldTask.__new__(HeldTask)
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

    def drop(self, task: HeldTask) -> None:
        """Let go of a task: its outcome is written, or it is not ours any more."""
        self.let_go(task)

    def drop_all(self, results: list[Result]) -> None:
        """Let go of the tasks whose results are written."""
        for result in results:
            self.let_go(<HeldTask><object>PyTuple_GET_ITEM(result, 0))

    cdef void let_go(self, HeldTask task):
        cdef _QueueTasks tasks
        task.held = False
        # It points back here: without this, only the cycle collector would free the two.
        task.submission = None
        if task.in_doubt:
            task.in_doubt = False
            self.doubts[task.queue] -= 1
        tasks = self.queues.get(task.queue)
        if tasks is not None and tasks.by_id.get(task.id) is task:
            del tasks.by_id[task.id]

    def doubt(self, task: HeldTask) -> None:
        """Note that a write that ends a held task may or may not have been carried out, until it is dropped."""
        if task.held and not task.in_doubt:
            task.in_doubt = True
            self.doubts[task.queue] = self.doubts.get(task.queue, 0) + 1

    def queues_in_doubt(self) -> frozenset[str]:
        """Return the queues from which nothing is to be taken now.

        A task whose outcome is in doubt might come back from them: the same write, sent again, would then end its
        next run.
        """
        return frozenset([queue for queue, count in self.doubts.items() if count])

    def find(self, task_id: str, queue: str | None = None) -> list[HeldTask]:
        """Return the tasks with an id, of one queue or of any; more than one only if queues share it."""
        cdef _QueueTasks tasks
        if queue is not None:
            task = self.look(queue, task_id)
            return [] if task is None else [task]
        return [tasks.by_id[task_id] for tasks in self.queues.values() if task_id in tasks.by_id]

    def get(self, queue: str, task_id: str) -> HeldTask | None:
        """Return the task of a queue that has this id."""
        return self.look(queue, task_id)

    cdef HeldTask look(self, str queue, str task_id):
        cdef _QueueTasks tasks = self.queues.get(queue)
        return None if tasks is None else tasks.by_id.get(task_id)

    def by_queue(self) -> list[tuple[str, list[HeldTask]]]:
        """Return each queue with the tasks held of it, oldest first."""
        cdef _QueueTasks tasks
        return [(queue, list(tasks.by_id.values())) for queue, tasks in self.queues.items() if tasks.by_id]

    def span(self, queue: str) -> Span:
        """Return from where to where the held tasks of a queue go, by the order in which they were taken."""
        cdef _QueueTasks tasks = self.queues.get(queue)
        cdef HeldTask oldest
        if tasks is None:
            return Span(-1, -1, 0)
        for oldest in tasks.by_id.values():
            return Span(oldest.seq, tasks.taken - 1, len(tasks.by_id))
        return Span(tasks.taken - 1, tasks.taken - 1, 0)

    def steps_to(self, queue: str, results: list[Result]) -> int:
        """Return how many elements LREM passes among our own to find all of these from the oldest end.

        They are to be in order. It takes a look at every held task that is older than the last of them.
        """
        cdef _QueueTasks tasks = self.queues.get(queue)
        cdef HeldTask task
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t count = len(results)
        cdef int64_t older = 0
        cdef int64_t steps = 0
        if tasks is None or not results:
            return 0
        for task in tasks.by_id.values():
            # What was let go of meanwhile is looked for all the same.
            while at < count and seq_at(results, at) < task.seq:
                steps += older
                at += 1
            if at == count:
                break
            if seq_at(results, at) == task.seq:
                steps += older
                at += 1
            else:
                older += 1
        return steps + older * (count - at)

    def __len__(self) -> int:
        cdef _QueueTasks tasks
        return sum([len(tasks.by_id) for tasks in self.queues.values()])
