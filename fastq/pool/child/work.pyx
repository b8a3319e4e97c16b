"""The child's side of its rings: take a record, run it, send the result. The pool's hot path in the child.

The handler of the soft signal raises only while ``Work.task``, the task whose row the main process marked, is in user
code. So it can hit neither another task nor the pool's own bookkeeping. An error that is set for the thread of a task
is as safe: from the look at ``Attempt.thread`` until the error is set, the GIL is held and no bytecode runs.

Results come from any thread (``Outbox``); a fork of the child sends none.
"""

import queue
import sys
import threading
from contextvars import copy_context
from opcode import opmap as _opmap

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastq.pool.shared cimport atomics as atomic
from fastq.pool.shared.ring cimport FOUND, Member, Memory, Record, Ring
from fastq.pool.shared.slots cimport Slots

from fastq.errors import TaskCanceled, TaskEndedError, TaskTimeout
from fastq.pool.shared import layout
from fastq.pool.shared.event_kind import NOT_BEGUN, TOO_LATE, EventKind, reason_for
from fastq.pool.shared.event_kind import DECISIONS as _KINDS
from fastq.pool.shared.event_kind import TOLD_TO_END as _TOLD_TO_END
from fastq.pool.shared.processes import leave
from fastq.pool.child.last_words import last_words
from fastq.pool.child.thrown import Settled, settle

cdef extern from "Python.h":
    object PyContext_Copy(object context)
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1
    int PyThreadState_SetAsyncExc(unsigned long thread, PyObject *error)
    unsigned long PyThread_get_thread_native_id()

cdef uint32_t ASYNC = layout.TASK_ASYNC
cdef uint32_t AWAITED = layout.TASK_AWAITED
cdef uint32_t THREADED = layout.TASK_THREADED
cdef uint32_t BATCH = layout.TASK_BATCH
cdef uint32_t EXIT = layout.COMMAND_EXIT
cdef int ROW_IDLE = layout.ROW_IDLE
cdef int ROW_RUNNING = layout.ROW_RUNNING
cdef Py_ssize_t SLEEPING_AT = layout.SLEEPING_AT
cdef Py_ssize_t COMMAND_AT = layout.COMMAND_AT
cdef Py_ssize_t STOPPING_AT = layout.STOPPING_AT
cdef Py_ssize_t REPORT_AT = layout.REPORT_AT
cdef Py_ssize_t RSS_AT = layout.RSS_AT
cdef Py_ssize_t HEARD_AT = layout.HEARD_AT
cdef uint32_t OVER_MEMORY = layout.REPORT_OVER_MEMORY
cdef uint32_t NO_DESCRIPTORS = layout.REPORT_NO_DESCRIPTORS
cdef uint32_t DONE = EventKind.DONE
cdef uint32_t BROKEN = EventKind.BROKEN
cdef uint32_t TIMEOUT = EventKind.TIMEOUT
cdef uint32_t WRITTEN = EventKind.WRITTEN
cdef uint32_t PROGRESS = EventKind.PROGRESS
cdef uint32_t CHECKPOINT = EventKind.CHECKPOINT
cdef uint32_t RETURNED = EventKind.RETURNED
cdef uint32_t LAST_ANSWER = EventKind.MEMORY_LIMIT
cdef int64_t MEASURE_EVERY = 1_000_000  # ns: reading the RSS costs about as much as a no-op task
MAX_RESULT = 64 * 1024 * 1024
cdef bytes NEVER_ANY_DESCRIPTOR = b"its worker process has no descriptor for a large payload, from its start: raise its limit"

# Why run() returned.
NOTHING_LEFT = 0
WANTS_COROUTINE = 1
TOLD_TO_EXIT = 2
PARKED = 3

NO_ROW = -1

_INTERRUPTIONS = {
    layout.ROW_TIMED_OUT: EventKind.TIMEOUT,
    layout.ROW_CANCELED: EventKind.CANCELED,
    layout.ROW_ABORTED: EventKind.ABORTED,
    layout.ROW_MEMORY_LIMIT: EventKind.MEMORY_LIMIT,
}
_DECISIONS = tuple(_KINDS.values())


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Attempt:
    """One running task, as its runner sees it (``runner.TaskContext``)."""

    cdef Work work
    cdef readonly int row
    cdef readonly uint64_t seq
    cdef readonly int64_t started_ns
    cdef readonly int64_t deadline_ns
    cdef readonly bytes data
    cdef bint told
    # Whether an error was set for the task's thread. The thread may not have raised it yet.
    cdef bint thrown
    cdef bint is_awaited
    cdef bint is_threaded
    # Progress that came too soon after the last to be sent: it is sent with the end.
    cdef bytes unsent
    # Python's id of the thread that is in the task's user code, where it may be interrupted; 0 for none.
    cdef unsigned long thread
    # In the first task of a batch, ``followers`` are the other tasks, and ``called`` are all tasks whose time was not
    # up at the start. In the other tasks, ``leader`` is the first task.
    cdef readonly list followers
    cdef list called
    cdef Attempt leader

    @property
    def interruption(self) -> EventKind | None:
        """Return TIMEOUT, CANCELED, MEMORY_LIMIT or ABORTED once the task was asked to end."""
        return _INTERRUPTIONS.get(self.work.slots.state(self.row, self.seq))

    @property
    def batch(self) -> tuple[list[bytes], list[Attempt]]:
        """Return the bytes and the attempts of the tasks of a batch whose time was not up at the start."""
        return data_of(self.called), self.called

    @property
    def is_forked(self) -> bool:
        """Return whether this process is a fork of the one that runs the task."""
        return self.work.forked

    @property
    def loop(self) -> object:
        """Return the loop of the child's coroutines, None if it has none."""
        return self.work.host.loop

    def write_result(self, data: bytes) -> None:
        """Send an intermediate result."""
        if len(data) > MAX_RESULT:
            raise ValueError(f"a result of {len(data)} bytes is above the limit of {MAX_RESULT}")
        self.work.write(self, bytes(data), WRITTEN, 0)

    def write_progress(self, data: bytes, is_soon: bool) -> None:
        """Send the handler's progress; if it comes too soon after the last, keep it and send it with the end."""
        self.check()
        self.unsent = data if is_soon else None
        if not is_soon:
            self.work.write(self, data, PROGRESS, 0)

    @property
    def is_stopping(self) -> bool:
        """Return whether running tasks should come to an end, since the server is about to stop."""
        return atomic.load32(self.work.memory.base + STOPPING_AT) != 0

    def save(self, data: bytes) -> int:
        """Send a checkpoint, and return its number."""
        self.work.checkpoints += 1
        number = self.work.checkpoints
        self.work.write(self, data, CHECKPOINT, number)
        return number

    def is_saved(self, number: int) -> bool:
        """Return whether the checkpoint of a number, or a later one, is saved."""
        self.check()
        return self.work.slots.saved(self.row) >= <uint64_t>number

    cdef int check(self) except -1:
        """Raise unless the task runs now, in this process."""
        if self.work.forked:
            raise TaskEndedError("this process is a fork of the worker process that runs it")
        if self.work.slots.state(self.row, self.seq) == ROW_IDLE:
            raise TaskEndedError("it has ended")
        return 0


include "_at_lock.pxi"
include "_outbox.pxi"
include "_batch.pxi"


cdef class Work:
    """Takes the records of a child's task ring, runs them, and sends their results."""

    cdef Memory memory
    cdef Ring tasks
    cdef Outbox outbox
    cdef Slots slots
    cdef object runner
    cdef object host
    cdef int64_t max_memory
    cdef int64_t measured_at
    # The plain task that is in user code and may be interrupted by a signal.
    cdef Attempt task
    # The context that is copied for every task.
    cdef readonly object context
    cdef readonly bint forked
    cdef bint has_begun
    # The rows of free threads, and the function that gets each task that has begun in one of these rows.
    cdef readonly list thread_rows
    cdef object start_thread
    # How many checkpoints the tasks of this child have sent.
    cdef int64_t checkpoints

    def __init__(self, memory: Memory, bell: Memory, shape, runner, host) -> None:
        self.memory = memory
        self.tasks = Ring(memory, layout.TASK_TAIL_AT, layout.TASK_HEAD_AT, shape.task_ring_at, shape.ring_bytes)
        self.outbox = Outbox(memory, bell, shape, host)
        self.slots = Slots(memory, shape.rows)
        self.runner, self.host = runner, host
        self.max_memory = host.max_memory
        self.context = copy_context()
        self.thread_rows = list(range(shape.rows - 1, shape.rows - shape.threads - 1, -1))

    # Plain tasks ------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run plain tasks until there is a reason to stop; return the reason."""
        cdef Attempt task
        cdef Record record
        while True:
            if atomic.load32(self.memory.base + COMMAND_AT) == EXIT:
                return TOLD_TO_EXIT
            if atomic.load32(self.memory.base + REPORT_AT):
                return PARKED
            if self.tasks.look(&record) != FOUND:
                return NOTHING_LEFT
            if record.kind & ASYNC:
                return WANTS_COROUTINE
            task = self.take(&record, 0)
            if task is not None:
                self.execute(task)
                self.ring_if_due()

    cdef void execute(self, Attempt task):
        """Run a plain task to its end."""
        answer = None
        cdef uint32_t kind = DONE
        if 0 < task.deadline_ns <= task.started_ns:
            answer = (EventKind.TIMEOUT, NOT_BEGUN)  # as asynq: a task whose time is up is not started
        else:
            context = PyContext_Copy(self.context)
            try:
                PyContext_Enter(context)
                # From here until leave_handler() an interruption raises in the task; before and after, it does not.
                self.enter_handler(task)
                if self.slots.state(task.row, task.seq) != ROW_RUNNING:
                    self.tell(task)  # the task may have been interrupted already
                if task.followers is None:
                    answer = self.runner.run(task.data, task)
                else:
                    answer = self.runner.run_batch(*task.batch)
                self.leave_handler(task)
            except TaskTimeout:
                kind = EventKind.TIMEOUT
            except TaskCanceled:
                kind = task.interruption or EventKind.CANCELED
            except BaseException as error:  # noqa: BLE001 - SystemExit in a handler must not end the child
                self.leave_handler(task)
                if self.forked:
                    leave(error)
                answer = (BROKEN, last_words(error))
            self.leave_handler(task)
            if self.forked:
                leave(None)  # the handler has returned in a process that it forked; the rings are not its own
            PyContext_Exit(context)
        self.finish(task, kind, answer)

    cdef void enter_handler(self, Attempt task) noexcept:
        if task.is_threaded:
            task.thread = PyThread_get_thread_ident()
        else:
            self.task = task

    cdef void leave_handler(self, Attempt task) noexcept:
        if task.is_threaded:
            task.thread = 0
            if task.thrown:
                task.thrown = False
                PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), <PyObject *>Settled)
                try:
                    settle()
                except Settled:
                    pass
        else:
            self.task = None

    def interrupt(self, signum, frame) -> None:
        """Handle the soft signal: raise in the handler if its task was interrupted."""
        atomic.store32(self.memory.base + HEARD_AT, atomic.load32(self.memory.base + HEARD_AT) + 1)
        if self.task is not None:
            self.tell(self.task)

    cdef int tell(self, Attempt task) except -1:
        """Raise in the task that this thread runs if it was interrupted; only once."""
        if task.told or goes_on(self, task):
            return 0
        kind = task.interruption
        if kind is None:
            return 0
        task.told = True
        raise reason_for(kind)

    # Both kinds -------------------------------------------------------------------------------------------------

    cdef Attempt take(self, Record *record, int row):
        """Claim a record and begin it in a row; return ``None`` if it was withdrawn."""
        cdef Attempt task = None
        cdef bint is_batch = record.kind & BATCH != 0
        cdef bint ours = self.tasks.claim(record)
        if ours:
            task = self.attempt(record.seq, row, record.kind)
            task.started_ns = atomic.now_ns()
            if not is_batch:
                task.deadline_ns = deadline_of(task.started_ns, record.a, record.b)
            self.slots.begin(row, task.seq, task.started_ns, task.deadline_ns)
            if record.flags & SEGMENT == 0:
                read_record(self, task, record, is_batch)
        self.tasks.advance(record)
        self.tasks.publish_head()
        if record.flags & SEGMENT:
            # The segment was sent before its record, and must be taken even if the record was withdrawn.
            try:
                data = self.host.receive_segment(ours)
            except OSError:
                if ours:
                    self.give_back(task)
                return None
            if ours:
                read_segment(self, task, data, is_batch)
        if ours and is_batch:
            open_batch(self, task)
        self.has_begun |= ours
        return task

    cdef Attempt attempt(self, uint64_t seq, int row, uint32_t kind):
        """Make the attempt of a task in a row."""
        cdef Attempt task = Attempt.__new__(Attempt)
        task.work, task.row, task.seq, task.told = self, row, seq, False
        task.is_awaited, task.is_threaded = kind & AWAITED != 0, kind & THREADED != 0
        return task

    cdef int give_back(self, Attempt task) except -1:
        """Return a task that cannot begin here, and ask for a replacement of this child.

        If this child has begun no task at all, its successor would lack descriptors, too: the task fails.
        """
        self.slots.end(task.row, task.seq)
        if self.has_begun:
            atomic.store32(self.memory.base + REPORT_AT, NO_DESCRIPTORS)
            self.outbox.send(task, RETURNED, b"", 0)
        else:
            self.outbox.send(task, BROKEN, NEVER_ANY_DESCRIPTOR, 0)
        self.outbox.ring_bell()
        return 0

    cdef int finish(self, Attempt task, uint32_t kind, object answer) except -1:
        """End a task, or a batch."""
        if task.followers is None:
            return self.finish_one(task, kind, answer)
        return finish_batch(self, task, kind, answer)

    cdef int finish_one(self, Attempt task, uint32_t kind, object answer, bint is_silent=False) except -1:
        """End a task's row and send its outcome; if ``is_silent``, send nothing for a task that is done."""
        cdef int64_t now = atomic.now_ns()
        cdef int state
        data = b""
        if answer is not None:
            try:
                kind, data = answer
                if not (DONE <= kind <= LAST_ANSWER or kind == BROKEN) or not isinstance(data, bytes):
                    raise TypeError(f"a runner answered {answer!r:.200}")
                if PyBytes_GET_SIZE(data) > MAX_RESULT:
                    raise ValueError(f"a result of {len(data)} bytes is above the limit of {MAX_RESULT}")
            except (TypeError, ValueError, OverflowError) as error:
                kind, data = BROKEN, last_words(error)
        self.outbox.settle()  # a result that a thread is sending, perhaps for this task, goes first
        if task.unsent is not None:
            self.outbox.send(task, PROGRESS, task.unsent, 0)
        state = self.slots.end(task.row, task.seq)
        if state != ROW_RUNNING:
            # The interruption decides the outcome, whatever the handler returned. Two answers are kept: the runner's
            # own report of the interruption, and the handler's decision against a retry.
            told = _INTERRUPTIONS.get(state, EventKind.BROKEN)
            if told != kind and not (told in _TOLD_TO_END and kind in _DECISIONS):
                kind, data = told, TOO_LATE if told in _TOLD_TO_END else b""
        try:
            if not is_silent or kind != DONE:
                self.outbox.send(task, kind, data, now - task.started_ns)
        except OSError as error:  # no memory or no descriptor for the segment
            self.outbox.send(task, BROKEN, last_words(error), now - task.started_ns)
        if self.max_memory and now - self.measured_at > MEASURE_EVERY:
            self.measured_at = now
            self.measure()
        if task.is_awaited and not self.next_is_awaited():
            self.outbox.ring_bell()
        return 0

    cdef bint next_is_awaited(self) except -1:
        """Return whether clients wait for the next task, too: then the end of that task rings for both."""
        cdef Record record
        return self.tasks.look(&record) == FOUND and record.kind & AWAITED != 0

    cpdef void ring_if_due(self):
        """Wake the main process if it has results to read, unless this child still has enough work.

        In that case the main process reads them at its tick.
        """
        if self.tasks.runs_low() or self.tasks.is_empty() or atomic.load32(self.memory.base + REPORT_AT):
            self.outbox.ring_if_unread()

    cdef int write(self, Attempt task, bytes data, uint32_t kind, int64_t number) except -1:
        """Send a result, progress or a checkpoint from user code in any thread."""
        cdef Attempt shielded = None
        cdef Attempt unit = task if task.leader is None else task.leader
        cdef bint gets_signals = self.outbox.is_own_thread()
        task.check()
        # An interruption must raise in user code, not here.
        if gets_signals:
            shielded, self.task = self.task, None
        elif unit.thread == PyThread_get_thread_ident():
            shielded, unit.thread = unit, 0
        try:
            self.outbox.send(task, kind, data, number)
            self.outbox.ring_bell()
        finally:
            if shielded is not None:
                self.enter_handler(shielded)
                self.tell(shielded)  # the task may have been interrupted meanwhile
        return 0

    def disown(self) -> None:
        """Mark this process as a fork of the child, which must not take or answer tasks."""
        self.forked = True

    def measure(self) -> int:
        """Publish the RSS of this process, take no more work if it is above the limit, and return the RSS."""
        rss = self.host.rss()
        atomic.store64(self.memory.base + RSS_AT, rss)
        if 0 < self.max_memory < rss:
            atomic.store32(self.memory.base + REPORT_AT, OVER_MEMORY)
        return rss

    # Sleep ------------------------------------------------------------------------------------------------------

    def fall_asleep(self, *, rings: bool = True) -> bool:
        """Set the flag that asks for a wake-up; clear it and return False if there is something to do.

        Without ``rings`` the caller rings the bell itself.
        """
        atomic.store32(self.memory.base + SLEEPING_AT, 1)
        atomic.fence()  # the flag is visible before the ring is read again
        if self.has_news():
            self.wake_up()
            return False
        if rings:
            self.outbox.ring_if_unread()  # its other tasks may have been withdrawn: then no result would ring later
        return True

    def wake_up(self) -> None:
        """Clear the flag that asks for a wake-up."""
        atomic.store32(self.memory.base + SLEEPING_AT, 0)

    cdef bint has_news(self) noexcept:
        if atomic.load32(self.memory.base + COMMAND_AT) == EXIT:
            return True
        return not atomic.load32(self.memory.base + REPORT_AT) and not self.tasks.is_empty()

    # Coroutines -------------------------------------------------------------------------------------------------

    def begin_async(self, row: int) -> Attempt | None:
        """Begin the next record in a row if it is for a coroutine; return ``None`` if it is not or there is none.

        Records for threads that come before it begin in threads. With ``NO_ROW`` no coroutine begins. A withdrawn
        record needs no row, and is skipped: there may be a row for the records behind it.
        """
        cdef Record record
        cdef Attempt task
        cdef int free
        while not atomic.load32(self.memory.base + REPORT_AT) and self.tasks.look(&record) == FOUND:
            free = self.row_for(&record, row)
            if free < 0 and not self.tasks.is_withdrawn(&record):
                return None
            task = self.take(&record, free)
            if task is None:
                continue
            if not task.is_threaded:
                return task
            self.thread_rows.pop()
            self.start_thread(task)
        return None

    cdef int row_for(self, Record *record, int row):
        """Return the row in which a record would begin (``row`` for a coroutine), negative if it must wait."""
        if record.kind & THREADED:
            return self.thread_rows[len(self.thread_rows) - 1] if self.thread_rows else NO_ROW
        return row if record.kind & ASYNC else NO_ROW

    def must_wait(self, row: int) -> bool:
        """Return whether the next record is for a plain task, or there is no row for it."""
        cdef Record record
        return self.tasks.look(&record) == FOUND and self.row_for(&record, row) < 0

    def enter_async(self, task: Attempt) -> None:
        """Note the first step of a coroutine; before it the task has not begun."""
        self.slots.enter(task.row, task.seq)

    def finish_async(self, task: Attempt, kind: int, answer) -> None:
        """Send a coroutine's outcome; in a process that the coroutine forked, exit instead."""
        if self.forked:
            leave(None)
        self.finish(task, kind, answer)

    def was_told(self, task: Attempt) -> bool:
        """Return whether a task, or every task of its batch, was interrupted; True only once."""
        return not goes_on(self, task) and self.slots.see(task.row, task.seq)

    # Threads ----------------------------------------------------------------------------------------------------

    def on_thread(self, start_thread) -> None:
        """Set the function that is called with each task for a thread, once the task has a row."""
        self.start_thread = start_thread

    def run_in_thread(self, task: Attempt) -> None:
        """Run a plain task to its end, in this thread."""
        self.slots.enter_thread(task.row, task.seq, PyThread_get_thread_native_id())
        self.execute(task)

    def raise_in_thread(self, task: Attempt) -> bool:
        """Raise, once, in the thread of a task that was told to end.

        Return False while the thread is outside of user code or takes a lock: the caller tries again.
        """
        error = TaskTimeout if task.interruption is EventKind.TIMEOUT else TaskCanceled
        if task.told:
            return True
        if not task.thread or is_at_lock(task.thread):
            return False
        task.told = task.thrown = True
        PyThreadState_SetAsyncExc(task.thread, <PyObject *>error)
        return True

    @property
    def next_is_plain(self) -> bool:
        """Return whether a plain task is next."""
        cdef Record record
        return self.tasks.look(&record) == FOUND and not record.kind & ASYNC

    @property
    def must_exit(self) -> bool:
        """Return whether the main process wants this child to end."""
        return atomic.load32(self.memory.base + COMMAND_AT) == EXIT
