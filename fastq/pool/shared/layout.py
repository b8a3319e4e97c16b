"""Every offset and width of the memory that the main process and its children share.

All numbers are native-endian and aligned to their own width. Times are nanoseconds of ``CLOCK_MONOTONIC`` unless the
name says ``UNIX``. Words that both sides write have a cache line of their own. Any change here must raise VERSION.
"""

from dataclasses import dataclass

VERSION = 9
MAGIC = 0x46515031  # "FQP1"
LINE = 64
PAGE = 4096

# Header of a child's segment.
MAGIC_AT = 0  # u32
VERSION_AT = 4  # u32
ROWS_AT = 8  # u32
THREADS_AT = 12  # u32; how many rows, the last ones, are for threads
RING_BYTES_AT = 16  # u64, of each of the two rings
SLEEPING_AT = 1 * LINE  # u32; child sets it before it sleeps, main clears it when it wakes the child
SPACE_WANTED_AT = 2 * LINE  # u32; child sets it when its result ring is full
COMMAND_AT = 3 * LINE  # u32; main writes a COMMAND_*
STOPPING_AT = 3 * LINE + 4  # u32; main sets it once running tasks should come to an end
REPORT_AT = 4 * LINE  # u32; child writes REPORT_* bits
RSS_AT = 4 * LINE + 8  # u64 bytes; child writes its last measurement
STEP_AT = 4 * LINE + 16  # u64; child writes the sequence number of the coroutine that its event loop is in, 0 for none
HEARD_AT = 4 * LINE + 24  # u32; child writes how many soft signals its Python code has taken
TASK_TAIL_AT = 5 * LINE  # u64 byte position; main
TASK_HEAD_AT = 6 * LINE  # u64 byte position; child
RESULT_TAIL_AT = 7 * LINE  # u64 byte position; child
RESULT_HEAD_AT = 8 * LINE  # u64 byte position; main
SLOTS_AT = 9 * LINE

COMMAND_RUN = 0
COMMAND_EXIT = 1
REPORT_OVER_MEMORY = 1  # it takes no more work and must be replaced
REPORT_NO_DESCRIPTORS = 2  # likewise

# A row of the slot table; plain handlers that run alone use row 0.
ROW_WIDTH = LINE
ROW_WORD_AT = 0  # u64: sequence number << 8 | ROW_* state, one word so that no compare-and-swap hits another task
ROW_START_AT = 8  # i64
ROW_DEADLINE_AT = 16  # i64; 0 = none
ROW_ENTERED_AT = 24  # u64; child writes the sequence number when the coroutine begins its first step
ROW_THREAD_AT = 32  # u64; the system's id of the thread that runs the task, 0 = none
ROW_SAVED_AT = 40  # u64; main writes the number of the last checkpoint that is saved

# The first task of a batch has a row like a single task. The others have rows behind the rings, which the main process
# gives out, so that each of them can be canceled and can save checkpoints. Unused rows take no memory.
PLACES = 8192

ROW_IDLE = 0
ROW_RUNNING = 1
ROW_TIMED_OUT = 2  # main asked for the end: the deadline has passed
ROW_CANCELED = 3  # main asked for the end: somebody canceled the task
ROW_ABORTED = 4  # main asked for the end: the pool shuts down
ROW_MEMORY_LIMIT = 5  # main asked for the end: the child has grown above memory_limit
ROW_SEEN = 0x80  # bit that a child adds to one of the last four states once it has canceled the coroutine

# A record of a ring: a header, then its bytes, padded to 8.
RECORD_SIZE_AT = 0  # u32, bytes of data
RECORD_STATE_AT = 4  # u32, RECORD_*
RECORD_SEQ_AT = 8  # u64
RECORD_KIND_AT = 16  # u32; task: TASK_* bits; result: EventKind
RECORD_FLAGS_AT = 20  # u32, FLAG_*
RECORD_A_AT = 24  # i64; task: timeout, 0 = none; result: how long the handler ran; checkpoint: its number
RECORD_B_AT = 32  # i64; task: deadline, UNIX, 0 = none; result: the number of its segment, 0 = none
RECORD_HEADER = 40
RECORD_ALIGN = 8

RECORD_WAITING = 1  # written, not taken
RECORD_RUNNING = 2  # claimed by the child
RECORD_WITHDRAWN = 3  # claimed back by the main process
RECORD_PAD = 4  # empty up to the end of the ring; the next record is at the start

TASK_ASYNC = 1  # beside others
TASK_AWAITED = 2
TASK_THREADED = 4  # beside others, in a thread
TASK_BATCH = 8  # several tasks for one call: a count (u64), a ``Member`` (ring.pxd) for each, then the data of each
FLAG_SEGMENT = 1  # the data is 8 bytes of length; the bytes are in a segment sent over the control socket

# The segment that all children of a pool share.
BELL_AT = 0  # u32, BELL_*

BELL_AWAKE = 0  # main reads the rings or was already rung; no child needs to ring
BELL_ASLEEP = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of one child's segment: header, slot table, task ring, result ring, rows of batches.

    The last ``threads`` of the ``rows`` are for tasks in threads.
    ``ring_bytes`` is a power of two; a record that would take more than a quarter of it travels in its own segment.
    """

    rows: int
    ring_bytes: int
    threads: int = 0

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"rows must be at least 1, not {self.rows}")
        if not 0 <= self.threads < self.rows:
            raise ValueError(f"threads must be fewer than the {self.rows} rows, not {self.threads}")
        if self.ring_bytes < PAGE or self.ring_bytes & (self.ring_bytes - 1):
            raise ValueError(f"ring_bytes must be a power of two of at least {PAGE}, not {self.ring_bytes}")

    @property
    def task_ring_at(self) -> int:
        """Return where the task ring's bytes begin."""
        return -(-(SLOTS_AT + self.rows * ROW_WIDTH) // PAGE) * PAGE

    @property
    def result_ring_at(self) -> int:
        """Return where the result ring's bytes begin."""
        return self.task_ring_at + self.ring_bytes

    @property
    def first_place(self) -> int:
        """Return the number of the first row behind the rings."""
        return (self.result_ring_at + self.ring_bytes - SLOTS_AT) // ROW_WIDTH

    @property
    def size(self) -> int:
        """Return the bytes of the whole segment."""
        return self.result_ring_at + self.ring_bytes + PLACES * ROW_WIDTH
