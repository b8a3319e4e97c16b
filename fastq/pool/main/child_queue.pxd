from libc.stdint cimport int64_t, uint32_t, uint64_t

from fastq.pool.shared.ring cimport Memory, Record, Ring
from fastq.pool.shared.slots cimport Slots

cdef class Estimate:
    cdef double ns
    cdef int span
    cdef int count
    cdef void update(self, double ran_ns) noexcept

# Read only, since all tasks that may be in one batch share the object.
cdef class BatchRule:
    cdef readonly Py_ssize_t size
    cdef readonly int64_t wait_ns
    cdef readonly int64_t max_bytes

cdef class Submission:
    cdef readonly object key
    cdef readonly bytes data
    cdef readonly str type
    # The caller of ``make`` sets these right after it.
    cdef readonly bint is_async
    cdef public bint is_awaited, is_threaded
    cdef readonly int64_t timeout_ns
    cdef readonly int64_t deadline_unix_ns
    # Used by the pool while it has the submission.
    cdef readonly uint64_t seq
    cdef uint64_t order
    cdef uint64_t position
    cdef int64_t submitted_at
    cdef double charge_ns
    # The sum of the charges given to the child up to this submission, including its own.
    cdef double given_ns
    cdef Estimate estimate
    cdef readonly ChildQueue queue
    # Set right after ``make``: the rule by which it shares a call with others; None for a task that is called alone.
    cdef public BatchRule batch
    # Set from when a batch is put together until its end is known: ``followers`` in its first task, ``leader`` in the
    # others.
    cdef list followers
    cdef readonly Submission leader
    # In the first task, before the batch goes to a child: when it goes even if it is not full, and the bytes of all its
    # tasks. After that: how many tasks the call is for, and how long the batch waited for them.
    cdef int64_t due_at
    cdef int64_t batch_bytes
    cdef readonly int called
    cdef readonly int64_t gathered_ns
    @staticmethod
    cdef Submission make(object key, bytes data, str type, int64_t timeout_ns, int64_t deadline_unix_ns)

cdef class Event:
    cdef readonly object kind
    cdef readonly Submission submission
    cdef readonly bytes data
    cdef readonly int64_t ran_ns
    @staticmethod
    cdef Event make(uint32_t kind, Submission submission, bytes data, int64_t ran_ns)

cdef class ChildQueue:
    cdef Memory memory
    cdef Ring tasks
    cdef Ring results
    cdef readonly Slots slots
    cdef object channel
    cdef int wake_fd
    cdef dict in_flight
    # ``following``: how many of ``in_flight`` are not the first of their batch. The others: the free rows for such
    # tasks, and how many rows were made.
    cdef Py_ssize_t following
    cdef list free_places
    cdef int first_place, made_places
    # How many calls the child has for each ``BatchRule``.
    cdef dict calls
    cdef readonly bint open
    cdef readonly int64_t left
    cdef readonly int async_count, thread_count, threads
    cdef readonly int64_t finished
    cdef double charged_ns
    cdef double given_ns
    cdef int64_t bytes
    cdef double backlog_ns
    cdef bint touched
    # When the end of a task was last read from the child.
    cdef int64_t ended_at
    # Set by the dispatcher: until when the child is reserved for one sort, 0 if it is not.
    cdef int64_t reserved_until
    cdef bint reserved_for_async
    # Set by the dispatcher: until when the child gets no coroutine that would have to wait for a row.
    cdef int64_t strict_until
    # The child's read position and the time, both at its last sign of life; and the time of the last check.
    cdef uint64_t alive_head
    cdef int64_t alive_at
    cdef int64_t looked_at
    cdef bint corrupt
    cdef Py_ssize_t count(self)
    cdef Py_ssize_t at_once(self) noexcept
    cdef bint is_mixed(self) noexcept
    cdef Py_ssize_t free_threads(self) noexcept
    cdef Py_ssize_t free_coroutines(self) noexcept
    cdef void measure_backlog(self, int64_t now)
    cdef bint is_overdue(self, int64_t now, double grace_ns)
    cdef bint push(self, Submission submission, uint64_t seq) except -1
    cdef bint send_segment(self, bytes data) except -1
    cdef Py_ssize_t places_left(self) noexcept
    cdef void forget(self, Submission submission)
    cdef int end_of(self, uint32_t kind, Submission submission, list events, int64_t ran_ns, Estimate mean) except -1
    cdef int collect_sound(self, list events, Estimate mean) except -1
    cdef int collect(self, list events, Estimate mean) except -1
    cdef list take_back(self, Submission submission)
    cdef bint has_results(self) noexcept
    cdef uint32_t report(self) noexcept
    cdef void ring_if_asleep(self) noexcept
