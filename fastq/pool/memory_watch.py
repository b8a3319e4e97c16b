"""Ends children that grow above the memory limit while they run a task, before the machine swaps or kills at random.

Wakes at the pool's tick; reads the size of children that have tasks. It holds nothing but when it looked last.
"""

import time
from collections.abc import Sequence

from fastq.pool._feed import Submission
from fastq.pool.handle import Handle, State
from fastq.pool.processes import rss_of

__all__ = ["MemoryWatch"]

_EVERY_S = 0.1
_LIVE = (State.READY, State.LEAVING)


class MemoryWatch:
    """The limit of a child's resident memory in bytes, 0 for none."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._due_s = 0.0

    def check(self, handles: Sequence[Handle]) -> None:
        """Kill children that are above the limit; the task that runs is charged.

        Of several coroutines that is the one that began last, since those before it have run within the limit.
        """
        now_s = time.monotonic()
        if not self._limit or now_s < self._due_s:
            return
        self._due_s = now_s + _EVERY_S
        for handle in handles:
            if handle.state not in _LIVE or not handle.feed.pending:
                continue
            rss = rss_of(handle.pid)
            if rss > self._limit and (blamed := _latest(handle)) is not None:
                handle.text = f": it had grown to {rss / 1e6:.0f} MB, above memory_limit ({self._limit / 1e6:.0f} MB)"
                handle.kill(blamed)


def _latest(handle: Handle) -> Submission | None:
    started = [
        (row[2], submission)
        for submission in handle.feed.remaining()
        if (row := handle.feed.slots.look(submission.seq)) is not None
    ]
    return max(started, key=lambda one: one[0])[1] if started else None
