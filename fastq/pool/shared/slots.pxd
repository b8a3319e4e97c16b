from libc.stdint cimport int64_t, uint64_t

from fastq.pool.shared.ring cimport Memory

cdef class Slots:
    cdef Memory memory
    cdef char *rows
    cdef readonly int count
    cdef char *at(self, int row) noexcept
    cdef void begin(self, int row, uint64_t seq, int64_t start, int64_t deadline) noexcept
    cdef void enter(self, int row, uint64_t seq) noexcept
    cdef void enter_thread(self, int row, uint64_t seq, uint64_t thread) noexcept
    cdef int end(self, int row, uint64_t seq) noexcept
    cdef int state(self, int row, uint64_t seq) noexcept
    cdef uint64_t saved(self, int row) noexcept
    cdef uint64_t running(self, int row) noexcept
    cdef bint are_idle(self) noexcept
    cdef int64_t running_since(self, int row) noexcept
