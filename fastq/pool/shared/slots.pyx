"""The slot table: a row for each running task of a child, with its start, its deadline and its state.

The child begins and ends a row; the main process interrupts it. Sequence number and state are one 64-bit word. So one
compare-and-swap decides whether an end or an interruption came first, and neither can hit another task.
"""

from libc.stdint cimport int64_t, uint64_t

from fastq.pool.shared cimport atomics as atomic
from fastq.pool.shared.ring cimport Memory

from fastq.pool.shared import layout

cdef Py_ssize_t WIDTH = layout.ROW_WIDTH
cdef Py_ssize_t WORD_AT = layout.ROW_WORD_AT
cdef Py_ssize_t START_AT = layout.ROW_START_AT
cdef Py_ssize_t DEADLINE_AT = layout.ROW_DEADLINE_AT
cdef Py_ssize_t ENTERED_AT = layout.ROW_ENTERED_AT
cdef Py_ssize_t THREAD_AT = layout.ROW_THREAD_AT
cdef Py_ssize_t SAVED_AT = layout.ROW_SAVED_AT
cdef int IDLE = layout.ROW_IDLE
cdef int RUNNING = layout.ROW_RUNNING
cdef int TIMED_OUT = layout.ROW_TIMED_OUT
cdef int SEEN = layout.ROW_SEEN


cdef class Slots:
    """The rows of one child's slot table."""

    def __init__(self, memory: Memory, rows: int) -> None:
        if layout.SLOTS_AT + rows * layout.ROW_WIDTH > memory.size:
            raise ValueError(f"{rows} slot rows do not fit {memory.size} bytes of memory")
        self.memory = memory
        self.rows = memory.base + <Py_ssize_t>layout.SLOTS_AT
        self.count = rows
        self.places = {}

    cdef char *at(self, int row) noexcept:
        return self.rows + row * WIDTH

    cdef void begin(self, int row, uint64_t seq, int64_t start, int64_t deadline) noexcept:
        cdef char *at = self.at(row)
        (<int64_t *>(at + START_AT))[0] = start
        (<int64_t *>(at + DEADLINE_AT))[0] = deadline
        # release: a reader that sees the task sees the times of this task.
        atomic.store64(at + WORD_AT, seq << 8 | RUNNING)

    cdef void limit(self, int row, int64_t deadline) noexcept:
        """Set when the time of the row's task is up."""
        (<int64_t *>(self.at(row) + DEADLINE_AT))[0] = deadline

    cdef void enter(self, int row, uint64_t seq) noexcept:
        """Note that the row's coroutine begins its first step."""
        (<uint64_t *>(self.at(row) + ENTERED_AT))[0] = seq

    cdef void enter_thread(self, int row, uint64_t seq, uint64_t thread) noexcept:
        """Note the thread in which the row's task begins."""
        (<uint64_t *>(self.at(row) + THREAD_AT))[0] = thread
        self.enter(row, seq)

    cdef int end(self, int row, uint64_t seq) noexcept:
        """End the task of a row; return ROW_RUNNING, or the state that the main process set when it interrupted it."""
        cdef char *at = self.at(row)
        cdef int state
        if atomic.swap64(at + WORD_AT, seq << 8 | RUNNING, 0):
            return RUNNING
        state = self.state(row, seq)
        atomic.store64(at + WORD_AT, 0)
        return state

    cdef int state(self, int row, uint64_t seq) noexcept:
        """Return the state of a task, ROW_IDLE if the row does not run it."""
        cdef uint64_t word = atomic.load64(self.at(row) + WORD_AT)
        return <int>(word & 0xFF & ~SEEN) if word >> 8 == seq else IDLE

    cdef uint64_t saved(self, int row) noexcept:
        """Return the number of the last checkpoint that the main process has saved for a task of the row."""
        return atomic.load64(self.at(row) + SAVED_AT)

    cdef uint64_t running(self, int row) noexcept:
        """Return the sequence number of the row's task, 0 when it runs none."""
        return atomic.load64(self.at(row) + WORD_AT) >> 8

    cdef int64_t running_since(self, int row) noexcept:
        """Return when the row's task began, 0 when it runs none."""
        cdef char *at = self.at(row)
        return (<int64_t *>(at + START_AT))[0] if atomic.load64(at + WORD_AT) else 0

    # Main process -----------------------------------------------------------------------------------------------

    cdef int row_of(self, uint64_t seq) except -2:
        """Return the row that has a task, -1 if none has."""
        cdef int row
        if self.places:
            place = self.places.get(seq)
            if place is not None:
                return place if self.running(place) == seq else -1
        for row in range(self.count):
            if self.running(row) == seq:
                return row
        return -1

    cdef bint are_idle(self) noexcept:
        """Return whether no row runs anything."""
        cdef int row
        for row in range(self.count):
            if self.running(row):
                return False
        return True

    def running_count(self) -> int:
        """Return how many rows run something."""
        cdef int row
        cdef int found = 0
        for row in range(self.count):
            found += self.running(row) != 0
        for row in self.places.values():
            found += self.running(row) != 0
        return found

    def overdue(self, now: int) -> list[int]:
        """Return the sequence numbers of the tasks whose deadline has passed and that were not interrupted."""
        cdef int64_t limit = now
        cdef uint64_t seq
        cdef int row
        late = []
        for row in range(self.count):
            seq = self.overdue_in(row, limit)
            if seq:
                late.append(seq)
        for row in self.places.values():
            seq = self.overdue_in(row, limit)
            if seq:
                late.append(seq)
        return late

    cdef uint64_t overdue_in(self, int row, int64_t limit) noexcept:
        """Return the sequence number of the task in a row if it is overdue, else 0."""
        cdef char *at = self.at(row)
        cdef uint64_t word = atomic.load64(at + WORD_AT)
        cdef int64_t deadline
        if word & 0xFF != RUNNING:
            return 0
        deadline = (<int64_t *>(at + DEADLINE_AT))[0]
        # If the row changed between the two reads, so did its word.
        return word >> 8 if 0 < deadline <= limit and atomic.load64(at + WORD_AT) == word else 0

    def interrupt(self, seq: int, reason: int) -> bool:
        """Interrupt a running task; return False if it does not run or was interrupted before."""
        cdef uint64_t word = <uint64_t>seq << 8
        cdef int row = self.row_of(seq)
        if row >= 0:
            return atomic.swap64(self.at(row) + WORD_AT, word | RUNNING, word | <int>reason)
        return False

    cdef bint is_untold(self, uint64_t seq) except -1:
        """Return whether a task runs and has not been interrupted."""
        cdef int row = self.row_of(seq)
        return row >= 0 and self.state(row, seq) == RUNNING

    def note_saved(self, seq: int, number: int) -> None:
        """Let a running task see that its checkpoint of this number is saved.

        The numbers in a child only grow, so a late number is not taken for another task's.
        """
        cdef int row = self.row_of(seq)
        if row >= 0 and self.saved(row) < <uint64_t>number:
            atomic.store64(self.at(row) + SAVED_AT, <uint64_t>number)

    def look(self, seq: int) -> tuple[int, bool, int, int] | None:
        """Return a task's state, whether its coroutine was canceled, start and deadline; None if no row has it."""
        cdef int row = self.row_of(seq)
        cdef char *at
        cdef uint64_t word
        if row < 0:
            return None
        at = self.at(row)
        word = atomic.load64(at + WORD_AT)
        if word >> 8 != <uint64_t>seq:
            return None
        return (
            word & 0xFF & ~SEEN,
            word & SEEN != 0,
            (<int64_t *>(at + START_AT))[0],
            (<int64_t *>(at + DEADLINE_AT))[0],
        )

    def is_unentered(self, seq: int) -> bool:
        """Return whether a task is in a row, but its coroutine has not begun its first step."""
        cdef int row = self.row_of(seq)
        return row >= 0 and atomic.load64(self.at(row) + ENTERED_AT) != <uint64_t>seq

    def in_thread(self, thread: int) -> int:
        """Return the sequence number of the task that runs in the thread with this system id, 0 for none."""
        cdef uint64_t seq
        cdef int row
        for row in range(self.count):
            seq = self.running(row)
            if (<uint64_t *>(self.at(row) + THREAD_AT))[0] == <uint64_t>thread and (<uint64_t *>(self.at(row) + ENTERED_AT))[0] == seq:
                return seq
        return 0

    # Child ------------------------------------------------------------------------------------------------------

    def see(self, row: int, seq: int) -> bool:
        """Mark an interrupted coroutine as seen. Return False if it was not interrupted, or was seen before."""
        cdef uint64_t word = atomic.load64(self.at(row) + WORD_AT)
        if word >> 8 != <uint64_t>seq or word & 0xFF < TIMED_OUT or word & SEEN:
            return False
        return atomic.swap64(self.at(row) + WORD_AT, word, word | SEEN)

    def start(self, row: int, seq: int, start: int, deadline: int, *, enters: bool = True) -> None:
        """Begin a task in a row, including its first step; for tests."""
        self.begin(row, seq, start, deadline)
        if enters:
            self.enter(row, seq)

    def finish(self, row: int, seq: int) -> int:
        """End a task in a row; for tests."""
        return self.end(row, seq)
