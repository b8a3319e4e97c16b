"""``enqueue_many``: an iterable is cut into chunks; each chunk becomes the batches of one round trip.

A chunk is bounded by count and bytes, so that no script holds Redis for long and memory stays flat for any iterable.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import urandom
from typing import Any, Final

from fastq._ids import next_task_id
from fastq.broker.operation import Flow, Receive, Send
from fastq.broker.operations.enqueue import (
    EnqueueBatch,
    EnqueueOutcome,
    EnqueueReport,
    NewTask,
    Outcome,
    enqueue_operations,
    settle_enqueue,
)
from fastq.common.clock import Clock
from fastq.common.states import TaskState
from fastq.enqueueing.backlog import limit_of_call
from fastq.enqueueing.producer import Producer, message_of, new_task_of
from fastq.enqueueing.results import ChunkResult, Column, EnqueueResults, SeededIds, Texts
from fastq.errors import BrokerError, not_a_task
from fastq.options import MAX_INT32, NO_OPTIONS, TaskOptions, check_options, complete
from fastq.task import Task

MAX_CHUNK_TASKS: Final = 500
MAX_CHUNK_BYTES: Final = 256_000
SEED_SIZE: Final = 16


class Chunk:
    """The composed tasks of one round trip.

    It turns the report of the round trip into the results of the tasks.
    """

    def __init__(self, now_ns: int, seed: bytes) -> None:
        self._now_ns = now_ns
        self._seed = seed  # the seed of the ids; empty once a task has an id that is not derived from it
        self._new_tasks: list[NewTask] = []
        self._tasks: list[Task] = []
        self._options: list[TaskOptions] = []
        self._places: dict[tuple[str, TaskState, bool, bool], list[int]] = {}
        self._last: tuple[TaskOptions | None, list[int]] = None, []

    def __len__(self) -> int:
        return len(self._new_tasks)

    def add(self, task: Task, new_task: NewTask, options: TaskOptions) -> None:
        """Append a composed task."""
        last, positions = self._last
        if options is not last:
            kind = options.queue, options.state, options.in_lane, options.if_there != ""
            positions = self._places.setdefault(kind, [])
            self._last = options, positions
        if options.task_id or options.in_lane:
            self._seed = b""
        positions.append(len(self._new_tasks))
        self._new_tasks.append(new_task)
        self._tasks.append(task)
        self._options.append(options)

    @property
    def queues(self) -> set[str]:
        """Return the names of the chunk's queues."""
        return {queue for queue, *_ in self._places}

    def batches(self) -> list[EnqueueBatch]:
        """Return a batch for each combination of queue, starting state, lanes, and key or not; tasks stay in order."""
        new_tasks = self._new_tasks
        return [
            EnqueueBatch(queue, state, [new_tasks[at] for at in positions], self._now_ns, in_lane)
            for (queue, state, in_lane, _), positions in self._places.items()
        ]

    def result(self, report: EnqueueReport, *, keep_tasks: bool) -> ChunkResult:
        """Return the results of the chunk's tasks, given the report of the round trip."""
        types = [task.type for task in self._tasks]
        first = self._options[0]
        return ChunkResult(
            now_ns=self._now_ns,
            ids=SeededIds(self._seed, len(types)) if self._seed else Texts(each.id for each in self._new_tasks),
            types=types[0] if _all_equal(types) else Texts(types),
            options=replace(
                first,
                task_id="",
                unique_key=None,
                unique_ttl_ns=0,
                until="done",
                if_there="",
                headers=first.headers if keep_tasks else None,
            ),
            columns=_columns(self._options),
            outcomes=self._outcomes(report),
            tasks=self._tasks if keep_tasks else None,
        )

    def _outcomes(self, report: EnqueueReport) -> list[Outcome] | None:
        in_order: list[Outcome] = [EnqueueOutcome.ENQUEUED] * len(self._new_tasks)
        all_enqueued = True
        for positions, outcomes in zip(self._places.values(), report.outcomes, strict=True):
            if any(outcome is not EnqueueOutcome.ENQUEUED for outcome in outcomes):
                all_enqueued = False
                for at, outcome in zip(positions, outcomes, strict=True):
                    in_order[at] = outcome
        return None if all_enqueued else in_order


def _columns(options: Sequence[TaskOptions]) -> dict[str, Column]:
    """Return the options whose values differ between tasks, each as a column."""
    first = options[0]
    if all(each is first for each in options):
        return {}
    columns = {name: [each.fields[name] for each in options] for name in first.fields}
    columns["process_at_us"] = [(each.process_at_ns or 0) // 1000 for each in options]
    return {name: _column(values) for name, values in columns.items() if not _all_equal(values)}


def _column(values: Sequence[Any]) -> Column:
    if isinstance(values[0], str):
        return Texts(values)
    return array("i" if min(values) >= -MAX_INT32 and max(values) <= MAX_INT32 else "q", values)


def _all_equal(values: Sequence[object]) -> bool:
    return values.count(values[0]) == len(values)


class BulkComposer:
    """The composer of the tasks of one ``enqueue_many`` call; ``checked`` are the call's options, already checked."""

    def __init__(self, checked: Mapping[str, Any], clock: Clock, most: int = MAX_CHUNK_TASKS) -> None:
        self._checked = checked
        self._clock = clock
        self._most = min(most, MAX_CHUNK_TASKS)

    def check(self, tasks: Sequence[object]) -> None:
        """Raise the error of the first task that is no task or has bad options; nothing has been sent by then."""
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
        """Yield the tasks in chunks of bounded count and bytes; the last chunk may be small, none is empty."""
        iterator = iter(tasks)
        while True:
            chunk = self._next_chunk(iterator)
            if not len(chunk):
                return
            yield chunk

    def _next_chunk(self, tasks: Iterator[Task]) -> Chunk:
        now_ns = self._clock.unix_ns()
        seed = urandom(SEED_SIZE)
        chunk = Chunk(now_ns, seed)
        common: TaskOptions | None = None
        size = 0
        for task_id, task in zip(SeededIds(seed, self._most).all(), tasks, strict=False):
            if not isinstance(task, Task):
                raise not_a_task(task)
            if task.options:
                options = complete({**task.options, **self._checked}, now_ns)
            else:
                options = common = common or complete(self._checked, now_ns)
            own_id = options.task_id or (next_task_id(now_ns) if options.in_lane else task_id)
            message = message_of(task, options, own_id)
            new_task = new_task_of(message, options, now_ns)
            chunk.add(task, new_task, options)
            size += len(new_task.message)
            if size >= MAX_CHUNK_BYTES:
                break
        return chunk


def enqueue_many(producer: Producer, tasks: Iterable[Task], options: Mapping[str, object]) -> Flow[EnqueueResults]:
    """Enqueue tasks chunk by chunk; see ``Client.enqueue_many``."""
    composer = BulkComposer(check_options(options), producer.clock, _most_of(producer))
    kept = tuple(tasks) if isinstance(tasks, Sequence) else None
    if kept is not None:
        composer.check(kept)
    return _put_chunks(producer, composer.chunks(tasks if kept is None else kept), keep_tasks=kept is not None)


def put_part(producer: Producer, tasks: Sequence[Task]) -> Flow[EnqueueResults]:
    """Enqueue a part of a call's tasks.

    On an error, the caller notes on it how many tasks of the whole call were sent.
    """
    composer = BulkComposer(NO_OPTIONS, producer.clock, min(len(tasks), _most_of(producer)))
    return _put_chunks(producer, composer.chunks(tasks), keep_tasks=True, is_part=True)


def _most_of(producer: Producer) -> int:
    """Return how many tasks a chunk may have: at most as many as a queue may have pending."""
    limit = limit_of_call(producer.max_pending)
    return MAX_CHUNK_TASKS if limit is None else limit.most


def _put_chunks(
    producer: Producer, chunks: Iterator[Chunk], *, keep_tasks: bool, is_part: bool = False
) -> Flow[EnqueueResults]:
    """Send a chunk, compose the next one while Redis works, read the replies; one chunk at a time keeps the order."""
    results: list[ChunkResult] = []
    limit = limit_of_call(producer.max_pending)
    chunk, failure = _next(chunks)
    while chunk is not None:
        batches, due = chunk.batches(), producer.register.due(chunk.queues)
        if limit is not None:
            try:
                yield from producer.backlog.room(batches, limit)
            except BrokerError as error:
                failure = error
                break
        batches = producer.register.held(batches, due)
        ticket = yield Send(enqueue_operations(batches, due))
        following, failure = _next(chunks)
        report = yield from settle_enqueue(batches, due, (yield Receive(ticket)))
        results.append(chunk.result(report, keep_tasks=keep_tasks))
        refused = _redis_failure(report.outcomes)
        if refused is not None:
            failure = refused
            break
        producer.register.done(due, report.registered)
        chunk = following
    if failure is not None:
        note_progress(failure, EnqueueResults(results), is_part=is_part)
        raise failure
    return EnqueueResults(results)


def _next(chunks: Iterator[Chunk]) -> tuple[Chunk | None, BaseException | None]:
    """Return the next chunk, or the exception that the caller's iterable raised, Ctrl-C included."""
    try:
        return next(chunks, None), None
    except BaseException as error:  # noqa: BLE001 - raised once the chunk that is under way is settled
        return None, error


def _redis_failure(outcomes: Sequence[Sequence[object]]) -> BrokerError | None:
    """Return the first Redis error among the outcomes; it ends the call, since later chunks would probably fail."""
    return next((each for batch in outcomes for each in batch if isinstance(each, BrokerError)), None)


def note_progress(error: BaseException, sent: EnqueueResults, *, is_part: bool = False) -> None:
    """Add to the error that ended an ``enqueue_many`` what was sent before it; a part's error gets no text."""
    if isinstance(error, BrokerError):
        error.results = sent
        note = (
            f"{sent.enqueued} tasks were enqueued before this; the error's results attribute "
            f"tells of the {len(sent)} tasks that were tried, the rest was not"
        )
    else:
        note = f"{len(sent)} tasks were sent before this error; {sent.enqueued} of them were enqueued"
    if not is_part:
        error.add_note(f"enqueue_many: {note}")
