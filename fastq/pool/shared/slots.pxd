from libc.stdint cimport int64_t, uint64_t

from fastq.pool.shared.ring cimport Memory

cdef class Slots:
    cdef Memory memory
    cdef char *rows
    cdef readonly int count
    # Of the main process: the rows behind the rings that are in use, by sequence number.
    cdef dict places
    cdef char *at(self, int row) noexcept
    cdef void begin(self, int row, uint64_t seq, int64_t start, int64_t deadline) noexcept
    cdef void limit(self, int row, int64_t deadline) noexcept
    cdef void enter(self, int row, uint64_t seq) noexcept
    cdef void enter_thread(self, int row, uint64_t seq, uint64_t thread) noexcept
    cdef int end(self, int row, uint64_t seq) noexcept
    cdef int state(self, int row, uint64_t seq) noexcept
    cdef uint64_t saved(self, int row) noexcept
    cdef uint64_t running(self, int row) noexcept
    cdef int row_of(self, uint64_t seq) except -2
    cdef bint are_idle(self) noexcept
    cdef uint64_t overdue_in(self, int row, int64_t limit) noexcept
    cdef bint is_untold(self, uint64_t seq) except -1
    cdef int64_t running_since(self, int row) noexcept
