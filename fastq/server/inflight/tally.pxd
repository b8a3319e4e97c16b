from libc.stdint cimport int64_t

cdef enum:
    MOST_BOUNDS = 24
    OUTCOMES = 16
    MOST_KINDS = 32
    MOST_COUNTERS = 52  # of the history: as many as there are letters


cdef class Histogram:
    cdef int size
    cdef double limits[MOST_BOUNDS]
    cdef int64_t filled[MOST_BOUNDS + 1]
    cdef readonly double sum
    cdef void add(self, double value) noexcept


cdef class Tally:
    cdef readonly str queue
    cdef readonly str type
    cdef readonly Histogram run_s
    cdef readonly Histogram wait_s
    cdef readonly Histogram attempts
    cdef readonly Histogram call_tasks
    cdef readonly Histogram call_wait_s
    cdef public int64_t lost
    cdef int64_t by_outcome[OUTCOMES]
    cdef int64_t by_kind[MOST_KINDS]
    cdef int64_t excused
    cdef int64_t taken[MOST_COUNTERS]
    cdef int count_call(self, int tasks, int64_t gathered_ns) except -1
    cdef int fill(self, int64_t *counts) noexcept
    cdef void count(self, object disposition, int failure, int64_t retried) noexcept

    # A static method, because a function here would add __pyx_capi__ to the module, which the stub lacks.
    @staticmethod
    cdef int outcome_of(object disposition, int failure) noexcept
