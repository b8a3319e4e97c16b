"""A ring of byte records between one producer and one consumer, in memory that two processes share.

Positions are bytes since the ring was made and never wrap (2**64); the place in memory is the position modulo the
capacity. A record never crosses the end: a pad record fills what is left. While little is unread, a pad comes long
before the end, so that most pages of a ring are never used. The producer alone writes records and the tail, the
consumer alone the head; only a record's state word is written by both, by compare-and-swap.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastq.pool.shared cimport atomics as atomic

from fastq.pool.shared import layout

cdef Py_ssize_t SIZE_AT = layout.RECORD_SIZE_AT
cdef Py_ssize_t STATE_AT = layout.RECORD_STATE_AT
cdef Py_ssize_t SEQ_AT = layout.RECORD_SEQ_AT
cdef Py_ssize_t KIND_AT = layout.RECORD_KIND_AT
cdef Py_ssize_t FLAGS_AT = layout.RECORD_FLAGS_AT
cdef Py_ssize_t A_AT = layout.RECORD_A_AT
cdef Py_ssize_t B_AT = layout.RECORD_B_AT
cdef uint64_t HEADER = layout.RECORD_HEADER
cdef uint64_t ALIGN = layout.RECORD_ALIGN
cdef uint32_t WAITING = layout.RECORD_WAITING
cdef uint32_t RUNNING = layout.RECORD_RUNNING
cdef uint32_t WITHDRAWN = layout.RECORD_WITHDRAWN
cdef uint32_t PAD = layout.RECORD_PAD
cdef uint64_t NOWHERE = 2**64 - 1
cdef uint64_t LOW = 3
# Each as 1/n of the capacity. Behind BACK_AFTER, a record of at most SMALL goes to the beginning of the ring if at most
# BACK_WITH is unread.
cdef uint64_t BACK_AFTER = 8
cdef uint64_t BACK_WITH = 32
cdef uint64_t SMALL = 64


class RingCorruptError(Exception):
    """Raised when the other process wrote something impossible into a ring."""


def now_ns() -> int:
    """Return CLOCK_MONOTONIC in nanoseconds, the clock of everything in shared memory."""
    return atomic.now_ns()


cdef class Memory:
    """A pinned writable buffer and its address."""

    def __cinit__(self, buffer) -> None:
        PyObject_GetBuffer(buffer, &self.view, PyBUF_WRITABLE)
        self.base = <char *>self.view.buf
        self.size = self.view.len

    def __dealloc__(self) -> None:
        PyBuffer_Release(&self.view)


cdef class Ring:
    """A ring of records from one process to another; each side makes its own object over the same memory."""

    def __init__(self, memory: Memory, tail_at: int, head_at: int, data_at: int, capacity: int) -> None:
        if capacity <= 0 or capacity & (capacity - 1):
            raise ValueError(f"ring capacity must be a power of two, not {capacity}")
        if min(tail_at, head_at, data_at) < 0 or max(tail_at + 8, head_at + 8, data_at + capacity) > memory.size:
            raise ValueError(f"ring at {data_at} of {capacity} bytes leaves its memory of {memory.size} bytes")
        self.memory = memory
        self.tail_at = memory.base + <Py_ssize_t>tail_at
        self.head_at = memory.base + <Py_ssize_t>head_at
        self.data = memory.base + <Py_ssize_t>data_at
        self.capacity = capacity
        self.tail = atomic.load64(self.tail_at)
        self.head = atomic.load64(self.head_at)
        self.low_at = NOWHERE
        self.pad_end = self.pad_size = 0

    # Producer ---------------------------------------------------------------------------------------------------

    cdef bint fits_inline(self, Py_ssize_t size) noexcept:
        # A quarter, so that such a record and its pad fit into a ring that runs empty, wherever the tail is.
        return <uint64_t>size + HEADER <= self.capacity // 4

    cdef bint is_drained(self) noexcept:
        """Return whether the consumer has read everything."""
        self.head = atomic.load64(self.head_at)
        return self.head == self.tail

    cdef int64_t unread(self) noexcept:
        """Return how many bytes the consumer has yet to read; the last pad does not count."""
        self.head = atomic.load64(self.head_at)
        return <int64_t>(self.tail - self.head - (self.pad_size if self.head < self.pad_end else 0))

    cdef bint has_room(self, Py_ssize_t size) noexcept:
        """Return whether a push of ``size`` bytes would succeed now."""
        cdef uint64_t need = (HEADER + size + ALIGN - 1) & ~(ALIGN - 1)
        cdef uint64_t to_end = self.capacity - (self.tail & (self.capacity - 1))
        self.head = atomic.load64(self.head_at)
        return self.tail + need + (to_end if to_end < need else 0) - self.head <= self.capacity

    cdef int64_t push(self, Record *record) noexcept:
        """Append a record; return its position, or -1 when there is no room now."""
        cdef uint64_t need = (HEADER + record.size + ALIGN - 1) & ~(ALIGN - 1)
        cdef uint64_t place = self.tail & (self.capacity - 1)
        cdef uint64_t to_end = self.capacity - place
        cdef uint64_t pad = 0
        cdef uint64_t position
        cdef char *at
        if to_end < need or place > self.capacity // BACK_AFTER and self.may_go_back(need):
            pad = to_end
        if self.tail + pad + need - self.head > self.capacity:
            self.head = atomic.load64(self.head_at)  # acquire: the consumer has read what it freed
            if self.tail + pad + need - self.head > self.capacity:
                return -1
        if pad >= HEADER:
            at = self.data + (self.tail & (self.capacity - 1))
            (<uint32_t *>(at + SIZE_AT))[0] = 0
            (<uint32_t *>(at + STATE_AT))[0] = PAD
        position = self.tail + pad
        if pad:
            self.pad_end, self.pad_size = position, pad
        at = self.data + (position & (self.capacity - 1))
        (<uint32_t *>(at + SIZE_AT))[0] = record.size
        (<uint32_t *>(at + STATE_AT))[0] = WAITING
        (<uint64_t *>(at + SEQ_AT))[0] = record.seq
        (<uint32_t *>(at + KIND_AT))[0] = record.kind
        (<uint32_t *>(at + FLAGS_AT))[0] = record.flags
        (<int64_t *>(at + A_AT))[0] = record.a
        (<int64_t *>(at + B_AT))[0] = record.b
        memcpy(at + HEADER, record.data, record.size)
        self.tail = position + need
        atomic.store64(self.tail_at, self.tail)  # release: the record is whole before it can be seen
        return <int64_t>position

    cdef bint may_go_back(self, uint64_t need) noexcept:
        """Return whether a record may go to the beginning, where it has room, before the end of the ring is reached."""
        if need > self.capacity // SMALL:
            return False
        self.head = atomic.load64(self.head_at)
        return self.tail - self.head <= self.capacity // BACK_WITH

    cdef bint untaken(self, uint64_t position) noexcept:
        """Return whether the consumer has not moved past ``position``, so that the record there is still intact."""
        self.head = atomic.load64(self.head_at)
        return position >= self.head

    cdef bint take_back(self, uint64_t position) noexcept:
        """Withdraw the record at ``position``; return False if the consumer has claimed it."""
        # Only this side overwrites past records, so the check cannot become stale before the swap.
        return self.untaken(position) and atomic.swap32(
            self.data + (position & (self.capacity - 1)) + STATE_AT, WAITING, WITHDRAWN)

    # Consumer ---------------------------------------------------------------------------------------------------

    cdef bint is_empty(self) noexcept:
        return atomic.load64(self.tail_at) == self.head

    cdef int look(self, Record *record) except -1:
        """Show the next record, if there is one; only pads are consumed."""
        cdef uint64_t tail = atomic.load64(self.tail_at)  # acquire: every record before the tail is whole
        cdef uint64_t to_end
        cdef char *at
        if tail != self.tail:
            self.tail, self.low_at = tail, tail - (tail - self.head) // LOW
        while True:
            if self.head == tail:
                return NOTHING
            to_end = self.capacity - (self.head & (self.capacity - 1))
            at = self.data + (self.head & (self.capacity - 1))
            # The other process may be broken: nothing that it wrote is used before a check of its bounds.
            if tail - self.head > self.capacity or self.head & (ALIGN - 1):
                raise RingCorruptError(f"tail {tail} does not go with head {self.head}")
            if to_end < HEADER or atomic.load32(at + STATE_AT) == PAD:
                if tail - self.head < to_end:
                    raise RingCorruptError(f"pad at {self.head} goes beyond tail {tail}")
                self.head += to_end
                if self.low_at != NOWHERE:
                    self.low_at = tail - (tail - self.head) // LOW  # pads do not count as work
                continue
            record.size = (<uint32_t *>(at + SIZE_AT))[0]
            record.end = self.head + ((HEADER + record.size + ALIGN - 1) & ~(ALIGN - 1))
            if HEADER + record.size > to_end or record.end - self.head > tail - self.head:
                raise RingCorruptError(f"record at {self.head} of {record.size} bytes goes beyond tail {tail}")
            record.at = at
            record.seq = (<uint64_t *>(at + SEQ_AT))[0]
            record.kind = (<uint32_t *>(at + KIND_AT))[0]
            record.flags = (<uint32_t *>(at + FLAGS_AT))[0]
            record.a = (<int64_t *>(at + A_AT))[0]
            record.b = (<int64_t *>(at + B_AT))[0]
            record.data = at + HEADER
            return FOUND

    cdef bint runs_low(self) noexcept:
        """Return whether at most a third is left of the bytes found last; True only once until more come."""
        if self.head < self.low_at:
            return False
        self.low_at = NOWHERE
        return True

    cdef bint claim(self, Record *record) noexcept:
        """Claim the record; return False if the producer has withdrawn it."""
        return atomic.swap32(record.at + STATE_AT, WAITING, RUNNING)

    cdef bint is_withdrawn(self, Record *record) noexcept:
        """Return whether the producer has withdrawn the record."""
        return atomic.load32(record.at + STATE_AT) == WITHDRAWN

    cdef void advance(self, Record *record) noexcept:
        """Step over the record. The producer learns of it by publish_head()."""
        self.head = record.end

    cdef void publish_head(self) noexcept:
        atomic.store64(self.head_at, self.head)  # release: the freed bytes have been read

    # Python's view, for tests and tools -------------------------------------------------------------------------

    def put(self, seq: int, data: bytes, kind: int = 0, a: int = 0, b: int = 0) -> int:
        """Append a record; return its position, -1 if there is no room now; ``ValueError`` if there never will be."""
        cdef Record record
        if not self.fits_inline(len(data)):
            raise ValueError(f"a record of {len(data)} bytes does not fit a ring of {self.capacity}")
        record.seq, record.kind, record.flags, record.a, record.b = seq, kind, 0, a, b
        record.data = PyBytes_AS_STRING(data)
        record.size = <uint32_t>PyBytes_GET_SIZE(data)
        return self.push(&record)

    def take(self) -> tuple[int, int, bytes] | None:
        """Claim the next record and return its sequence number, kind and bytes, or ``None`` when there is none."""
        cdef Record record
        while self.look(&record) == FOUND:
            if self.claim(&record):
                data = PyBytes_FromStringAndSize(record.data, record.size)
                self.advance(&record)
                self.publish_head()
                return record.seq, record.kind, data
            self.advance(&record)
            self.publish_head()
        return None

    def withdraw(self, position: int) -> bool:
        """Withdraw the record at ``position``; return False if the consumer has claimed it."""
        return self.take_back(position)
