from libc.stdint cimport int64_t

cdef enum:
    MOST_BOUNDS = 24
    OUTCOMES = 6
    KINDS = 13


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
    cdef int64_t by_outcome[OUTCOMES]
    cdef int64_t by_kind[KINDS]
    cdef void count(self, object disposition, int failure) noexcept
