"""Client middleware: functions around the sending of a client's tasks, and how calls pass through them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from fastq.common.callables import is_async
from fastq.common.clock import SystemClock
from fastq.enqueueing.bulk import MAX_CHUNK_TASKS, BulkComposer, note_progress
from fastq.enqueueing.results import EnqueueResults, joined
from fastq.errors import BrokerError, not_a_task
from fastq.info import TaskInfo
from fastq.options import EnqueueOptions, check_options
from fastq.task import Task, with_options

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # ``Sender`` needs no parameter. Type parameters have defaults only from Python 3.13 on.
    SentT = TypeVarWithDefault("SentT", default=EnqueueResults)
else:
    SentT = TypeVar("SentT")

Sender: TypeAlias = Callable[[Sequence[Task]], SentT]
"""A function that enqueues up to 500 tasks and returns their ``EnqueueResults``; an ``AsyncClient`` awaits these."""
ClientMiddleware: TypeAlias = Callable[[Sender[SentT]], Sender[SentT]]
"""A function that takes the next sender, and returns the sender to call in its place."""

_CLOCK: Final = SystemClock()


def chained(
    send: Sender[SentT], middleware: Sequence[ClientMiddleware[SentT]], *, takes_async: bool = False
) -> Sender[SentT]:
    """Put middleware around a sender, the last one innermost; raise ``TypeError`` if a middleware does not fit."""
    for each in reversed(middleware):
        wrapped = each(send)
        if not callable(wrapped):
            raise TypeError(f"middleware {each!r} must return a sender, not {wrapped!r}")
        if is_async(wrapped) and not takes_async:
            raise TypeError(f"middleware {each!r} returns an async function, which a Client would never await")
        send = wrapped
    return send


def _checked(results: EnqueueResults, count: int) -> EnqueueResults:
    """Return the results of ``count`` tasks; ``TypeError`` or ``ValueError`` if a middleware lost some results."""
    if not isinstance(results, EnqueueResults):
        raise TypeError(f"a client's middleware returned {results!r}, not the sender's EnqueueResults")
    if len(results) != count:
        raise ValueError(f"a client's middleware returned {len(results)} results for {count} tasks")
    return results


def only_info(results: EnqueueResults) -> TaskInfo:
    """Return the info of the one task that was sent, or raise its error."""
    result = _checked(results, 1)[0]
    if isinstance(result, TaskInfo):
        return result
    raise result


def _with_options(task: Task, checked: Mapping[str, object]) -> Task:
    if not isinstance(task, Task):
        raise not_a_task(task)
    return with_options(task, checked)


class SentChunks:
    """The tasks of one ``enqueue_many`` on their way through middleware, chunk by chunk, and their results so far.

    Iterate over the chunks, send each, and ``add`` its results. As a context manager, the object adds to an error how
    many tasks were sent before it.
    """

    def __init__(self, tasks: Iterable[Task], options: EnqueueOptions) -> None:
        checked = check_options(options)
        self._keeps_tasks = isinstance(tasks, Sequence)
        if isinstance(tasks, Sequence):
            BulkComposer(checked, _CLOCK).check(tasks)
        self._tasks = (_with_options(task, checked) for task in tasks)
        self._size = 0
        self._results: list[EnqueueResults] = []

    def __iter__(self) -> Iterator[Sequence[Task]]:
        while chunk := tuple(islice(self._tasks, MAX_CHUNK_TASKS)):
            self._size = len(chunk)
            yield chunk

    def add(self, results: EnqueueResults) -> None:
        """Note the results of the last chunk."""
        self._results.append(_checked(results, self._size))

    def results(self) -> EnqueueResults:
        """Return the results so far."""
        return joined(self._results, keep_tasks=self._keeps_tasks)

    def __enter__(self) -> "SentChunks":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, BrokerError) and isinstance(error.results, EnqueueResults):
            self._results.append(error.results)
        if error is not None:
            note_progress(error, self.results())
