"""Ends tasks: first by a state in their row and a signal, then, after a grace, by SIGKILL to the child's group.

Wakes at the pool's tick; reads the slot tables; writes a row's state by compare-and-swap. Everything it knows can be
read again from the rows, except when the grace of an interrupted task ends.
"""

from dataclasses import dataclass

from fastq.pool._child_queue import Submission
from fastq.pool.child import Child, ChildState
from fastq.pool.layout import ROW_TIMED_OUT
from fastq.pool.processes import thread_cpu

__all__ = ["Timekeeper"]

_LIVE = (ChildState.READY, ChildState.LEAVING)
# How long it takes, at least and at most, to tell by CPU time which thread holds the interpreter. The threads that wait
# for it wake every 5 ms.
_LOOK_NS, _LAST_LOOK_NS = 100_000_000, 1_000_000_000
_LEAST_CPU_NS = 2_000_000


@dataclass(slots=True)
class _Interrupted:
    child: Child
    submission: Submission
    kill_at_ns: int
    cpu: dict[int, int] | None = None  # by thread, at the first look for the one that holds the interpreter


class Timekeeper:
    """The time limits of running tasks: asks tasks to end when their time is up, and kills children that do not."""

    def __init__(self, grace_s: float) -> None:
        self.grace_ns = round(grace_s * 1e9)
        self._interrupted: dict[int, _Interrupted] = {}

    def interrupt(self, child: Child, submission: Submission, reason: int, now_ns: int) -> bool:
        """Ask a running task to end; return False if it does not run or was asked before."""
        if child.state not in _LIVE or not child.queue.slots.interrupt(submission.seq, reason):
            return False
        self._interrupted[submission.seq] = _Interrupted(child, submission, now_ns + self.grace_ns)
        if self.grace_ns:
            child.signal(submission)
        else:
            child.kill(submission)
        return True

    def check(self, children: list[Child], now_ns: int) -> None:
        """Interrupt tasks whose time is up, and kill children whose interrupted tasks outlast their grace."""
        for child in children:
            if child.state in _LIVE and child.queue.pending:
                for seq in child.queue.slots.overdue(now_ns):
                    if (submission := child.queue.find(seq)) is not None:
                        self.interrupt(child, submission, ROW_TIMED_OUT, now_ns)
        for seq, interrupted in list(self._interrupted.items()):
            row = interrupted.child.queue.slots.look(seq) if interrupted.child.state in _LIVE else None
            if row is None:
                del self._interrupted[seq]
            elif now_ns >= interrupted.kill_at_ns:
                if row[1] or not interrupted.submission.is_async:
                    interrupted.child.kill(interrupted.submission)
                elif not self._kill_unheard(interrupted, now_ns):
                    continue
                del self._interrupted[seq]

    def _kill_unheard(self, interrupted: _Interrupted, now_ns: int) -> bool:
        """Kill a child whose interrupted task could not be told, and blame the task that is the cause of that.

        Return False if it takes a while to find it.
        """
        child, queue = interrupted.child, interrupted.child.queue
        # None if a callback blocks the loop, or something that an ended task left behind.
        blamed, what = queue.find(queue.in_step), "blocked the event loop"
        if blamed is None and queue.thread_count:
            if interrupted.cpu is None:
                interrupted.cpu = thread_cpu(child.pid)
            looked_ns = now_ns - interrupted.kill_at_ns
            thread = _busiest(interrupted.cpu, thread_cpu(child.pid))
            if looked_ns < _LOOK_NS or (not thread and looked_ns < _LAST_LOOK_NS):
                return False
            blamed, what = queue.find(queue.slots.threads().get(thread, 0)), "held the interpreter (GIL)"
        if blamed is not interrupted.submission:
            child.text = f": the task {what} for {self.grace_ns / 1e9:g} s while another task had to end"
        child.kill(blamed)
        return True


def _busiest(before: dict[int, int], after: dict[int, int]) -> int:
    """Return the thread that has used the CPU, far more than any other; 0 if there is none."""
    used = sorted((ns - before.get(thread, 0), thread) for thread, ns in after.items())
    (second, _), (most, thread) = [(0, 0), (0, 0), *used][-2:]
    return thread if most > max(2 * second, _LEAST_CPU_NS) else 0
