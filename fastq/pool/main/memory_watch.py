"""The memory limit: tasks whose child has grown above it are ended before the machine swaps or kills at random.

Wakes at the pool's tick; reads the size of each child. For each child it keeps the last observation within the limit. A
child that was above the limit once is replaced, whatever happens to its tasks.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastq.pool.main.child import Child, ChildState
from fastq.pool.main.child_queue import Submission
from fastq.pool.main.timekeeper import Timekeeper
from fastq.pool.shared.layout import ROW_MEMORY_LIMIT
from fastq.pool.shared.processes import rss_of
from fastq.pool.shared.ring import now_ns

_EVERY_S = 0.1
_LIVE = (ChildState.READY, ChildState.LEAVING)


@dataclass(slots=True)
class _Seen:
    """The last observation of a child within the limit, and what was done about it since."""

    within_ns: int = 0
    finished: int = 0
    """How many of the child's tasks had ended by then."""
    kill_at_ns: int = 0
    """The end of the grace of the task that was asked to end, 0 if none was."""


class MemoryWatch:
    """The limit of a child's resident memory in bytes, 0 for none."""

    def __init__(self, limit: int, timekeeper: Timekeeper, on_notice: Callable[[str], None]) -> None:
        self._limit = limit
        self._timekeeper = timekeeper
        self._on_notice = on_notice
        self._seen: dict[Child, _Seen] = {}
        self._due_s = 0.0

    def check(self, children: Sequence[Child]) -> None:
        """Mark every child above the limit for replacement, and tell the task to blame to end, as at a timeout."""
        now_s = time.monotonic()
        if not self._limit or now_s < self._due_s:
            return
        self._due_s = now_s + _EVERY_S
        self._seen = {child: self._seen.get(child) or _Seen() for child in children if child.state in _LIVE}
        for child, seen in self._seen.items():
            finished, looked_ns = child.queue.finished, now_ns()
            if (rss := rss_of(child.pid)) <= self._limit:
                seen.within_ns, seen.finished, seen.kill_at_ns = looked_ns, finished, 0
            else:
                self._shrink(child, seen, rss)

    def _shrink(self, child: Child, seen: _Seen, rss: int) -> None:
        size = f"grown to {rss / 1e6:.0f} MB, above memory_limit ({self._limit / 1e6:.0f} MB)"
        if not child.is_too_big:
            child.is_too_big = True
            self._on_notice(f"worker process {child.pid} has {size}; it is replaced")
        running = _running(child)
        if not running or now_ns() < seen.kill_at_ns or (seen.kill_at_ns and self._timekeeper.awaits(child)):
            return
        child.text = f": it had {size}"
        blamed = None if seen.kill_at_ns else _blamed(child, seen, running)
        if blamed is None or blamed.is_among_others:
            child.kill(blamed)  # no task can be blamed: all run again
        elif self._timekeeper.interrupt(child, blamed, ROW_MEMORY_LIMIT, now := now_ns()):
            seen.kill_at_ns = now + self._timekeeper.grace_ns


def _running(child: Child) -> list[tuple[int, Submission]]:
    """Return the start times and submissions of running tasks; of a batch only the first."""
    return [
        (row[2], submission)
        for submission in child.queue.remaining()
        if submission.leader is None and (row := child.queue.slots.look(submission.seq)) is not None
    ]


def _blamed(child: Child, seen: _Seen, running: list[tuple[int, Submission]]) -> Submission | None:
    """Return the task that made its child grow, as far as that can be known.

    A task that began after the last observation within the limit is not blamed: the child may have been too big
    already. Among several older coroutines, the one that the event loop is in is blamed. If the loop is in none, the
    one that began last is blamed, since the others have run within the limit for longer.
    """
    queue = child.queue
    latest = running[-1][1]
    if len(running) == 1 and queue.finished == seen.finished and queue.remaining()[0] is latest:
        return latest  # no other has run since
    suspects = [one for one in running if one[0] <= seen.within_ns]
    in_step = queue.find(queue.in_step)
    if in_step is not None:
        return in_step if any(one[1] is in_step for one in suspects) else None
    return max(suspects, key=lambda one: one[0])[1] if suspects else None
