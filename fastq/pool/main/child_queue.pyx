"""The main process's side of one child's rings: its submissions, its results, and how long it will be busy."""

import errno
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastq.pool.shared cimport atomics as atomic
from fastq.pool.shared.ring cimport FOUND, Member, Memory, Record, Ring
from fastq.pool.shared.slots cimport Slots

from fastq.pool.shared import layout
from fastq.pool.shared.ring import RingCorruptError
from fastq.pool.shared.control import ChannelClosedError
from fastq.pool.shared.memory import pack_segment, unpack_segment
from fastq.pool.shared.event_kind import EventKind

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/socket.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0  /* Python ignores SIGPIPE */
    #endif
    /* An empty frame on the control socket. A full socket already wakes the child. */
    static void fq_wake(int fd) {
        uint32_t length = 0;
        ssize_t done = send(fd, &length, sizeof length, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)done;
    }
    """
    void fq_wake(int fd) nogil

cdef uint32_t ASYNC = layout.TASK_ASYNC
cdef uint32_t AWAITED = layout.TASK_AWAITED
cdef uint32_t THREADED = layout.TASK_THREADED
cdef uint32_t BATCH = layout.TASK_BATCH
cdef uint32_t SEGMENT = layout.FLAG_SEGMENT
cdef uint32_t DONE = EventKind.DONE
cdef uint32_t BROKEN = EventKind.BROKEN
cdef uint32_t RETURNED = EventKind.RETURNED
cdef uint32_t WRITTEN = EventKind.WRITTEN
cdef uint32_t LAST = max(EventKind)
cdef Py_ssize_t SLEEPING_AT = layout.SLEEPING_AT
cdef Py_ssize_t SPACE_WANTED_AT = layout.SPACE_WANTED_AT
cdef Py_ssize_t COMMAND_AT = layout.COMMAND_AT
cdef Py_ssize_t STOPPING_AT = layout.STOPPING_AT
cdef Py_ssize_t REPORT_AT = layout.REPORT_AT
cdef uint32_t OVER_MEMORY = layout.REPORT_OVER_MEMORY
# A late task is expected to run on for this many times its delay. A child whose task is late by half of prefetch_time
# must get no more tasks, so the factor must be above 2.
cdef double LATE_FACTOR = 4
cdef double FOREVER_NS = 1e18
cdef Py_ssize_t PLACES = layout.PLACES
cdef list KINDS = [None, *EventKind]
MAX_RESULT = 64 * 1024 * 1024
assert [kind for kind in KINDS[1:]] == list(range(1, len(KINDS)))


cdef class Estimate:
    """An estimate of a run time: a moving mean over about ``span`` tasks."""

    def __cinit__(self, span: int = 5):
        self.span = span

    cdef void update(self, double ran_ns) noexcept:
        # The first run counts in full, the second by half, and so on.
        self.count += self.count < self.span
        self.ns += (ran_ns - self.ns) / self.count


cdef class BatchRule:
    """The limits of one call for several tasks: how many tasks and bytes, and how many seconds it waits for them."""

    def __init__(self, size: int, wait: float = 0.0, max_bytes: int = 1_000_000) -> None:
        self.size = size
        self.wait_ns = <int64_t>(<double>wait * 1e9)
        self.max_bytes = max_bytes


cdef class Submission:
    """A task as the pool sees it.

    ``key`` belongs to the caller. Run times are estimated by ``type``. If it ``is_awaited``, its end is reported at
    once, unless the next task in its child is awaited, too. If it ``is_async``, it runs beside others in its child: as
    a coroutine, or in a thread if it also ``is_threaded``. Tasks with the same ``batch`` may be run by one call.
    """

    def __init__(
        self,
        key: object,
        data: bytes,
        type: str = "",
        *,
        timeout: float = 0.0,
        deadline: float = 0.0,
        is_async: bool = False,
    ) -> None:
        self.key = key
        self.data = data
        self.type = type
        self.timeout_ns = <int64_t>(<double>timeout * 1e9)
        self.deadline_unix_ns = <int64_t>(<double>deadline * 1e9)
        self.is_async = is_async

    @staticmethod
    cdef Submission make(object key, bytes data, str type, int64_t timeout_ns, int64_t deadline_unix_ns):
        cdef Submission submission = Submission.__new__(Submission)
        submission.key = key
        submission.data = data
        submission.type = type
        submission.timeout_ns = timeout_ns
        submission.deadline_unix_ns = deadline_unix_ns
        return submission

    @property
    def unit(self) -> Submission:
        """Return the first task of the submission's batch, or the submission itself if it has no batch."""
        return self if self.leader is None else self.leader

    @property
    def is_among_others(self) -> bool:
        """Return whether the submission is in a call with other tasks."""
        return self.leader is not None or bool(self.followers)


cdef class Event:
    """An event of a submission: its end, or what its handler sent meanwhile.

    ``kind`` is an ``EventKind``, and decides what ``data`` is: a result, a report of a failure, in most cases nothing.
    ``ran_ns`` is the run time of the handler, 0 if it did not begin.
    """

    def __init__(self, kind: EventKind, submission: Submission, data: bytes = b"", ran_ns: int = 0) -> None:
        self.kind = kind
        self.submission = submission
        self.data = data
        self.ran_ns = ran_ns

    @staticmethod
    cdef Event make(uint32_t kind, Submission submission, bytes data, int64_t ran_ns):
        cdef Event event = Event.__new__(Event)
        event.kind = KINDS[kind]
        event.submission = submission
        event.data = data
        event.ran_ns = ran_ns
        return event


include "_batches.pxi"


cdef class ChildQueue:
    """The queue of one child: gives it tasks and takes its results; used once the child is ready."""

    def __init__(self, memory: Memory, shape, channel, max_tasks: int) -> None:
        self.memory = memory
        self.tasks = Ring(memory, layout.TASK_TAIL_AT, layout.TASK_HEAD_AT, shape.task_ring_at, shape.ring_bytes)
        self.results = Ring(
            memory, layout.RESULT_TAIL_AT, layout.RESULT_HEAD_AT, shape.result_ring_at, shape.ring_bytes
        )
        self.slots = Slots(memory, shape.rows)
        self.threads = shape.threads
        self.channel = channel
        self.wake_fd = channel.fileno()
        self.in_flight = {}
        self.free_places = []
        self.first_place = shape.first_place
        self.calls = {}
        # How many more tasks this child may be given, -1 for any number.
        self.left = max_tasks or -1

    cdef Py_ssize_t count(self):
        """Return how many calls the child has: a batch counts as one."""
        return len(self.in_flight) - self.following

    cdef Py_ssize_t at_once(self) noexcept:
        """Return how many tasks of the sorts in the child can run at once; for an idle child, the lowest number."""
        cdef Py_ssize_t coroutines = self.slots.count - self.threads
        if self.is_mixed():
            return self.slots.count
        if self.thread_count:
            return self.threads
        return min(self.threads, coroutines) if self.threads and not self.async_count else coroutines

    cdef Py_ssize_t places_left(self) noexcept:
        """Return how many rows are left for tasks that are not the first of their batch."""
        return PLACES - self.following

    cdef bint is_mixed(self) noexcept:
        """Return whether the child has both tasks in threads and coroutines."""
        return 0 < self.thread_count < self.async_count

    cdef Py_ssize_t free_threads(self) noexcept:
        """Return how many more tasks would start in threads; negative if some wait."""
        return self.threads - self.thread_count

    cdef Py_ssize_t free_coroutines(self) noexcept:
        """Return how many more coroutines would start; negative if some wait."""
        return self.slots.count - self.threads - (self.async_count - self.thread_count)

    @property
    def pending(self) -> int:
        """Return how many submissions this child has: waiting, running, or ended but not collected."""
        return len(self.in_flight)

    def set_open(self, accepts: bool) -> None:
        """Set whether the dispatcher may give this child more tasks."""
        self.open = accepts

    # Giving -----------------------------------------------------------------------------------------------------

    cdef void measure_backlog(self, int64_t now):
        """Estimate how long the child will be busy, from one read of its row.

        Ended tasks do not count, even if their results were not collected yet.
        """
        cdef Submission running
        cdef int64_t since
        cdef double elapsed
        cdef double rest
        if not self.count():
            self.charged_ns = 0  # drop what rounding has left over
        self.backlog_ns = self.charged_ns
        if self.async_count:
            self.backlog_ns = self.charged_ns / self.at_once() if now >= self.strict_until else FOREVER_NS
            return
        running = self.in_flight.get(self.slots.running(0))
        since = self.slots.running_since(0)
        if running is None or not since:
            return
        elapsed = now - since
        rest = running.charge_ns - elapsed
        if rest <= 0:
            # A late task is expected to take as long again as it has taken, or longer if it is very late.
            rest = max(elapsed, LATE_FACTOR * -rest)
        self.backlog_ns = max(0.0, self.given_ns - running.given_ns) + rest

    cdef bint is_overdue(self, int64_t now, double grace_ns):
        """Return whether a plain task runs longer than its estimate by more than ``grace_ns``."""
        cdef Submission submission
        cdef int64_t since
        if self.async_count:
            return False
        # In this order: if the row changes to the next task in between, the time is that of the later start.
        submission = self.in_flight.get(self.slots.running(0))
        since = self.slots.running_since(0)
        return submission is not None and since and now - since > submission.charge_ns + grace_ns

    cdef bint push(self, Submission submission, uint64_t seq) except -1:
        """Put a submission into the ring; return False if there is no room. After an error it is not in the ring."""
        cdef Record record
        cdef bytes data = submission.data
        cdef bytes inline
        cdef int64_t position
        record.seq, record.flags = seq, 0
        record.kind = (ASYNC if submission.is_async else 0) | (AWAITED if submission.is_awaited else 0)
        record.kind |= THREADED if submission.is_threaded else 0
        record.a, record.b = submission.timeout_ns, submission.deadline_unix_ns
        if submission.followers:
            record.kind |= BATCH
            data = pack_batch(self, submission, seq)
        inline = data
        if not self.tasks.fits_inline(PyBytes_GET_SIZE(inline)):
            inline = PyBytes_GET_SIZE(inline).to_bytes(8, "little")
            record.flags = SEGMENT
            if not self.tasks.has_room(8):
                unpack_batch(self, submission)
                return False
        self.in_flight[seq] = submission  # this may fail, so it comes before anything that the child sees
        position = -1
        try:
            if not record.flags or self.send_segment(data):
                record.data, record.size = PyBytes_AS_STRING(inline), <uint32_t>PyBytes_GET_SIZE(inline)
                position = self.tasks.push(&record)
        finally:
            if position < 0:
                del self.in_flight[seq]
                unpack_batch(self, submission)
        if position < 0:
            return False
        submission.seq, submission.position, submission.queue = seq, <uint64_t>position, self
        submission.charge_ns = submission.estimate.ns
        self.charged_ns += submission.charge_ns
        self.given_ns += submission.charge_ns
        submission.given_ns = self.given_ns
        self.bytes += PyBytes_GET_SIZE(submission.data)
        self.async_count += submission.is_async
        self.thread_count += submission.is_threaded
        self.backlog_ns += submission.charge_ns / (self.at_once() if submission.is_async else 1)
        self.left -= self.left > 0
        if submission.batch is not None:
            note_batch(self, submission)
        self.touched = True
        return True

    cdef bint send_segment(self, bytes data) except -1:
        fd = pack_segment(data)
        try:
            self.channel.send("segment", [fd], size=len(data))
        except ChannelClosedError:
            return False  # the child is gone, which will be noticed soon, or does not read fast enough
        finally:
            os.close(fd)
        return True

    cdef void ring_if_asleep(self) noexcept:
        """Wake the child if it sleeps; called once after any number of pushes."""
        self.touched = False
        atomic.fence()  # the ring was written before the flag is read
        if atomic.load32(self.memory.base + SLEEPING_AT) and atomic.exchange32(self.memory.base + SLEEPING_AT, 0):
            fq_wake(self.wake_fd)

    def wake(self) -> None:
        """Wake the child for a reason other than a new task."""
        fq_wake(self.wake_fd)

    def tell_to_exit(self) -> None:
        """Let the child end as soon as it runs nothing."""
        atomic.store32(self.memory.base + COMMAND_AT, layout.COMMAND_EXIT)
        fq_wake(self.wake_fd)

    def announce_stop(self) -> None:
        """Let running tasks see that they should come to an end."""
        atomic.store32(self.memory.base + STOPPING_AT, 1)

    cdef uint32_t report(self) noexcept:
        """Return the REPORT_* bits; if one is set, the child takes no more work."""
        return atomic.load32(self.memory.base + REPORT_AT)

    @property
    def is_over_memory(self) -> bool:
        """Return whether the child takes no more work because of its size."""
        return self.report() & OVER_MEMORY != 0

    @property
    def wants_to_leave(self) -> bool:
        """Return whether the child reports that it takes no more work."""
        return self.report() != 0

    @property
    def in_step(self) -> int:
        """Return the sequence number of the task whose coroutine the child's event loop is in, 0 for none."""
        return atomic.load64(self.memory.base + <Py_ssize_t>layout.STEP_AT)

    @property
    def heard(self) -> int:
        """Return how many soft signals the child's Python code has taken."""
        return atomic.load32(self.memory.base + <Py_ssize_t>layout.HEARD_AT)

    @property
    def rss(self) -> int:
        """Return the child's resident bytes by its last measurement."""
        return atomic.load64(self.memory.base + <Py_ssize_t>layout.RSS_AT)

    # Taking -----------------------------------------------------------------------------------------------------

    cdef bint has_results(self) noexcept:
        return not self.corrupt and not self.results.is_empty()

    cdef void forget(self, Submission submission):
        """Remove a submission that has left this child, and its charges."""
        del self.in_flight[submission.seq]
        submission.queue = None
        self.bytes -= PyBytes_GET_SIZE(submission.data)
        if submission.batch is not None:
            if submission.leader is not None:
                self.following -= 1
                self.free_places.append(self.slots.places.pop(submission.seq))
                submission.leader = None
                return
            self.calls[submission.batch] -= 1
            submission.followers = None
        self.charged_ns -= submission.charge_ns
        self.async_count -= submission.is_async
        self.thread_count -= submission.is_threaded

    cdef int collect(self, list events, Estimate mean) except -1:
        """Append an event for every result in the ring; return how many tasks ended.

        After an error nothing is read from this child any more, and it must be killed. A ``RingCorruptError`` is the
        child's fault; other errors, of memory or descriptors, are not.
        """
        if self.corrupt:
            return 0
        self.corrupt = True
        ended = self.collect_sound(events, mean)
        self.corrupt = False
        return ended

    cdef int collect_sound(self, list events, Estimate mean) except -1:
        cdef Record record
        cdef Submission submission
        cdef int ended = 0
        while self.results.look(&record) == FOUND:
            submission = self.in_flight.get(record.seq)
            if record.flags & SEGMENT:
                data = self.receive_segment(int.from_bytes(record.data[: record.size], "little"), record.b)
            else:
                data = PyBytes_FromStringAndSize(record.data, record.size)
            self.results.advance(&record)
            if submission is None and WRITTEN <= record.kind <= LAST:
                continue  # a thread of the handler wrote it while the handler ended
            if submission is None or not 0 < record.kind <= LAST:
                raise RingCorruptError(f"a result of kind {record.kind} for {record.seq}, which the child does not have")
            events.append(Event.make(record.kind, submission, data, record.a))
            if record.kind < WRITTEN and submission.batch is not None:
                ended += self.end_of(record.kind, submission, events, record.a, mean)
            elif record.kind < WRITTEN:
                self.forget(submission)
                submission.estimate.update(record.a)
                mean.update(record.a)
                ended += 1
        self.finished += ended
        if ended:
            self.ended_at = atomic.now_ns()
        self.results.publish_head()
        atomic.fence()  # the room is visible before the flag is read
        if atomic.load32(self.memory.base + SPACE_WANTED_AT):
            fq_wake(self.wake_fd)
        return ended

    cdef int end_of(self, uint32_t kind, Submission submission, list events, int64_t ran_ns, Estimate mean) except -1:
        """Remove a submission that has ended; return how many ended.

        The end of a batch's first task ends all its tasks that were not reported.
        """
        cdef Submission leader = submission.leader
        cdef int called = max(1, submission.called if leader is None else leader.called)
        cdef int ended = 1
        if leader is None:
            if submission.followers:
                ended += end_rest(kind, submission, events, ran_ns)
            submission.estimate.update(ran_ns)
        self.forget(submission)
        mean.update(<double>ran_ns / called)
        return ended

    def receive_segment(self, size: int, number: int) -> bytes:
        """Take the segment of a record off the control socket, where it was sent before the record.

        Segments with lower numbers have no record: an exception was raised in the child between the two. They are
        dropped.
        """
        try:
            while (frame := self.channel.poll()) is not None and frame.number("number") < number:
                for fd in frame.fds:
                    os.close(fd)
        except ChannelClosedError as error:
            raise RingCorruptError(f"the segment of a result is missing: {error}") from error
        if frame is None or frame.number("number") != number or not 0 <= size <= MAX_RESULT:
            raise RingCorruptError("the segment of a result is missing or too big")
        if not frame.fds:
            raise OSError(errno.EMFILE, "the segment of a result was lost: the main process has no descriptor left")
        try:
            return unpack_segment(frame.fds[0], size)
        except ValueError as error:
            raise RingCorruptError(str(error)) from error

    cdef list take_back(self, Submission submission):
        """Withdraw a submission with all of its batch; return them, or nothing if the child has begun it.

        After a withdrawal the caller must wake the child: it may have waited for a row for this submission, and have a
        row for the next submission.
        """
        cdef Submission unit = submission if submission.leader is None else submission.leader
        if not self.tasks.take_back(unit.position):
            return []
        taken = [unit]
        if unit.followers:
            taken += unit.followers
        for submission in reversed(taken):
            self.forget(submission)
        self.given_ns -= unit.charge_ns
        self.left += self.left >= 0
        return taken

    def take_back_all(self) -> list[Submission]:
        """Withdraw all submissions that the child has not begun, oldest first."""
        cdef Submission submission
        taken = []
        for submission in list(self.in_flight.values()):
            if submission.leader is None:
                taken += self.take_back(submission)
        if taken:
            self.wake()
        return taken

    def remaining(self) -> list[Submission]:
        """Return the submissions whose ends were not collected, oldest first."""
        return list(self.in_flight.values())

    def find(self, seq: int) -> Submission | None:
        """Return the submission with a sequence number, None if the child does not have it."""
        return self.in_flight.get(seq)

    def oldest_waiting(self) -> int:
        """Return when the pool got the oldest submission that the child has not begun, 0 for none."""
        cdef Submission submission
        if self.tasks.is_drained():
            return 0  # saves a look at thousands of coroutines
        for submission in self.in_flight.values():
            if self.tasks.untaken(submission.position):
                return max(submission.submitted_at, submission.due_at)
        return 0

    def runs_on(self, submission: Submission) -> bool:
        """Return whether the call of a submission must go on, because another task of its batch was not told to end."""
        cdef Submission unit = submission if submission.leader is None else submission.leader
        cdef Submission other
        if not unit.followers:
            return False
        for other in reversed(unit.followers):
            if self.slots.is_untold(other.seq):
                return True
        return self.slots.is_untold(unit.seq)

    def is_deaf(self, now: int, patience_ns: int) -> bool:
        """Return whether the child is idle but has read none of its waiting tasks for ``patience_ns``.

        The time counts from the first look, and anew after this process was suspended.
        """
        cdef int64_t now_ns = now
        cdef bint was_away = now_ns - self.looked_at > <int64_t>patience_ns // 4
        self.looked_at = now_ns
        if self.tasks.is_drained() or was_away or self.tasks.head != self.alive_head or not self.slots.are_idle():
            self.alive_head, self.alive_at = self.tasks.head, now_ns
        return now_ns - self.alive_at > <int64_t>patience_ns

    def end(self, submission: Submission, kind: EventKind, data: bytes) -> Event:
        """Remove a submission whose child is dead, and return its event."""
        row = self.slots.look(submission.seq)
        self.forget(submission)
        return Event.make(kind, submission, data, atomic.now_ns() - row[2] if row else 0)
