"""The child's side of its rings: take a record, run it, answer. The pool's hot path in the child.

The soft signal is blocked outside user code by ``Work.task``: the signal handler raises only while the task whose row
the main process marked is in user code, so it can neither hit another task nor the pool's own bookkeeping.
"""

import os
import traceback

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastq.pool cimport _atomics as atomic
from fastq.pool._ring cimport FOUND, Memory, Record, Ring
from fastq.pool._slots cimport Slots

from fastq.errors import TaskCanceled, TaskTimeout
from fastq.pool import layout
from fastq.pool.outcome import TOO_LATE, Kind

cdef extern from *:
    """
    #include <unistd.h>
    #include <stdint.h>
    #ifdef __linux__
    #include <sys/timerfd.h>
    static void fq_arm(int fd, long delay_ns) {
        struct itimerspec when = {{0, 0}, {0, delay_ns}};
        timerfd_settime(fd, 0, &when, 0);
    }
    #else
    static void fq_arm(int fd, long delay_ns) { (void)fd; (void)delay_ns; }
    #endif
    /* 8 bytes is what an eventfd wants, and does no harm to a pipe. A full one is readable as it is. */
    static void fq_ring(int fd) {
        uint64_t one = 1;
        ssize_t done = write(fd, &one, 8);
        (void)done;
    }
    """
    void fq_arm(int fd, long delay_ns) nogil
    void fq_ring(int fd) nogil

cdef uint32_t ASYNC = layout.TASK_ASYNC
cdef uint32_t SEGMENT = layout.FLAG_SEGMENT
cdef uint32_t ASLEEP = layout.BELL_ASLEEP
cdef uint32_t ARMED = layout.BELL_ARMED
cdef uint32_t RUNG = layout.BELL_RUNG
cdef uint32_t EXIT = layout.COMMAND_EXIT
cdef int ROW_RUNNING = layout.ROW_RUNNING
cdef Py_ssize_t SLEEPING_AT = layout.SLEEPING_AT
cdef Py_ssize_t SPACE_WANTED_AT = layout.SPACE_WANTED_AT
cdef Py_ssize_t COMMAND_AT = layout.COMMAND_AT
cdef Py_ssize_t REPORT_AT = layout.REPORT_AT
cdef Py_ssize_t RSS_AT = layout.RSS_AT
cdef uint32_t OVER_MEMORY = layout.REPORT_OVER_MEMORY
cdef uint32_t DONE = Kind.DONE
cdef uint32_t BROKEN = Kind.BROKEN
cdef uint32_t WRITTEN = Kind.WRITTEN
cdef uint32_t LAST_ANSWER = Kind.CANCELED
cdef long BELL_DELAY = 250_000  # ns: a wake-up of the main process costs about ten tasks of its time
cdef int64_t MEASURE_EVERY = 1_000_000  # ns: reading one's RSS costs about a no-op task
MAX_RESULT = 64 * 1024 * 1024

# What run() stopped for.
NOTHING_LEFT = 0
WANTS_COROUTINE = 1
TOLD_TO_EXIT = 2
PARKED = 3

_INTERRUPTIONS = {
    layout.ROW_TIMED_OUT: Kind.TIMEOUT,
    layout.ROW_CANCELED: Kind.CANCELED,
    layout.ROW_ABORTED: Kind.ABORTED,
}
_HANDLER_KNEW = (Kind.TIMEOUT, Kind.CANCELED)
_DECISIONS = (Kind.SKIP_RETRY, Kind.REVOKED)


cdef class Task:
    """One running task, as its runner sees it (``runner.TaskContext``)."""

    cdef Work work
    cdef readonly int row
    cdef readonly uint64_t seq
    cdef readonly int64_t started_ns
    cdef readonly int64_t deadline_ns
    cdef readonly bytes data
    cdef bint told

    @property
    def interruption(self) -> Kind | None:
        """Return TIMEOUT, CANCELED or ABORTED once the end was asked for."""
        return _INTERRUPTIONS.get(self.work.slots.state(self.row, self.seq))

    def write_result(self, data: bytes) -> None:
        """Send an intermediate result."""
        if len(data) > MAX_RESULT:
            raise ValueError(f"a result of {len(data)} bytes is above the limit of {MAX_RESULT}")
        self.work.shielded(self, WRITTEN, bytes(data))


cdef class Work:
    """Run the records of one child."""

    cdef Memory memory
    cdef char *bell
    cdef Ring tasks
    cdef Ring results
    cdef Slots slots
    cdef object runner
    cdef object host
    cdef int ring_fd
    cdef int timer_fd
    cdef int64_t max_memory
    cdef int64_t measured_at
    cdef Memory bell_memory
    # The task that is in user code now, and may be interrupted by a signal.
    cdef Task task
    cdef bint forked

    def __init__(self, memory: Memory, bell: Memory, shape, runner, host) -> None:
        self.memory, self.bell_memory, self.bell = memory, bell, bell.base + <Py_ssize_t>layout.BELL_AT
        self.tasks = Ring(memory, layout.TASK_TAIL_AT, layout.TASK_HEAD_AT, shape.task_ring_at, shape.ring_bytes)
        self.results = Ring(memory, layout.RESULT_TAIL_AT, layout.RESULT_HEAD_AT, shape.result_ring_at, shape.ring_bytes)
        self.slots = Slots(memory, shape.rows)
        self.runner, self.host = runner, host
        self.ring_fd, self.timer_fd, self.max_memory = host.ring_fd, host.timer_fd, host.max_memory

    # Plain tasks ------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run plain tasks until there is a reason to stop, and return it."""
        cdef Task task
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
                self.run_plain(task)

    cdef void run_plain(self, Task task):
        answer = None
        cdef uint32_t kind = DONE
        if 0 < task.deadline_ns <= task.started_ns:
            kind = Kind.TIMEOUT  # as asynq: a task whose time is up is not started
        else:
            try:
                # From here to the next assignment a signal raises in the task; before and after, it finds none.
                self.task = task
                if self.slots.state(task.row, task.seq) != ROW_RUNNING:
                    self.interrupt(0, None)  # its signal may have come before
                answer = self.runner.run(task.data, task)
                self.task = None
            except TaskTimeout:
                kind = Kind.TIMEOUT
            except TaskCanceled:
                kind = Kind.CANCELED
            except BaseException:  # noqa: BLE001 - SystemExit in a handler must not end the child
                self.task = None
                answer = (BROKEN, traceback.format_exc().encode())
            self.task = None
            if self.forked:
                os._exit(1)  # a process that the handler forked came out of it; the rings are not its own
        self.finish(task, kind, answer)

    def interrupt(self, signum, frame) -> None:
        """Handle the soft signal: raise in the handler if it was meant for the task that is in it."""
        cdef Task task = self.task
        if task is None or task.told:
            return
        kind = task.interruption
        if kind is None:
            return
        task.told = True
        if kind == Kind.TIMEOUT:
            raise TaskTimeout("the task's time is up")
        raise TaskCanceled("the task was cancelled" if kind == Kind.CANCELED else "the worker shuts down")

    # Both kinds -------------------------------------------------------------------------------------------------

    cdef Task take(self, Record *record, int row):
        """Claim a record and begin it in a row; ``None`` when it was withdrawn."""
        cdef Task task = None
        cdef int64_t absolute
        cdef bint ours = self.tasks.claim(record)
        if ours:
            task = Task.__new__(Task)
            task.work, task.row, task.seq, task.told = self, row, record.seq, False
            task.data = PyBytes_FromStringAndSize(record.data, record.size)
            task.started_ns = atomic.now_ns()
            task.deadline_ns = task.started_ns + record.a if record.a > 0 else 0
            if record.b > 0:
                absolute = max(1, task.started_ns + record.b - atomic.unix_ns())
                task.deadline_ns = min(task.deadline_ns, absolute) if task.deadline_ns else absolute
            self.slots.begin(row, task.seq, task.started_ns, task.deadline_ns)
        self.tasks.advance(record)
        self.tasks.publish_head()
        if record.flags & SEGMENT:
            # Sent before the record, also when that was withdrawn: the two stay in step.
            data = self.host.receive_segment(ours)
            if ours:
                task.data = data
        return task

    cdef void finish(self, Task task, uint32_t kind, object answer):
        """End a task's row and send its outcome."""
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
            except (TypeError, ValueError, OverflowError):
                kind, data = BROKEN, traceback.format_exc().encode()
        state = self.slots.end(task.row, task.seq)
        if state != ROW_RUNNING:
            # Too late is too late, whatever the handler made of it; what its runner says about that outcome is kept.
            told = _INTERRUPTIONS.get(state, Kind.BROKEN)
            if told != kind and not (told in _HANDLER_KNEW and kind in _DECISIONS):
                kind, data = told, TOO_LATE if told in _HANDLER_KNEW else b""
        self.send(task.seq, kind, data, now - task.started_ns)
        if self.max_memory and now - self.measured_at > MEASURE_EVERY:
            self.measured_at = now
            self.measure()
        self.announce(
            now - task.started_ns > BELL_DELAY
            or self.tasks.is_empty()
            or atomic.load32(self.memory.base + REPORT_AT) != 0
        )

    cdef void shielded(self, Task task, uint32_t kind, bytes data):
        """Send from within user code, without a signal tearing a record and its segment apart."""
        cdef Task before = self.task
        self.task = None
        try:
            self.send(task.seq, kind, data, 0)
            self.announce(True)
        finally:
            self.task = before
        if before is not None:
            self.interrupt(0, None)  # what came meanwhile

    cdef void send(self, uint64_t seq, uint32_t kind, bytes data, int64_t ran_ns):
        cdef Record record
        cdef bytes inline = data
        record.seq, record.kind, record.flags, record.a, record.b = seq, kind, 0, ran_ns, 0
        if not self.results.fits_inline(PyBytes_GET_SIZE(data)):
            # One at a time: segments on their way are bounded by nothing else.
            while not self.results.is_drained():
                self.want_room()
                if not self.results.is_drained():
                    self.host.sleep()
            self.host.send_segment(data)
            record.flags = SEGMENT
            inline = PyBytes_GET_SIZE(data).to_bytes(8, "little")
        record.data, record.size = PyBytes_AS_STRING(inline), <uint32_t>PyBytes_GET_SIZE(inline)
        while self.results.push(&record) < 0:
            self.want_room()
            if self.results.push(&record) >= 0:
                break
            self.host.sleep()
        atomic.store32(self.memory.base + SPACE_WANTED_AT, 0)

    cdef void want_room(self) noexcept:
        """Ask to be woken when results were read; the caller looks again before it sleeps."""
        atomic.store32(self.memory.base + SPACE_WANTED_AT, 1)
        self.announce(True)  # its fence stands between the flag and the look

    cdef void announce(self, bint urgent) noexcept:
        """Wake the main process if it sleeps: now, or by timer a little later, so that it finds a batch."""
        cdef uint32_t state
        atomic.fence()  # the result was written before the flag is read
        state = atomic.load32(self.bell)
        if state == ASLEEP and not urgent and self.timer_fd >= 0:
            if atomic.swap32(self.bell, ASLEEP, ARMED):
                fq_arm(self.timer_fd, BELL_DELAY)
            return
        while urgent and (state == ASLEEP or state == ARMED):
            if atomic.swap32(self.bell, state, RUNG):
                fq_ring(self.ring_fd)
                return
            state = atomic.load32(self.bell)

    def disown(self) -> None:
        """Keep this process, a fork of the child, from going on with its work."""
        self.forked = True

    def measure(self) -> int:
        """Publish this process' RSS and, above the limit, take no more work; return it."""
        rss = self.host.rss()
        atomic.store64(self.memory.base + RSS_AT, rss)
        if 0 < self.max_memory < rss:
            atomic.store32(self.memory.base + REPORT_AT, OVER_MEMORY)
        return rss

    # Sleep ------------------------------------------------------------------------------------------------------

    def fall_asleep(self) -> bool:
        """Set the flag that asks for a wake-up; false, and no flag, when there is a reason to stay awake."""
        atomic.store32(self.memory.base + SLEEPING_AT, 1)
        atomic.fence()  # the flag is visible before the ring is read again
        if self.has_news():
            self.wake_up()
            return False
        return True

    def wake_up(self) -> None:
        """Clear the flag."""
        atomic.store32(self.memory.base + SLEEPING_AT, 0)

    cdef bint has_news(self) noexcept:
        if atomic.load32(self.memory.base + COMMAND_AT) == EXIT:
            return True
        return not atomic.load32(self.memory.base + REPORT_AT) and not self.tasks.is_empty()

    # Coroutines -------------------------------------------------------------------------------------------------

    def begin_async(self, row: int) -> Task | None:
        """Begin the next record in a row if it is for a coroutine; ``None`` when it is not, or there is none."""
        cdef Record record
        cdef Task task
        while not atomic.load32(self.memory.base + REPORT_AT) and self.tasks.look(&record) == FOUND:
            if not record.kind & ASYNC:
                return None
            task = self.take(&record, row)
            if task is not None:
                return task
        return None

    def finish_async(self, task: Task, kind: int, answer) -> None:
        """Send a coroutine's outcome."""
        self.finish(task, kind, answer)

    def was_told(self, task: Task) -> bool:
        """Tell, once, that the end of a coroutine's task was asked for."""
        return self.slots.see(task.row, task.seq)

    @property
    def next_is_plain(self) -> bool:
        """Tell whether a plain task waits in front."""
        cdef Record record
        return self.tasks.look(&record) == FOUND and not record.kind & ASYNC

    @property
    def must_exit(self) -> bool:
        """Tell whether the main process wants this child to end."""
        return atomic.load32(self.memory.base + COMMAND_AT) == EXIT
