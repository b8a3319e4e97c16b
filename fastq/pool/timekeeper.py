"""Ends tasks: first by a state in their row and a signal, then, after a grace, by SIGKILL to the child's group.

Wakes at the pool's tick; reads the slot tables; writes a row's state by compare-and-swap. Everything it knows can be
read again from the rows, except when the grace of an interrupted task ends.
"""

from dataclasses import dataclass

from fastq.pool._child_queue import Submission
from fastq.pool.child import Child, ChildState
from fastq.pool.layout import ROW_TIMED_OUT

__all__ = ["Timekeeper"]

_LIVE = (ChildState.READY, ChildState.LEAVING)


@dataclass(frozen=True, slots=True)
class _Interrupted:
    child: Child
    submission: Submission
    kill_at_ns: int


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
                self._kill(interrupted, has_heard=row[1] or not interrupted.submission.is_async)
                del self._interrupted[seq]

    def _kill(self, interrupted: _Interrupted, *, has_heard: bool) -> None:
        """Kill a child, and blame the interrupted task, or the one that blocks the event loop and so its end."""
        queue = interrupted.child.queue
        blamed: Submission | None = interrupted.submission
        if not has_heard:
            # None if a callback blocks the loop, or something that an ended task left behind.
            blamed = queue.find(queue.in_step)
            if blamed is not interrupted.submission:
                grace_s = self.grace_ns / 1e9
                interrupted.child.text = (
                    f": the task blocked the event loop for {grace_s:g} s while another task had to end"
                )
        interrupted.child.kill(blamed)
