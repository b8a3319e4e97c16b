"""The numbers of a pool: its children and what they do, how much of their time they work, why they ended."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from fastq.pool.main.child import Child, ChildState
from fastq.pool.main.protocol import ChildCensus, PoolCensus
from fastq.pool.shared.processes import rss_of

_REASONS: Final = ("max_tasks", "max_memory", "reload", "replaced", "crashed", "killed", "start_failed", "shutdown")
_LOOK_S: Final = 2.0
"""The memory of each child is read once in this time. Reading it at every tick took 6 % of the main process's CPU."""
_WORKING: Final = (ChildState.READY, ChildState.LEAVING)
_STATES: Final = {
    ChildState.STARTING: "starting",
    ChildState.LEAVING: "leaving",
    ChildState.EXITING: "leaving",
    ChildState.KILLED: "leaving",
}


class Census:
    """The numbers of a pool since its start; ``sample`` is called at each of its ticks.

    A child counts as busy for the whole time between two ticks if it has tasks at the later one. So the busy seconds
    are estimates where tasks are shorter than a tick.
    """

    def __init__(self) -> None:
        # All reasons are listed from the start: Prometheus sees no increase in a series that begins with 1.
        self.ended = Counter(dict.fromkeys(_REASONS, 0))
        self._busy_s = 0.0
        self._alive_s = 0.0
        self._sampled_s: float | None = None
        self._turn = 0
        self._look_at_s = 0.0

    def sample(self, children: Sequence[Child], now_s: float, busy_since_s: float) -> None:
        """Add the time since the last sample; the pool was idle before ``busy_since_s``."""
        working = [child for child in children if child.state in _WORKING]
        if working and now_s >= self._look_at_s:
            self._look_at_s = now_s + _LOOK_S / len(working)
            self._turn += 1
            child = working[self._turn % len(working)]
            child.rss = rss_of(child.pid)
        if self._sampled_s is not None:
            passed_s = now_s - self._sampled_s
            self._alive_s += passed_s * len(working)
            busy_s = now_s - max(self._sampled_s, busy_since_s)
            for child in working:
                if child.queue.pending:
                    self._busy_s += busy_s
        self._sampled_s = now_s

    def take(self, children: Sequence[Child], pending: int) -> PoolCensus:
        """Return the numbers as of now; ``pending`` is how many tasks the pool has."""
        running = 0
        each = []
        for child in children:
            runs = child.queue.slots.running_count()
            running += runs
            state = _STATES.get(child.state) or ("busy" if runs else "idle")
            each.append(ChildCensus(child.pid, state, child.since_s, child.rss))
        rss = [child.rss for child in children if child.state in _WORKING]
        return PoolCensus(
            Counter(child.state for child in each),
            running,
            max(0, pending - running),
            (max(rss, default=0), sum(rss)),
            self.ended,
            (self._busy_s, self._alive_s),
            each,
        )


def why_ended(child: Child, *, was_closed: bool) -> str:
    """Return in one word why a child ended, by its last state, or by why it left."""
    if was_closed:
        return "shutdown"
    match child.state:
        case ChildState.STARTING:
            return "start_failed"
        case ChildState.KILLED:
            return "killed"
        case ChildState.EXITING:
            return child.why_replaced
    return "crashed"


def why_replaced(child: Child) -> str:
    """Return in one word why a child that leaves now is replaced."""
    if child.queue.left == 0:
        return "max_tasks"
    if child.queue.is_over_memory or child.is_too_big:
        return "max_memory"
    return "reload" if child.is_outdated else "replaced"
