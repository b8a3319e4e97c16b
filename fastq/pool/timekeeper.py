"""Ends what must end: a word in its row and a signal first, SIGKILL to its child's group when the grace is over.

Wakes at the pool's tick; reads the slot tables; writes a row's state, by compare-and-swap. It holds nothing that could
not be read again from the rows, save for when the grace of those that were told is over.
"""

from dataclasses import dataclass

from fastq.pool._feed import Submission
from fastq.pool.handle import Handle, State
from fastq.pool.layout import ROW_TIMED_OUT

__all__ = ["Timekeeper"]

_LIVE = (State.READY, State.LEAVING)


@dataclass(frozen=True, slots=True)
class _Told:
    handle: Handle
    submission: Submission
    kill_at_ns: int


class Timekeeper:
    """Tell tasks to end, and see to it that they do."""

    def __init__(self, grace_s: float) -> None:
        self.grace_ns = round(grace_s * 1e9)
        self._told: dict[int, _Told] = {}

    def interrupt(self, handle: Handle, submission: Submission, reason: int, now_ns: int) -> bool:
        """Ask for the end of a running task; false when it does not run or was asked before."""
        if handle.state not in _LIVE or not handle.feed.slots.interrupt(submission.seq, reason):
            return False
        self._told[submission.seq] = _Told(handle, submission, now_ns + self.grace_ns)
        if self.grace_ns:
            handle.signal(submission)
        else:
            handle.kill(submission)
        return True

    def check(self, handles: list[Handle], now_ns: int) -> None:
        """Tell tasks whose time is up, and kill children whose tasks were told and have had their grace."""
        for handle in handles:
            if handle.state in _LIVE and handle.feed.pending:
                for seq in handle.feed.slots.overdue(now_ns):
                    if (submission := handle.feed.find(seq)) is not None:
                        self.interrupt(handle, submission, ROW_TIMED_OUT, now_ns)
        for seq, told in list(self._told.items()):
            row = told.handle.feed.slots.look(seq) if told.handle.state in _LIVE else None
            if row is None:
                del self._told[seq]
            elif now_ns >= told.kill_at_ns:
                self._kill(told, has_heard=row[1] or not told.submission.is_async)
                del self._told[seq]

    def _kill(self, told: _Told, *, has_heard: bool) -> None:
        """Kill a child, and blame the task that was told to end; or the one that blocks the loop, so that it cannot."""
        feed = told.handle.feed
        blamed: Submission | None = told.submission
        if not has_heard:
            # None where a callback blocks, or what an ended task has left behind.
            blamed = feed.find(feed.in_step)
            if blamed is not told.submission:
                grace_s = self.grace_ns / 1e9
                told.handle.text = f": the task blocked the event loop for {grace_s:g} s while another was to end"
        told.handle.kill(blamed)
