"""Work on many tasks in pieces: counts what each did, and lets the work end between two of them."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from fastq.broker.inspect.bulk import Taken
from fastq.broker.operation import Flow, Operation, Pause, Step
from fastq.errors import BrokerError

__all__ = ["count_tasks", "is_piece", "stoppable", "watched"]

T = TypeVar("T")

ASKED_EVERY_S: Final = 0.5

PIECES: Final = frozenset({"delete_tasks", "run_tasks", "archive_tasks", "claim_tasks", "run_chosen", "sweep_queue"})
"""The operations before which work may end: whatever the last one left to be done has been done then."""


def count_tasks(result: Any) -> int:
    """Count the tasks to which an operation did something."""
    results = result if isinstance(result, Sequence) and not isinstance(result, Taken) else (result,)
    return sum(taken.tasks for taken in results if isinstance(taken, Taken))


def watched(
    flow: Flow[T],
    note: Callable[[Any], None],
    check: Callable[[], None],
    lost: Callable[[BrokerError], None] | None = None,
) -> Flow[T]:
    """Be the flow, but tell each result, and call ``check``, which may raise, before each piece of work.

    With ``lost`` an answer that did not come is told to it, which may raise, too; then Redis is waited for, and the
    same asked again. That does no harm: each piece takes what is to be taken, however much of it another took.
    """
    try:
        step: Step = next(flow)
        while True:
            if _is_piece(step):
                check()
            try:
                result = (yield step) if lost is None else (yield from _insisting(step, lost))
            except BrokerError as error:
                step = flow.throw(error)
            else:
                note(result)
                step = flow.send(result)
    except StopIteration as end:
        found: T = end.value
        return found


def stoppable(flow: Flow[T], check: Callable[[], None]) -> Flow[T]:
    """Be the flow, but call ``check``, which may raise, before each step."""
    try:
        step: Step = next(flow)
        while True:
            check()
            try:
                result = yield step
            except BrokerError as error:
                step = flow.throw(error)
            else:
                step = flow.send(result)
    except StopIteration as end:
        found: T = end.value
        return found


def is_piece(operation: str) -> bool:
    """Tell whether an operation of this name does something to tasks."""
    return operation in PIECES


def _insisting(step: Step, lost: Callable[[BrokerError], None]) -> Flow[Any]:
    while True:
        try:
            result = yield step
        except BrokerError as error:
            trouble: BrokerError | None = error
        else:
            errors = result if isinstance(step, tuple) else ()
            trouble = next((each for each in errors if isinstance(each, BrokerError)), None)
            if trouble is None or not trouble.transient:
                return result
        assert trouble is not None  # it was caught, or found
        if not trouble.transient:
            raise trouble
        lost(trouble)
        yield from _until_it_answers(step, lost)


def _until_it_answers(step: Step, lost: Callable[[BrokerError], None]) -> Flow[None]:
    """Ask where the step asks, but for nothing: a Redis that stands still would do each piece that it was sent."""
    first = step[0] if isinstance(step, tuple) else step
    key = first.keys[:1] if isinstance(first, Operation) else ()
    # Asked once each time, for the broker's own patience would keep Esc waiting.
    question: Operation[Any] = Operation("EXISTS" if key else "PING", None, key, ())
    while True:
        yield Pause(ASKED_EVERY_S)
        try:
            yield question
        except BrokerError as error:
            if not error.transient:
                raise
            lost(error)
        else:
            return


def _is_piece(step: Step) -> bool:
    operations = step if isinstance(step, tuple) else (step,)
    return any(isinstance(operation, Operation) and operation.name in PIECES for operation in operations)
