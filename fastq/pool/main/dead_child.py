"""The fates of the tasks of a dead child: each gets exactly one outcome.

Results that the child had sent count. A task that it had not begun waits again. A coroutine that had no step yet goes
back to its queue. If the child died by itself, the running tasks are charged. If the main process killed it, two kinds
are charged: the blamed task, and tasks that had been asked to end and did not. In a batch nobody knows which task was
the cause, so none is charged, and each runs again alone.
"""

from fastq.pool.main.child import Child, ChildState
from fastq.pool.main.child_queue import Event, Submission
from fastq.pool.main.dispatcher import Dispatcher
from fastq.pool.shared import layout
from fastq.pool.shared.event_kind import ANOTHER_TASK, ITS_BATCH, EventKind
from fastq.pool.shared.processes import describe_status

_ASKED = {
    layout.ROW_TIMED_OUT: EventKind.TIMEOUT,
    layout.ROW_CANCELED: EventKind.CANCELED,
    layout.ROW_MEMORY_LIMIT: EventKind.CRASHED,
}
_CHARGED = (EventKind.TIMEOUT, EventKind.CRASHED)


def resolve_dead_child(child: Child, dispatcher: Dispatcher) -> list[Event]:
    """Return an event for each task that ran in a dead child, and let those that it had not begun wait again."""
    events: list[Event] = []
    queue = child.queue
    dispatcher.collect_last(queue, events)
    dispatcher.put_back(queue.take_back_all())
    for submission in queue.remaining():
        kind, data = _verdict(child, submission), b""
        if kind in _CHARGED and submission.is_among_others:
            kind, data = EventKind.RERUN, ITS_BATCH
        if kind is EventKind.CRASHED:
            data = _obituary(child)
        elif kind is EventKind.RERUN and child.blamed is not None and not data:
            data = ANOTHER_TASK
        events.append(queue.end(submission, kind, data))
    return events


def _verdict(child: Child, submission: Submission) -> EventKind:
    slots, unit = child.queue.slots, submission.unit
    row, of_unit = slots.look(submission.seq), slots.look(unit.seq)
    state, seen = row[0] if row else layout.ROW_IDLE, of_unit is not None and of_unit[1]
    was_killed = child.state is ChildState.KILLED
    is_blamed = unit is child.blamed
    if unit.is_async and slots.is_unentered(unit.seq):
        return EventKind.RETURNED  # it waited for its first step
    if state == layout.ROW_ABORTED:
        return EventKind.ABORTED
    if was_killed and not is_blamed and unit.is_async and not seen:
        # It could not notice that it was asked to end: another task blocked its loop.
        return EventKind.RERUN
    if state in _ASKED:
        return _ASKED[state]
    return EventKind.CRASHED if not was_killed or is_blamed else EventKind.RERUN


def _obituary(child: Child) -> bytes:
    fate = "of unknown cause" if child.status is None else f"with {describe_status(child.status)}"
    peak = f", peak RSS {child.peak_rss / 1e6:.0f} MB" if child.peak_rss else ""
    return f"worker process {child.pid} died {fate}{peak}{child.text}".encode()
