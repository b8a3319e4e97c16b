"""Work on many tasks in pieces: counts what each did, and lets the work end between two of them."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from fastq.broker.inspect_bulk import Taken
from fastq.broker.operation import Flow, Operation, Step
from fastq.errors import BrokerError

__all__ = ["count_tasks", "watched"]

T = TypeVar("T")

PIECES: Final = frozenset({"delete_tasks", "run_tasks", "archive_tasks", "claim_tasks", "run_chosen", "sweep_queue"})
"""The operations before which work may end: whatever the last one left to be done has been done then."""


def count_tasks(result: Any) -> int:
    """Count the tasks to which an operation did something."""
    results = result if isinstance(result, Sequence) and not isinstance(result, Taken) else (result,)
    return sum(taken.tasks for taken in results if isinstance(taken, Taken))


def watched(flow: Flow[T], note: Callable[[Any], None], check: Callable[[], None]) -> Flow[T]:
    """Be the flow, but tell each result, and call ``check``, which may raise, before each piece of work."""
    try:
        step: Step = next(flow)
        while True:
            if _is_piece(step):
                check()
            try:
                result = yield step
            except BrokerError as error:
                step = flow.throw(error)
            else:
                note(result)
                step = flow.send(result)
    except StopIteration as end:
        found: T = end.value
        return found


def _is_piece(step: Step) -> bool:
    operations = step if isinstance(step, tuple) else (step,)
    return any(isinstance(operation, Operation) and operation.name in PIECES for operation in operations)
