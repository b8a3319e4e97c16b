"""The results of ``enqueue_many``: a TaskInfo or an error for each task, made when asked for.

What is kept is columns, not objects: 41 bytes a task with generated ids, under 100 with every option different.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Protocol, TypeAlias, overload

from fastq.broker.operations.enqueue import Outcome
from fastq.clock import at_unix_ns
from fastq.compose import starting_state
from fastq.errors import BrokerError, DuplicateTaskError, FastqError, TaskIDConflictError
from fastq.info import TaskInfo, task_info
from fastq.options import TaskOptions
from fastq.states import TaskState
from fastq.task import Task
from fastq.wire.messages import TaskMessage

__all__ = ["ChunkResult", "Column", "EnqueueResults", "ResultPart", "Texts", "enqueued_info", "error_of"]


def error_of(outcome: Outcome | BrokerError, queue: str, task_id: str) -> FastqError | None:
    """Return the error that an outcome stands for, None for success."""
    if outcome is Outcome.ENQUEUED:
        return None
    if isinstance(outcome, BrokerError):
        return outcome
    return (TaskIDConflictError if outcome is Outcome.ID_CONFLICT else DuplicateTaskError)(queue, task_id)


class Texts:
    """Keep strings in one piece: their length and 4 bytes each, where objects of their own would be over 50."""

    __slots__ = ("_data", "_ends")

    def __init__(self, texts: Iterable[str]) -> None:
        encoded = [text.encode() for text in texts]
        self._data = b"".join(encoded)
        self._ends = array("I", list(accumulate(map(len, encoded))))  # from an iterator it would keep room to grow

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        return self._data[self._ends[index - 1] if index else 0 : self._ends[index]].decode()


Column: TypeAlias = "array[int] | Texts"


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """Keep, in columns, what a chunk of tasks was and what became of it; a column of equal values is one value.

    ``options`` are those of the first task, ``columns`` hold the fields in which others differ; ``process_at_us`` is
    ``process_at_ns`` in microseconds, as a datetime has it, 0 for None: after 2262 nanoseconds are over 64 bits.
    """

    now_ns: int
    ids: Texts
    types: str | Texts
    options: TaskOptions
    columns: Mapping[str, Column]
    outcomes: list[Outcome | BrokerError] | None
    tasks: list[Task] | None
    headers: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def all_enqueued(self) -> bool:
        """Return whether no task of the chunk has an error."""
        return self.outcomes is None

    def task_id(self, index: int) -> str:
        """Return a task's id."""
        return self.ids[index]

    def options_of(self, index: int) -> TaskOptions:
        """Return a task's options, without those that only its lock needs."""
        if not self.columns:
            return self.options
        fields: dict[str, Any] = {name: column[index] for name, column in self.columns.items()}
        if "process_at_us" in fields:
            fields["process_at_ns"] = fields.pop("process_at_us") * 1000 or None
        return replace(self.options, **fields)

    def error(self, index: int) -> FastqError | None:
        """Return what went wrong with a task, None if it was enqueued."""
        if self.outcomes is None:
            return None
        outcome = self.outcomes[index]
        return error_of(outcome, self.options_of(index).queue, self.task_id(index))

    def info(self, index: int) -> TaskInfo:
        """Describe a task as it was enqueued."""
        options = self.options_of(index)
        task = self.tasks[index] if self.tasks is not None else None
        message = TaskMessage(
            type=self.types if isinstance(self.types, str) else self.types[index],
            payload=task.payload if task else b"",
            id=self.task_id(index),
            queue=options.queue,
            retry=options.max_retry,
            timeout=options.timeout_s,
            deadline=options.deadline_s,
            group_key=options.group,
            retention=options.retention_s,
            headers={**task.headers, **self.headers} if task else {},
        )
        return enqueued_info(message, options, self.now_ns)


def enqueued_info(message: TaskMessage, options: TaskOptions, now_ns: int) -> TaskInfo:
    """Describe a task that has just been enqueued."""
    state = starting_state(options)
    next_ns = {TaskState.PENDING: now_ns, TaskState.SCHEDULED: options.process_at_ns}.get(state)
    return task_info(message, state, next_process_at=None if next_ns is None else at_unix_ns(next_ns))


class ResultPart(Protocol):
    """The results of some tasks that follow one another."""

    def __len__(self) -> int: ...
    @property
    def all_enqueued(self) -> bool:
        """Return whether no task has an error."""

    def task_id(self, index: int) -> str:
        """Return a task's id."""

    def error(self, index: int) -> FastqError | None:
        """Return what went wrong with a task, None if it was enqueued."""

    def info(self, index: int) -> TaskInfo:
        """Describe a task that was enqueued."""


class EnqueueResults(Sequence[TaskInfo | FastqError]):
    """The results of ``enqueue_many``: a ``TaskInfo`` or the error of each task, in order, made when asked for.

    The tasks of a list or tuple are kept (they are the caller's), so that an info has payload and headers; those of an
    iterator are not, and their infos have an empty payload and no headers.
    """

    def __init__(self, parts: Iterable[ResultPart] = ()) -> None:
        self._parts = tuple(parts)
        self._starts = list(accumulate(map(len, self._parts), initial=0))
        self._length = self._starts.pop()

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> TaskInfo | FastqError: ...
    @overload
    def __getitem__(self, index: slice) -> list[TaskInfo | FastqError]: ...
    def __getitem__(self, index: int | slice) -> TaskInfo | FastqError | list[TaskInfo | FastqError]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._length))]
        part, at = self._place(index)
        error = part.error(at)
        return part.info(at) if error is None else error

    def _place(self, index: int) -> tuple[ResultPart, int]:
        at = index + self._length if index < 0 else index
        if not 0 <= at < self._length:
            raise IndexError(f"result {index} of {self._length}")
        number = bisect_right(self._starts, at) - 1
        return self._parts[number], at - self._starts[number]

    def ids(self) -> Iterator[str]:
        """Yield the id of each task in order, whatever became of it."""
        return (part.task_id(at) for part in self._parts for at in range(len(part)))

    def errors(self) -> Iterator[tuple[int, FastqError]]:
        """Yield index and error of each task that was not enqueued."""
        for start, part in zip(self._starts, self._parts, strict=True):
            for at in () if part.all_enqueued else range(len(part)):
                if (error := part.error(at)) is not None:
                    yield start + at, error

    @property
    def enqueued(self) -> int:
        """Count the tasks that were enqueued."""
        return self._length - sum(1 for _ in self.errors())

    def __repr__(self) -> str:
        return f"<EnqueueResults: {self._length} tasks, {self.enqueued} enqueued>"
