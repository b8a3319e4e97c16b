"""Clear the demo's queues out of a Redis that is not the demo's own."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from fastq.broker.operation import Operation
from fastq.broker.transport.blocking import BlockingBroker
from fastq.demo.books import Books
from fastq.wire import keys

__all__ = ["sweep"]

_CHUNK: Final = 500


def sweep(broker: BlockingBroker, books: Books, queues: Sequence[str]) -> None:
    """Delete all tasks in the books, and all that there is of the queues."""
    for queue in queues:
        names = [*_task_keys(books, queue), *_queue_keys(queue)]
        for start in range(0, len(names), _CHUNK):
            broker.run(Operation("UNLINK", names[start : start + _CHUNK], (), idempotent=True))
        broker.run(Operation("SREM", (keys.all_queues(),), (queue,), idempotent=True))


def _task_keys(books: Books, queue: str) -> Iterator[str]:
    for task_id in books.ids(queue):
        yield keys.task(queue, task_id)
        order = books.by_id[task_id]
        if order.unique_key:
            yield keys.unique_for_key(queue, order.type, order.unique_key)


def _queue_keys(queue: str) -> Iterator[str]:
    states = (keys.pending, keys.active, keys.lease, keys.scheduled, keys.retry, keys.archived, keys.completed)
    for key in (*states, keys.processed_total, keys.failed_total):
        yield key(queue)
    today = datetime.now(UTC).date()
    for day in (today, today - timedelta(days=1)):  # it may have begun before midnight
        yield keys.processed(queue, day)
        yield keys.failed(queue, day)
        yield keys.lost(queue, day)
