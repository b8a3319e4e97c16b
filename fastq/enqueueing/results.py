"""The results of ``enqueue_many``: a TaskInfo or an error for each task, made on access.

The results are kept in columns, not objects. A task takes about 1 byte if its id is generated, 41 bytes if the caller
gave the id, and under 100 bytes if the tasks differ in every option.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import shake_128
from itertools import accumulate
from typing import Any, Protocol, TypeAlias, overload

from fastq._ids import format_ids
from fastq.broker.operations.enqueue import Outcome, error_of
from fastq.enqueueing.producer import enqueued_info, found_info, message_of
from fastq.errors import FastqError
from fastq.info import TaskInfo
from fastq.options import TaskOptions, starting_state
from fastq.task import Task


class Texts:
    """Strings in one buffer. Each takes its length and 4 bytes; a string object would take over 50 more."""

    __slots__ = ("_data", "_ends")

    def __init__(self, texts: Iterable[str]) -> None:
        encoded = [text.encode() for text in texts]
        self._data = b"".join(encoded)
        self._ends = array("I", list(accumulate(map(len, encoded))))  # an array made of an iterator keeps spare space

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        return self._data[self._ends[index - 1] if index else 0 : self._ends[index]].decode()


class SeededIds:
    """The generated ids of a chunk: UUIDs, derived from a random seed only on access.

    Only the seed is kept, so a million ids take only the memory of their chunks' seeds.
    """

    __slots__ = ("_count", "_seed")

    def __init__(self, seed: bytes, count: int) -> None:
        self._seed = seed
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> str:
        return _grown(self._seed, self._count)[index]

    def all(self) -> list[str]:
        """Return all ids; each call derives them again."""
        return format_ids(shake_128(self._seed).digest(16 * self._count))


@lru_cache(maxsize=4)
def _grown(seed: bytes, count: int) -> list[str]:
    return SeededIds(seed, count).all()


Column: TypeAlias = "array[int] | Texts"


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """The results of a chunk of tasks, in columns; if all tasks have the same value, only this value is kept.

    ``options`` are the first task's options; ``columns`` has the values of the options that differ. The column
    ``process_at_us`` has 0 for None. The times are in microseconds, like a datetime, because nanoseconds exceed 64 bits
    after 2262.
    """

    now_ns: int
    ids: Texts | SeededIds
    types: str | Texts
    options: TaskOptions
    columns: Mapping[str, Column]
    outcomes: list[Outcome] | None
    tasks: list[Task] | None

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
        """Return a task's options, except those that only its lock or its key needs."""
        if not self.columns:
            return self.options
        fields: dict[str, Any] = {name: column[index] for name, column in self.columns.items()}
        at_us: int | None = fields.pop("process_at_us", None)
        process_at_ns = self.options.process_at_ns if at_us is None else at_us * 1000 or None
        fields = {**self.options.fields, **fields}
        state = starting_state(process_at_ns, fields["group_key"])
        return replace(self.options, fields=fields, state=state, process_at_ns=process_at_ns)

    def queue(self, index: int) -> str:
        """Return the queue of a task."""
        column = self.columns.get("queue")
        return self.options.queue if column is None else str(column[index])

    def error(self, index: int) -> FastqError | None:
        """Return the error of a task, None if it was enqueued."""
        if self.outcomes is None:
            return None
        outcome = self.outcomes[index]
        return error_of(outcome, self.options_of(index).queue, self.task_id(index))

    def info(self, index: int) -> TaskInfo:
        """Describe a task as it was enqueued."""
        options = self.options_of(index)
        if self.tasks is not None:
            task = self.tasks[index]
        else:
            task = Task(self.types if isinstance(self.types, str) else self.types[index])
        info = enqueued_info(message_of(task, options, self.task_id(index)), options, self.now_ns)
        return info if self.outcomes is None else found_info(info, self.outcomes[index])

    def without_tasks(self) -> "ChunkResult":
        """Return the same part without payloads and headers."""
        return replace(self, tasks=None, options=replace(self.options, headers=None))


class ResultPart(Protocol):
    """The results of consecutive tasks of one call."""

    def __len__(self) -> int: ...
    @property
    def all_enqueued(self) -> bool:
        """Return whether no task has an error."""

    def task_id(self, index: int) -> str:
        """Return a task's id."""

    def queue(self, index: int) -> str:
        """Return the queue of a task."""

    def error(self, index: int) -> FastqError | None:
        """Return the error of a task, None if it was enqueued."""

    def info(self, index: int) -> TaskInfo:
        """Describe a task that was enqueued."""

    def without_tasks(self) -> "ResultPart":
        """Return the same part without payloads and headers."""


class EnqueueResults(Sequence[TaskInfo | FastqError]):
    """The results of ``enqueue_many``: a ``TaskInfo`` or the error of each task, in order, made on access.

    The tasks of a list or tuple are kept, since the caller keeps them anyway, so their infos have payload and headers.
    The tasks of an iterator are not kept, so their infos have an empty payload and no headers.
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
        """Yield the id of each task in order, whether it was enqueued or not."""
        return (part.task_id(at) for part in self._parts for at in range(len(part)))

    def places(self) -> Iterator[tuple[tuple[str, str], FastqError | None]]:
        """Yield queue and id of each task in order, and its error if it was not enqueued."""
        for part in self._parts:
            for at in range(len(part)):
                yield (part.queue(at), part.task_id(at)), None if part.all_enqueued else part.error(at)

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


def joined(results: Iterable[EnqueueResults], *, keep_tasks: bool) -> EnqueueResults:
    """Return the results of one call that was sent in parts, as one sequence."""
    return EnqueueResults(part if keep_tasks else part.without_tasks() for each in results for part in each._parts)
