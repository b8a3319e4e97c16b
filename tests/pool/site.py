"""A child with one thread, in the test's own process: so a test can hold it still at any instruction."""

from collections.abc import Callable

from fastq.pool.child.work import NO_ROW, Attempt, Work
from fastq.pool.main.wakeup import Wakeup
from fastq.pool.shared.layout import PAGE, RESULT_HEAD_AT, RESULT_TAIL_AT, TASK_HEAD_AT, TASK_TAIL_AT, Layout
from fastq.pool.shared.ring import Memory, Ring
from fastq.pool.shared.runner import Sort
from fastq.pool.shared.slots import Slots


class Site:
    """A child with one thread; it is its own runner and host, too."""

    has_plain, has_async, description = False, True, ""
    child_start = child_stop = ()
    max_memory = 0

    def __init__(self, run: Callable[..., None]) -> None:
        shape = Layout(2, 1 << 16, threads=1)
        memory = Memory(bytearray(shape.size))
        self.run = run
        self.wakeup = Wakeup.create()
        self.ring_fd = self.wakeup.write_fd
        self.tasks = Ring(memory, TASK_TAIL_AT, TASK_HEAD_AT, shape.task_ring_at, shape.ring_bytes)
        self.results = Ring(memory, RESULT_TAIL_AT, RESULT_HEAD_AT, shape.result_ring_at, shape.ring_bytes)
        self.slots = Slots(memory, shape.rows)
        self.work = Work(memory, Memory(bytearray(PAGE)), shape, self, self)  # type: ignore[arg-type]  # enough of both
        self.begun: list[Attempt] = []
        self.work.on_thread(self.begun.append)

    def begin(self, seq: int) -> Attempt:
        """Return a task that has been begun and is for the thread."""
        self.tasks.put(seq, b"", kind=Sort.THREADED)
        assert self.work.begin_async(NO_ROW) is None
        return self.begun[-1]
