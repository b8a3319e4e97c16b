"""Work on many tasks in chunks: its progress, and how it is stopped between two chunks.

A method that works on many tasks takes ``progress``, a function that is called with a ``Progress`` before each chunk.
If ``progress`` raises an exception, the work stops there, and the method raises it, too. No task is left half done.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from fastq.broker.inspect.bulk import TASKS_A_CALL, BulkResult
from fastq.broker.operation import Flow, Operation, Pause, Step, together
from fastq.broker.operations.walk import Source
from fastq.errors import BrokerError

T = TypeVar("T")

ASKED_EVERY_S: Final = 0.5

PIECES: Final = frozenset({"delete_tasks", "run_tasks", "archive_tasks", "claim_tasks", "run_chosen", "sweep_queue"})
"""Each of these operations begins a chunk. Work may be stopped only before such an operation."""


@dataclass(slots=True)
class Progress:
    """The progress of work: ``done`` of ``total`` tasks, the number at its start. Each call gets the same object. Work
    that changes only matching tasks counts the tasks that it has read in ``looked``. ``unsure`` counts further tasks
    that may be done, because the reply of their call was lost. ``trouble`` is the reason why the work waits for Redis,
    None while it continues. ``failures`` are the errors of single tasks.
    """

    total: int = 0
    done: int = 0
    looked: int = 0
    unsure: int = 0
    trouble: BrokerError | None = None
    failures: list[str] = field(default_factory=list)

    @property
    def doubt(self) -> str:
        """A text about further tasks that may be done, if there are any."""
        return f"; up to {self.unsure:,} more, because an answer was lost" if self.unsure else ""

    def _add(self, result: Any) -> None:
        """Count the tasks that an operation changed."""
        results = result if isinstance(result, Sequence) and not isinstance(result, BulkResult) else (result,)
        self.done += sum(taken.tasks for taken in results if isinstance(taken, BulkResult))


OnProgress: TypeAlias = Callable[[Progress], object]


def sizes_of(*sources: Source) -> Flow[int]:
    """Count the tasks of some sources."""
    sizes: list[int] = yield from together(*(source.size() for source in sources))
    return sum(sizes)


def reporting(flow: Flow[T], progress: OnProgress | None, total: Flow[int]) -> Flow[T]:
    """Run a flow; call ``progress`` before each chunk, and at the end."""
    if progress is None:
        return (yield from flow)
    now = Progress((yield from total))
    found = yield from counting(flow, now, progress)
    progress(now)
    return found


def counting(flow: Flow[T], now: Progress, progress: OnProgress, *, insist: bool = False) -> Flow[T]:
    """Run a flow, count its work in ``now``, and call ``progress`` before each chunk. With ``insist`` a transient error
    does not end the work: it waits for Redis, calls ``progress`` now and then, and repeats the call. The call may be
    repeated, since each chunk takes the tasks that are left, whether or not the first call was carried out.
    """
    try:
        step: Step = next(flow)
        while True:
            if _is_piece(step):
                progress(now)
            try:
                result = (yield from _insisting(step, now, progress)) if insist else (yield step)
            except BrokerError as error:
                step = flow.throw(error)
            else:
                now._add(result)
                step = flow.send(result)
    except StopIteration as end:
        found: T = end.value
        return found


def stoppable(flow: Flow[T], check: Callable[[], object]) -> Flow[T]:
    """Run a flow, and call ``check``, which may raise, before each step."""
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


def _is_piece(step: Step) -> bool:
    operations = step if isinstance(step, tuple) else (step,)
    return any(isinstance(operation, Operation) and operation.name in PIECES for operation in operations)


def _insisting(step: Step, now: Progress, progress: OnProgress) -> Flow[Any]:
    while True:
        try:
            result = yield step
        except BrokerError as error:
            trouble: BrokerError | None = error
        else:
            errors = result if isinstance(step, tuple) else ()
            trouble = next((each for each in errors if isinstance(each, BrokerError)), None)
            if trouble is None or not trouble.transient:
                now.trouble = None
                return result
        assert trouble is not None  # it was raised, or is one of the replies
        if not trouble.transient:
            raise trouble
        _lost(trouble, now, progress)
        yield from _until_it_answers(step, now, progress)


def _lost(error: BrokerError, now: Progress, progress: OnProgress) -> None:
    if error.maybe_applied and error.operation in PIECES:
        now.unsure += TASKS_A_CALL
    now.trouble = error
    progress(now)


def _until_it_answers(step: Step, now: Progress, progress: OnProgress) -> Flow[None]:
    """Send a harmless call to the node of the step until it answers. If the chunk itself were sent again and again, a
    Redis that hangs would later carry out each of these calls.
    """
    first = step[0] if isinstance(step, tuple) else step
    key = first.keys[:1] if isinstance(first, Operation) else ()
    # Not marked idempotent: the broker would retry it, and so delay a user who wants to stop.
    question: Operation[Any] = Operation("EXISTS" if key else "PING", key, ())
    while True:
        yield Pause(ASKED_EVERY_S)
        try:
            yield question
        except BrokerError as error:
            if not error.transient:
                raise
            _lost(error, now, progress)
        else:
            return
