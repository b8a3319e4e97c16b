# Sends results out of a child, from any of its threads. Included by work.pyx.

cdef extern from *:
    """
    #include <unistd.h>
    #include <stdint.h>
    /* An eventfd needs 8 bytes, which do no harm to a pipe. A full one is readable already. */
    static void fq_ring(int fd) {
        uint64_t one = 1;
        ssize_t done = write(fd, &one, 8);
        (void)done;
    }
    """
    void fq_ring(int fd) nogil

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident()

cdef uint32_t SEGMENT = layout.FLAG_SEGMENT
cdef uint32_t ASLEEP = layout.BELL_ASLEEP
cdef uint32_t AWAKE = layout.BELL_AWAKE
cdef Py_ssize_t SPACE_WANTED_AT = layout.SPACE_WANTED_AT


cdef class Outbox:
    """The result ring and the bell.

    A record that fits the ring is written at once, under the GIL. Threads that must wait for room, or need a segment,
    take turns.
    """

    cdef Memory memory
    cdef Memory bell_memory
    cdef char *bell
    cdef Ring ring
    cdef object host
    cdef int ring_fd
    cdef object turn
    # ``sender`` is the thread that has the turn, 0 for none. ``thread`` runs the tasks: only it consumes wake-ups.
    cdef unsigned long sender, thread
    # The number of segments sent, and the position of the last one's record.
    cdef int64_t segments, last_segment

    def __init__(self, memory: Memory, bell: Memory, shape, host) -> None:
        self.memory, self.bell_memory, self.bell = memory, bell, bell.base + <Py_ssize_t>layout.BELL_AT
        self.ring = Ring(memory, layout.RESULT_TAIL_AT, layout.RESULT_HEAD_AT, shape.result_ring_at, shape.ring_bytes)
        self.host, self.ring_fd = host, host.ring_fd
        self.turn = threading.Lock()
        self.thread = PyThread_get_thread_ident()
        self.last_segment = -1

    cdef bint is_own_thread(self) noexcept:
        return PyThread_get_thread_ident() == self.thread

    cdef int settle(self) except -1:
        """Wait until no other thread is sending."""
        if self.sender:
            with self.turn:
                pass
        return 0

    cdef int send(self, Attempt task, uint32_t kind, bytes data, int64_t ran_ns) except -1:
        """Put a record into the ring, however long that takes; a record from user code only while its task runs."""
        cdef Record record
        cdef unsigned long thread
        record.seq, record.kind, record.flags, record.a, record.b = task.seq, kind, 0, ran_ns, 0
        record.data, record.size = PyBytes_AS_STRING(data), <uint32_t>PyBytes_GET_SIZE(data)
        if self.ring.fits_inline(record.size) and self.ring.push(&record) >= 0:
            return 0
        thread = PyThread_get_thread_ident()
        if self.sender == thread:
            raise RuntimeError("write_result() was called while it is under way, by a signal handler or a finalizer")
        with self.turn:
            if kind >= WRITTEN:
                task.check()  # the task may have ended meanwhile
            self.sender = thread
            try:
                self.send_in_turn(&record, data)
            finally:
                self.sender = 0
                atomic.store32(self.memory.base + SPACE_WANTED_AT, 0)
        return 0

    cdef int send_in_turn(self, Record *record, bytes data) except -1:
        cdef bint inline = self.ring.fits_inline(record.size)
        cdef int64_t position
        if not inline:
            # One at a time: nothing else bounds the segments in transit.
            while self.has_segment_out():
                self.want_room()
                if self.has_segment_out():
                    self.wait()
            # The main process knows a segment without a record by this number: a signal handler may raise before
            # push().
            self.segments += 1
            self.host.send_segment(data, self.segments)
            record.flags, record.b = SEGMENT, self.segments
            data = PyBytes_GET_SIZE(data).to_bytes(8, "little")
            record.data, record.size = PyBytes_AS_STRING(data), <uint32_t>PyBytes_GET_SIZE(data)
        position = self.ring.push(record)
        while position < 0:
            self.want_room()
            position = self.ring.push(record)
            if position < 0:
                self.wait()
        if not inline:
            self.last_segment = position
        return 0

    cdef bint has_segment_out(self) noexcept:
        return self.last_segment >= 0 and self.ring.untaken(self.last_segment)

    cdef int wait(self) except -1:
        if self.is_own_thread():
            self.host.sleep()
        else:
            self.host.pause()
        return 0

    cdef void want_room(self) noexcept:
        """Ask for a wake-up when results were read; the caller checks again before it sleeps."""
        atomic.store32(self.memory.base + SPACE_WANTED_AT, 1)
        self.ring_bell()  # its fence comes between this flag and the check of the caller

    cdef void ring_bell(self) noexcept:
        """Wake the main process if it sleeps."""
        atomic.fence()  # the result was written before the flag is read
        if atomic.load32(self.bell) == ASLEEP and atomic.swap32(self.bell, ASLEEP, AWAKE):
            fq_ring(self.ring_fd)

    cdef void ring_if_unread(self) noexcept:
        """Wake the main process if it has results to read."""
        if self.ring.unread():
            self.ring_bell()
