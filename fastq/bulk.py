"""Many tasks at once: an iterable is cut into chunks, each composed into the batches of one round trip.

A chunk is bounded by count and bytes, so that no script holds Redis for long and memory stays flat for any iterable.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fastq._ids import new_task_ids
from fastq.broker.operations.enqueue import Batch, NewTask, Outcome, PutReport
from fastq.clock import Clock
from fastq.compose import compose, message_of, starting_state
from fastq.errors import BrokerError
from fastq.options import TaskOptions, complete
from fastq.results import ChunkResult, Column, Texts
from fastq.states import TaskState
from fastq.task import Task

__all__ = ["MAX_CHUNK_BYTES", "MAX_CHUNK_TASKS", "BulkComposer", "Chunk", "not_a_task"]

MAX_CHUNK_TASKS: Final = 500
MAX_CHUNK_BYTES: Final = 256_000


class Chunk:
    """Hold the composed tasks of one round trip, and turn its report into their results."""

    def __init__(self, now_ns: int, headers: Mapping[str, str]) -> None:
        self._now_ns = now_ns
        self._headers = headers
        self._new_tasks: list[NewTask] = []
        self._tasks: list[Task] = []
        self._options: list[TaskOptions] = []
        self._places: dict[tuple[str, TaskState], list[int]] = {}

    def __len__(self) -> int:
        return len(self._new_tasks)

    def add(self, task: Task, new_task: NewTask, options: TaskOptions) -> None:
        """Append a composed task."""
        place = (options.queue, starting_state(options))
        positions = self._places.get(place)
        if positions is None:
            positions = self._places[place] = []
        positions.append(len(self._new_tasks))
        self._new_tasks.append(new_task)
        self._tasks.append(task)
        self._options.append(options)

    @property
    def queues(self) -> set[str]:
        """Name the queues of the chunk."""
        return {queue for queue, _ in self._places}

    def batches(self) -> list[Batch]:
        """Return one batch for each queue and starting state; each keeps the order of its tasks."""
        new_tasks = self._new_tasks
        return [
            Batch(queue, state, [new_tasks[at] for at in positions], self._now_ns)
            for (queue, state), positions in self._places.items()
        ]

    def result(self, report: PutReport, *, keep_tasks: bool) -> ChunkResult:
        """Pack what became of the tasks."""
        types = [task.type for task in self._tasks]
        return ChunkResult(
            now_ns=self._now_ns,
            ids=Texts(new_task.id for new_task in self._new_tasks),
            types=types[0] if _all_equal(types) else Texts(types),
            options=replace(self._options[0], task_id="", unique_key=None, unique_ttl_ns=0),
            columns=_columns(self._options),
            outcomes=self._outcomes(report),
            tasks=self._tasks if keep_tasks else None,
            headers=self._headers,
        )

    def _outcomes(self, report: PutReport) -> list[Outcome | BrokerError] | None:
        in_order: list[Outcome | BrokerError] = [Outcome.ENQUEUED] * len(self._new_tasks)
        all_enqueued = True
        for positions, outcomes in zip(self._places.values(), report.outcomes, strict=True):
            if any(outcome is not Outcome.ENQUEUED for outcome in outcomes):
                all_enqueued = False
                for at, outcome in zip(positions, outcomes, strict=True):
                    in_order[at] = outcome
        return None if all_enqueued else in_order


def _columns(options: Sequence[TaskOptions]) -> dict[str, Column]:
    """Return the fields in which the options differ, each as a column."""
    first = options[0]
    if all(each is first for each in options):
        return {}
    numbers = {name: [getattr(each, name) for each in options] for name in _NUMBERS}
    numbers["process_at_us"] = [(each.process_at_ns or 0) // 1000 for each in options]
    texts = {name: [getattr(each, name) for each in options] for name in _TEXTS}
    return {
        **{name: array(_WIDTHS.get(name, "q"), values) for name, values in numbers.items() if not _all_equal(values)},
        **{name: Texts(values) for name, values in texts.items() if not _all_equal(values)},
    }


_NUMBERS: Final = ("max_retry", "timeout_s", "deadline_s", "retention_s")
_WIDTHS: Final = {"max_retry": "i"}
_TEXTS: Final = ("queue", "group")


def _all_equal(values: Sequence[object]) -> bool:
    return values.count(values[0]) == len(values)


def not_a_task(given: object) -> TypeError:
    """Return the error for what is no ``Task``."""
    return TypeError(f"enqueue_many takes Task objects, not {type(given).__name__}: {given!r}")


class BulkComposer:
    """Compose the tasks of one ``enqueue_many`` call, whose options are checked already."""

    def __init__(self, checked: Mapping[str, Any], clock: Clock) -> None:
        self._checked = checked
        self._headers: Mapping[str, str] = checked.get("headers", {})
        self._clock = clock

    def check(self, tasks: Sequence[object]) -> None:
        """Refuse what could not be composed, before anything is sent."""
        now_ns = self._clock.unix_ns()
        for index, task in enumerate(tasks):
            try:
                if not isinstance(task, Task):
                    raise not_a_task(task)
                complete({**task.options, **self._checked} if task.options else self._checked, now_ns)
            except (TypeError, ValueError) as error:
                error.add_note(f"this is task number {index}; nothing was enqueued")
                raise

    def chunks(self, tasks: Iterable[Task]) -> Iterator[Chunk]:
        """Yield the tasks in chunks of bounded count and bytes; the last may be small, none is empty."""
        iterator = iter(tasks)
        while True:
            chunk = self._next_chunk(iterator)
            if not len(chunk):
                return
            yield chunk

    def _next_chunk(self, tasks: Iterator[Task]) -> Chunk:
        now_ns = self._clock.unix_ns()
        chunk = Chunk(now_ns, self._headers)
        common: TaskOptions | None = None
        size = 0
        for task_id, task in zip(new_task_ids(MAX_CHUNK_TASKS), tasks, strict=False):
            if not isinstance(task, Task):
                raise not_a_task(task)
            if task.options:
                options = complete({**task.options, **self._checked}, now_ns)
            else:
                options = common = common or complete(self._checked, now_ns)
            headers = {**task.headers, **self._headers} if self._headers else task.headers
            message = message_of(task, options, headers, options.task_id or task_id)
            new_task = compose(message, options, now_ns)
            chunk.add(task, new_task, options)
            size += len(new_task.message)
            if size >= MAX_CHUNK_BYTES:
                break
        return chunk
