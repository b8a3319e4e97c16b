"""Turns leased messages into submissions for the pool, and the pool's events into ends; every task passes here.

Only the usual case is handled: messages that can be read, tasks that are not in flight already, and handlers that
simply returned. All else is handed back to the processor.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from fastq._codec cimport DATA, DEADLINE, FASTQ_HEADER, ID, RETENTION, TIMEOUT, TYPE, UNIQUE_KEY, TaskView
from fastq.pool.main.child_queue cimport Event, Submission
from fastq.server.inflight.tally cimport Tally
from fastq.server.inflight.tasks cimport InFlightTask, InFlightTasks
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp

from fastq._codec import completed_message, view_task_message
from fastq.broker.operations.finish import Completed, Done
from fastq.errors import InvalidMessageError
from fastq.pool.main.protocol import EventKind, Sort
from fastq.wire.marks import asked_of

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t count)

cdef object DONE = EventKind.DONE
cdef object RESULT = EventKind.RESULT
cdef object WRITTEN = EventKind.WRITTEN
cdef uint32_t PLAIN = Sort.PLAIN
cdef uint32_t ASYNC = Sort.ASYNC
cdef uint32_t THREADED = Sort.THREADED & ~Sort.ASYNC
cdef int64_t S = 1_000_000_000
# asynq's default: clients write it if the caller sets none. It also applies to a message without timeout and deadline.
cdef int64_t NO_LIMIT_S = 1800
# The pool counts nanoseconds in 64 bits: a time after the year 2255 must not overflow into the past.
cdef int64_t FOREVER_S = 9_000_000_000
cdef int MAX_KNOWN_TYPES = 10_000


cdef class SubmissionMaker:
    """The maker of submissions for leased tasks.

    ``look_up`` returns, by queue and type, how such tasks run (a ``Sort``), their tally, the time limit (seconds) that
    their handler sets for tasks without one, and their handler's rule for batches; the last two may be None.
    """

    cdef InFlightTasks tasks
    cdef object look_up
    cdef dict known
    # The queue of the last task, and its types: the next task mostly comes from the same queue.
    cdef str queue
    cdef dict types
    cdef Py_ssize_t count

    def __init__(self, tasks: InFlightTasks, look_up) -> None:
        self.tasks = tasks
        self.look_up = look_up
        self.known = {}

    def take(
        self, queue: str, ids: list[bytes], messages: list[bytes], now_s: float
    ) -> tuple[list[InFlightTask], list[int]]:
        """Take in the tasks of a queue and make their submissions.

        Return the tasks, and the positions of the messages that were not taken and need a closer look.
        """
        cdef TaskView view
        cdef InFlightTask task
        cdef Py_ssize_t at
        tasks = []
        odd = []
        for at in range(len(ids)):
            try:
                view = view_task_message(messages[at])
            except InvalidMessageError:
                odd.append(at)
                continue
            if not is_same(<str><object>view.slots[ID], ids[at]) or self.tasks.look(queue, <str><object>view.slots[ID]):
                odd.append(at)
                continue
            task = self.tasks.take(queue, view, now_s)
            self.submit(task)
            tasks.append(task)
        return tasks, odd

    def submission(self, task: InFlightTask) -> Submission:
        """Make the submission of a task that is to run, or to run again."""
        return self.submit(task)

    cdef Submission submit(self, InFlightTask task):
        cdef TaskView view = task.view
        cdef int64_t timeout_s = <object>view.slots[TIMEOUT]
        cdef int64_t deadline_s = <object>view.slots[DEADLINE]
        cdef Submission submission
        cdef uint32_t sort
        if timeout_s < 0 or deadline_s < 0:
            deadline_s = 1  # a negative time has passed: asynq does not run such a task either
        if timeout_s == 0 and deadline_s == 0:
            timeout_s = NO_LIMIT_S
        known = self.look(task.queue, <str><object>view.slots[TYPE])
        if timeout_s == NO_LIMIT_S and deadline_s == 0 and <object>PyTuple_GET_ITEM(known, 2) is not None:
            timeout_s = <object>PyTuple_GET_ITEM(known, 2)
        submission = Submission.make(
            task,
            <bytes><object>view.slots[DATA],
            <str><object>view.slots[TYPE],
            min(max(timeout_s, 0), FOREVER_S) * S,
            min(deadline_s, FOREVER_S) * S,
        )
        sort = <object>PyTuple_GET_ITEM(known, 0)
        if <object>PyTuple_GET_ITEM(known, 3) is not None:
            if task.is_alone:
                sort = PLAIN
            else:
                submission.batch = <object>PyTuple_GET_ITEM(known, 3)
        submission.is_async, submission.is_threaded = sort & ASYNC != 0, sort & THREADED != 0
        task.tally = <Tally><object>PyTuple_GET_ITEM(known, 1)
        if view.slots[FASTQ_HEADER] != NULL:
            task.awaiter, task.marks = asked_of(submission.data)
            if task.marks:
                self.tasks.marked_queues.add(task.queue)
            submission.is_awaited = task.awaiter is not None
        task.submission = submission
        return submission

    cdef tuple look(self, str queue, str type):
        if queue is not self.queue or self.types is None:
            self.queue = queue
            self.types = self.known.setdefault(queue, {})
        known = self.types.get(type)
        if known is None:
            if self.count >= MAX_KNOWN_TYPES:  # more types than an app has: forget them all
                self.count = 0
                self.types = {}
                self.known = {queue: self.types}
            known = self.types[type] = self.look_up(queue, type)
            self.count += 1
        return known


def submissions_of(tasks: list[InFlightTask]) -> list[Submission]:
    """Return the submissions of tasks that have not ended meanwhile."""
    cdef InFlightTask task
    submissions = []
    for task in tasks:
        if task.submission is not None and task.disposition is None:
            submissions.append(task.submission)
    return submissions


cdef object pair(type kind, first, second):
    """Make a named tuple of two without its constructor, which is Python code and makes another tuple first."""
    made = PyType_GenericAlloc(kind, 2)
    Py_INCREF(first)
    Py_INCREF(second)
    PyTuple_SET_ITEM(made, 0, first)
    PyTuple_SET_ITEM(made, 1, second)
    return made


cdef bint is_same(str text, bytes raw) except -1:
    cdef Py_ssize_t size
    cdef const char *utf8 = PyUnicode_AsUTF8AndSize(text, &size)
    return size == PyBytes_GET_SIZE(raw) and memcmp(utf8, PyBytes_AS_STRING(raw), size) == 0


cpdef object success_of(InFlightTask task, bytes result, object now_s):
    """Return the disposition of a task whose handler returned, with a result or without."""
    cdef TaskView view = task.view
    retention = <object>view.slots[RETENTION]
    if retention <= 0:
        return pair(Done, task.id, <object>view.slots[UNIQUE_KEY])
    message = completed_message(view, now_s)
    if result is None:
        result = task.written  # saved again with the completion, because its own write may be late or have failed
    return tuple.__new__(Completed, (task.id, message, now_s + retention, <object>view.slots[UNIQUE_KEY], result))


def split_done(events: list[Event], now_s: int) -> tuple[list[InFlightTask], list[Event]]:
    """Return the done tasks, and the other events; count the run times of done tasks, and the calls of batch handlers.

    ``now_s`` is the Unix second. The events of tasks that are no longer in flight here are in neither list.
    """
    cdef Event event
    cdef InFlightTask task
    done = []
    others = []
    for event in events:
        task = event.submission.key
        if event.submission.called and event.ran_ns > 0 and event.kind < WRITTEN and task.tally is not None:
            task.tally.count_call(event.submission.called, event.submission.gathered_ns)
        if not task.in_flight:
            continue
        if event.kind is not DONE and event.kind is not RESULT:
            if event.kind is WRITTEN:
                task.written = event.data  # the task's end may be in the same batch of events
            others.append(event)
            continue
        if event.ran_ns > 0:
            task.ran_ns = event.ran_ns
            if task.tally is not None:
                task.tally.run_s.add(event.ran_ns / 1e9)
        try:
            task.disposition = success_of(task, event.data if event.kind is RESULT else None, now_s)
        except Exception:  # noqa: BLE001 - a defect with one task must not cost others their outcomes
            others.append(event)
        else:
            done.append(task)
    return done, others
