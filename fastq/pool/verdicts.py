"""Judge what a dead child leaves behind: each of its tasks gets exactly one outcome.

Results that it had sent count. What it had not begun waits again. What ran in it is charged if the child died by
itself; if the main process killed it, only the task that was to blame, and those that had been told and did not end.
"""

from fastq.pool import layout
from fastq.pool._dispatcher import Dispatcher
from fastq.pool._feed import Event, Submission
from fastq.pool.handle import Handle, State
from fastq.pool.outcome import Kind
from fastq.pool.processes import describe_status

__all__ = ["judge"]

_ASKED = {
    layout.ROW_TIMED_OUT: Kind.TIMEOUT,
    layout.ROW_CANCELED: Kind.CANCELED,
    layout.ROW_MEMORY_LIMIT: Kind.CRASHED,
}


def judge(handle: Handle, dispatcher: Dispatcher) -> list[Event]:
    """Return an event for everything that ran in a dead child, and let what it had not begun wait again."""
    events: list[Event] = []
    feed = handle.feed
    dispatcher.collect_last(feed, events)
    dispatcher.put_back(feed.take_back_all())
    for submission in feed.remaining():
        kind = _verdict(handle, submission)
        events.append(feed.end(submission, kind, _obituary(handle) if kind is Kind.CRASHED else b""))
    return events


def _verdict(handle: Handle, submission: Submission) -> Kind:
    row = handle.feed.slots.look(submission.seq)
    state, seen = (row[0], row[1]) if row else (layout.ROW_IDLE, False)
    was_killed = handle.state is State.KILLED
    if state == layout.ROW_ABORTED:
        return Kind.ABORTED
    if was_killed and submission is not handle.blamed and submission.is_async and not seen:
        # It may have been told, but another task blocked its loop and it could not hear.
        return Kind.RERUN
    if state in _ASKED:
        return _ASKED[state]
    return Kind.CRASHED if not was_killed or submission is handle.blamed else Kind.RERUN


def _obituary(handle: Handle) -> bytes:
    fate = "of unknown cause" if handle.status is None else f"with {describe_status(handle.status)}"
    peak = f", peak RSS {handle.peak_rss / 1e6:.0f} MB" if handle.peak_rss else ""
    return f"worker process {handle.pid} died {fate}{peak}{handle.text}".encode()
