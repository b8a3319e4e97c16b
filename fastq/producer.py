"""What Client and AsyncClient do, as flows: compose tasks, enqueue them, tell what became of each.

Thread-safe: all that is kept between calls is which queues were registered when.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fastq._ids import new_task_id
from fastq.broker.operation import Flow, Receive, Send
from fastq.broker.operations.enqueue import Batch, put, put_operations, settle_put
from fastq.broker.operations.queue_register import QueueRegister
from fastq.bulk import BulkComposer, Chunk
from fastq.clock import Clock
from fastq.compose import compose, message_of, starting_state
from fastq.errors import BrokerError
from fastq.info import TaskInfo
from fastq.options import TaskOptions, check_options, complete
from fastq.results import ChunkResult, EnqueueResults, enqueued_info, error_of
from fastq.task import Task

__all__ = ["Producer"]


class Producer:
    """Make the flows that enqueue tasks; a client of one kind or the other drives them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._register = QueueRegister(clock)

    def enqueue(self, task: Task | str, payload: Any, options: Mapping[str, Any]) -> Flow[TaskInfo]:
        """Enqueue one task; the flow raises its error."""
        task = _as_task(task, payload)
        call = check_options(options) if options else options
        now_ns = self._clock.unix_ns()
        chosen = complete({**task.options, **call}, now_ns)
        headers = {**task.headers, **call["headers"]} if "headers" in call else task.headers
        message = message_of(task, chosen, headers, chosen.task_id or new_task_id())
        batch = Batch(chosen.queue, starting_state(chosen), (compose(message, chosen, now_ns),), now_ns)
        return self._put_one(batch, chosen, enqueued_info(message, chosen, now_ns))

    def _put_one(self, batch: Batch, options: TaskOptions, info: TaskInfo) -> Flow[TaskInfo]:
        due = self._register.due((options.queue,))
        report = yield from put((batch,), due)
        error = error_of(report.outcomes[0][0], info.queue, info.id)
        self._register.done(() if isinstance(error, BrokerError) else due, report.registered)
        if error is not None:
            raise error
        return info

    def enqueue_many(self, tasks: Iterable[Task], options: Mapping[str, Any]) -> Flow[EnqueueResults]:
        """Enqueue tasks chunk by chunk; see ``Client.enqueue_many``."""
        composer = BulkComposer(check_options(options), self._clock)
        kept = tuple(tasks) if isinstance(tasks, Sequence) else None
        if kept is not None:
            composer.check(kept)
        return self._put_chunks(composer, tasks if kept is None else kept, keep_tasks=kept is not None)

    def _put_chunks(self, composer: BulkComposer, tasks: Iterable[Task], *, keep_tasks: bool) -> Flow[EnqueueResults]:
        """Send a chunk, compose the next while Redis works on it, receive; one at a time, so the order is kept."""
        results: list[ChunkResult] = []
        chunks = composer.chunks(tasks)
        chunk, failure = _next(chunks)
        while chunk is not None:
            batches, due = chunk.batches(), self._register.due(chunk.queues)
            ticket = yield Send(put_operations(batches, due))
            following, failure = _next(chunks)
            report = yield from settle_put(batches, due, (yield Receive(ticket)))
            results.append(chunk.result(report, keep_tasks=keep_tasks))
            _stop_if_redis_failed(report.outcomes, results)
            self._register.done(due, report.registered)
            chunk = following
        if failure is not None:
            sent = EnqueueResults(results)
            failure.add_note(
                f"enqueue_many: the first {len(sent)} tasks were sent before this, {sent.enqueued} were enqueued"
            )
            raise failure
        return EnqueueResults(results)


def _as_task(task: Task | str, payload: Any) -> Task:
    if isinstance(task, Task):
        if payload is not None:
            raise TypeError(f"a Task has its payload already; payload={payload!r} goes with a type name only")
        return task
    return Task(task, payload)


def _next(chunks: Iterator[Chunk]) -> tuple[Chunk | None, BaseException | None]:
    """Return the next chunk, or what the caller's iterable raised while it was composed, Ctrl-C included."""
    try:
        return next(chunks, None), None
    except BaseException as error:  # noqa: BLE001 - raised once the chunk that is under way is settled
        return None, error


def _stop_if_redis_failed(outcomes: Sequence[Sequence[object]], so_far: Sequence[ChunkResult]) -> None:
    """Raise the error of a failed round trip: what would follow it would fail too, and nobody may be looking."""
    for batch in outcomes:
        for outcome in batch:
            if isinstance(outcome, BrokerError):
                outcome.results = results = EnqueueResults(so_far)
                outcome.add_note(
                    f"enqueue_many: {results.enqueued} tasks were enqueued before this; the error's results attribute "
                    f"tells of the {len(results)} tasks that were tried, the rest was not"
                )
                raise outcome
