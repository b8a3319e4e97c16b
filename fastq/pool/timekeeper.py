"""Ends what must end: a word in its row and a signal first, SIGKILL to its child's group when the grace is over.

Wakes at the pool's tick; reads the slot tables; writes a row's state, by compare-and-swap. It holds nothing that could
not be read again from the rows, save for when the grace of those that were told is over.
"""

from dataclasses import dataclass

from fastq.pool._child_queue import Submission
from fastq.pool.child import Child, ChildState
from fastq.pool.layout import ROW_TIMED_OUT

__all__ = ["Timekeeper"]

_LIVE = (ChildState.READY, ChildState.LEAVING)


@dataclass(frozen=True, slots=True)
class _Told:
    child: Child
    submission: Submission
    kill_at_ns: int


class Timekeeper:
    """The time limits of running tasks: asks tasks to end when their time is up, and kills children that go on."""

    def __init__(self, grace_s: float) -> None:
        self.grace_ns = round(grace_s * 1e9)
        self._told: dict[int, _Told] = {}

    def interrupt(self, child: Child, submission: Submission, reason: int, now_ns: int) -> bool:
        """Ask for the end of a running task; false when it does not run or was asked before."""
        if child.state not in _LIVE or not child.queue.slots.interrupt(submission.seq, reason):
            return False
        self._told[submission.seq] = _Told(child, submission, now_ns + self.grace_ns)
        if self.grace_ns:
            child.signal(submission)
        else:
            child.kill(submission)
        return True

    def check(self, children: list[Child], now_ns: int) -> None:
        """Interrupt tasks whose time is up, and kill children whose interrupted tasks have used up their grace."""
        for child in children:
            if child.state in _LIVE and child.queue.pending:
                for seq in child.queue.slots.overdue(now_ns):
                    if (submission := child.queue.find(seq)) is not None:
                        self.interrupt(child, submission, ROW_TIMED_OUT, now_ns)
        for seq, told in list(self._told.items()):
            row = told.child.queue.slots.look(seq) if told.child.state in _LIVE else None
            if row is None:
                del self._told[seq]
            elif now_ns >= told.kill_at_ns:
                self._kill(told, has_heard=row[1] or not told.submission.is_async)
                del self._told[seq]

    def _kill(self, told: _Told, *, has_heard: bool) -> None:
        """Kill a child, and blame the task that was told to end; or the one that blocks the loop, so that it cannot."""
        queue = told.child.queue
        blamed: Submission | None = told.submission
        if not has_heard:
            # None where a callback blocks, or what an ended task has left behind.
            blamed = queue.find(queue.in_step)
            if blamed is not told.submission:
                grace_s = self.grace_ns / 1e9
                told.child.text = f": the task blocked the event loop for {grace_s:g} s while another task had to end"
        told.child.kill(blamed)
