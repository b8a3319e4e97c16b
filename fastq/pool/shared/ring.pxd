from cpython.buffer cimport Py_buffer
from libc.stdint cimport int64_t, uint32_t, uint64_t

# One record as the consumer sees it: a view into the ring, valid until advance().
cdef struct Record:
    uint64_t seq
    uint32_t kind
    uint32_t flags
    int64_t a
    int64_t b
    const char *data
    uint32_t size
    char *at
    uint64_t end

# One task in the record of a batch; ``row`` is its row in the slot table, 0 for the first, which has the call's row.
cdef struct Member:
    uint64_t seq
    int64_t timeout
    int64_t deadline
    uint32_t row
    uint32_t kind
    uint64_t size

cdef enum Look:
    NOTHING = 0
    FOUND = 1

# Memory that stays mapped as long as the object that holds it.
cdef class Memory:
    cdef Py_buffer view
    cdef char *base
    cdef readonly Py_ssize_t size

cdef class Ring:
    cdef Memory memory
    cdef char *tail_at
    cdef char *head_at
    cdef char *data
    cdef readonly uint64_t capacity
    cdef uint64_t tail
    cdef uint64_t head
    # For the consumer: the position from which on at most a third is left of the bytes that it found at its last look.
    cdef uint64_t low_at
    # For the producer: where its last pad ends, and the size of that pad.
    cdef uint64_t pad_end, pad_size
    cdef int64_t push(self, Record *record) noexcept
    cdef int look(self, Record *record) except -1
    cdef bint claim(self, Record *record) noexcept
    cdef bint is_withdrawn(self, Record *record) noexcept
    cdef void advance(self, Record *record) noexcept
    cdef void publish_head(self) noexcept
    cdef bint take_back(self, uint64_t position) noexcept
    cdef bint may_go_back(self, uint64_t need) noexcept
    cdef bint untaken(self, uint64_t position) noexcept
    cdef bint is_empty(self) noexcept
    cdef bint runs_low(self) noexcept
    cdef bint is_drained(self) noexcept
    cdef int64_t unread(self) noexcept
    cdef bint has_room(self, Py_ssize_t size) noexcept
    cdef bint fits_inline(self, Py_ssize_t size) noexcept
