"""The tasks in flight, and the reading of leased ones."""

from fastq.broker.operations.lease import LeasedTask
from fastq.errors import InvalidMessageError
from fastq.server.inflight._tasks import InFlightTask, InFlightTasks, SeqRange
from fastq.wire.codec import TaskView, view_task_message

__all__ = ["InFlightTask", "InFlightTasks", "SeqRange", "view_leased"]


def view_leased(leased: LeasedTask) -> TaskView:
    """Return the view of a leased task's message; ``InvalidMessageError`` for a bad one, or one of another task."""
    view = view_task_message(leased.message)
    if view.id != leased.id:
        raise InvalidMessageError(f"the message under id {leased.id!r} is of task {view.id!r}")
    return view
