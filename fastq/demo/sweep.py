"""Removes the demo's queues from the user's Redis; a private Redis of the demo is simply ended."""

from collections.abc import Iterator, Sequence
from typing import Final

from fastq.broker.inspect.removal import keys_of_queue
from fastq.broker.operation import Operation
from fastq.broker.transport.blocking import BlockingBroker
from fastq.demo.books import Books
from fastq.wire import keys

_CHUNK: Final = 500


def sweep(broker: BlockingBroker, books: Books, queues: Sequence[str]) -> None:
    """Delete all tasks in the books, and everything else of the queues."""
    for queue in queues:
        fingerprints: list[bytes] = broker.run(Operation("ZRANGE", (keys.errors(queue),), (0, -1), idempotent=True))
        tracebacks = [keys.error(queue, fingerprint.decode()) for fingerprint in fingerprints]
        names = [*_task_keys(books, queue), *tracebacks, *keys_of_queue(queue)]
        for start in range(0, len(names), _CHUNK):
            broker.run(Operation("UNLINK", names[start : start + _CHUNK], (), idempotent=True))
        broker.run(Operation("SREM", (keys.all_queues(),), (queue,), idempotent=True))


def _task_keys(books: Books, queue: str) -> Iterator[str]:
    for task_id in books.ids(queue):
        yield keys.task(queue, task_id)
        order = books.by_id[task_id]
        if order.unique_key:
            yield keys.unique_for_key(queue, order.type, order.unique_key)
