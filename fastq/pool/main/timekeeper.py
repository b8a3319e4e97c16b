"""Ends tasks: first by a state in their row and a signal, then, after a grace, by SIGKILL to the child's group.

Wakes at the pool's tick; reads the slot tables; writes a row's state by compare-and-swap. All that it knows can be read
again from the rows, except when a grace ends. If the event loop of a child does not answer, the timekeeper finds out
which task is the cause before it kills the child.
"""

from dataclasses import dataclass

from fastq.pool.main.child import Child, ChildState
from fastq.pool.main.child_queue import Submission
from fastq.pool.shared.layout import ROW_TIMED_OUT
from fastq.pool.shared.processes import send_signal, thread_times
from fastq.pool.shared.signals import SOFT_SIGNAL

_LIVE = (ChildState.READY, ChildState.LEAVING)
# How to find the thread that holds the interpreter: how long to watch, at least and at most, and the least CPU it must
# use.
_LOOK_NS, _LAST_LOOK_NS = 100_000_000, 1_600_000_000
_LEAST_CPU_NS = 20_000_000
# A thread that waits for the interpreter wakes every 5 ms; a thread that wakes less often is in a call of its own.
_WAKES_NS = 10_000_000


@dataclass(slots=True)
class _Interrupted:
    child: Child
    submission: Submission
    kill_at_ns: int


@dataclass(slots=True)
class _Look:
    """The search for the task that keeps a child's event loop from hearing of an interruption."""

    since_ns: int
    next_ns: int
    heard: int
    times: dict[int, tuple[int, int]]


class Timekeeper:
    """The time limits of running tasks: asks tasks to end when their time is up, and kills children that do not."""

    def __init__(self, grace_s: float) -> None:
        self.grace_ns = round(grace_s * 1e9)
        self._interrupted: dict[int, _Interrupted] = {}
        self._looks: dict[Child, _Look] = {}

    def interrupt(self, child: Child, submission: Submission, reason: int, now_ns: int) -> bool:
        """Ask a running task to end; return False if it does not run or was asked before.

        The tasks of a batch share one call, so the call is interrupted only once all of them were asked.
        """
        if child.state not in _LIVE or not child.queue.slots.interrupt(submission.seq, reason):
            return False
        if child.queue.runs_on(submission):
            return True
        submission = submission.unit
        self._interrupted[submission.seq] = _Interrupted(child, submission, now_ns + self.grace_ns)
        if self.grace_ns:
            child.signal(submission)
        else:
            child.kill(submission)
        return True

    def awaits(self, child: Child) -> bool:
        """Return whether a child has a task that was asked to end and is not known to have ended."""
        return any(interrupted.child is child for interrupted in self._interrupted.values())

    def check(self, children: list[Child], now_ns: int) -> None:
        """Interrupt tasks whose time is up, and kill children whose interrupted tasks outlast their grace."""
        for child in children:
            if child.state in _LIVE and child.queue.pending:
                for seq in child.queue.slots.overdue(now_ns):
                    if (submission := child.queue.find(seq)) is not None:
                        self.interrupt(child, submission, ROW_TIMED_OUT, now_ns)
        looks, self._looks = self._looks, {}
        for seq, interrupted in list(self._interrupted.items()):
            child = interrupted.child
            row = child.queue.slots.look(seq) if child.state in _LIVE else None
            if row is None:
                del self._interrupted[seq]
            elif now_ns < interrupted.kill_at_ns or child in self._looks:
                continue
            elif interrupted.submission.is_async and not row[1]:
                self._look(interrupted, looks.get(child), now_ns)
            elif child in looks:  # it has heard the signal only now
                interrupted.kill_at_ns = now_ns + self.grace_ns
            else:
                child.kill(interrupted.submission)

    def _look(self, interrupted: _Interrupted, look: _Look | None, now_ns: int) -> None:
        """Kill a child whose loop does not pass the interruption on, once the task that is the cause is known.

        If the loop's thread takes signals, it holds the interpreter, so code in that thread blocks the loop.
        """
        child, queue = interrupted.child, interrupted.child.queue
        if look is None:
            look = _Look(now_ns, now_ns + _LOOK_NS, queue.heard, thread_times(child.pid))
            send_signal(child.pid, child.pidfd, SOFT_SIGNAL)
        self._looks[child] = look
        if now_ns < look.next_ns:
            return
        looked_ns = now_ns - look.since_ns
        look.next_ns = now_ns + looked_ns
        holder = 0 if queue.heard != look.heard else _holder(child.pid, look.times, thread_times(child.pid))
        if holder is None and looked_ns < _LAST_LOOK_NS:
            return
        what = "held the interpreter (GIL)" if holder else "blocked the event loop"
        # None if a callback blocks the loop, or code that an ended task left behind.
        blamed = queue.find(queue.slots.in_thread(holder) if holder else queue.in_step)
        if blamed is not interrupted.submission:
            child.text = f": the task {what} for {self.grace_ns / 1e9:g} s while another task had to end"
        child.kill(blamed)


def _holder(loop: int, before: dict[int, tuple[int, int]], after: dict[int, tuple[int, int]]) -> int | None:
    """Return the thread that keeps the event loop's thread waiting, 0 if none does, None if that is not clear.

    A busy machine may wake a thread late, so a thread that has not woken yet proves nothing.
    """
    used = {one: (after[one][0] - before[one][0], after[one][1] - before[one][1]) for one in before.keys() & after}
    (second_ns, _), (most_ns, thread) = [(0, 0), (0, 0), *sorted((ns, one) for one, (ns, _) in used.items())][-2:]
    if most_ns < max(_LEAST_CPU_NS, 2 * second_ns):
        return None
    _, woke = used.get(loop, (0, 0))
    return 0 if thread == loop else thread if woke >= most_ns / _WAKES_NS else None
