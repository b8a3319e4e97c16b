"""The findings: the data in Redis after the worker has ended, and the ledger of the handlers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from fastq.broker.inspect.counts import QueueCounts, StoredTask, count_existing, count_tasks, list_members, read_stored
from fastq.broker.transport.blocking import BlockingBroker
from fastq.demo.books import Books
from fastq.demo.ledger import Run, read_ledger
from fastq.errors import BrokerError
from fastq.wire import keys

__all__ = ["Findings", "TaskKey", "find", "read_counts"]

T = TypeVar("T")

TaskKey = tuple[str, str]
"""Queue and id."""

_STATES: Final = ("scheduled", "retry", "pending", "active", "lease", "completed", "archived")
_CHUNK: Final = 500


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings in Redis and in the ledgers.

    ``states`` lists the places of each task that is anywhere in Redis, ``stored`` the contents of its hash. ``orphans``
    are enqueued tasks with a hash but no place, ``locks`` are unique locks that are still held.
    """

    counts: Mapping[str, QueueCounts]
    states: Mapping[TaskKey, Sequence[str]]
    stored: Mapping[TaskKey, StoredTask]
    orphans: Sequence[TaskKey]
    locks: Sequence[str]
    runs: Mapping[str, Sequence[Run]]


def read_counts(broker: BlockingBroker, queues: Sequence[str]) -> dict[str, QueueCounts]:
    """Count the tasks of queues in one round trip."""
    results = _all(broker.run_many([operation for queue in queues for operation in count_tasks(queue)]))
    width = len(QueueCounts._fields)
    return {queue: QueueCounts(*results[at * width : (at + 1) * width]) for at, queue in enumerate(queues)}


def find(broker: BlockingBroker, books: Books, ledger: Path, check: Callable[[], None]) -> Findings:
    """Collect the findings; ``check`` is called now and then, and may raise to stop."""
    queues = sorted({order.queue for order in books.by_id.values()})
    states: dict[TaskKey, list[str]] = {}
    for queue in queues:
        for state in _STATES:
            for task_id in _members(broker, queue, state, check):
                states.setdefault((queue, task_id), []).append(state)
    stored: dict[TaskKey, StoredTask] = {}
    for some in _chunks(list(states), check):
        stored |= zip(some, _all(broker.run_many([read_stored(*key) for key in some])), strict=True)
    orphans = [(queue, task_id) for queue in queues for task_id in _orphans(broker, books, queue, states, check)]
    locks = [lock for lock in _lock_names(books) if broker.run(count_existing([lock]))]
    return Findings(read_counts(broker, queues), states, stored, orphans, locks, read_ledger(ledger))


def _orphans(
    broker: BlockingBroker,
    books: Books,
    queue: str,
    states: Mapping[TaskKey, object],
    check: Callable[[], None],
) -> Iterator[str]:
    gone = [task_id for task_id in books.ids(queue) if (queue, task_id) not in states]
    for some in _chunks(gone, check):
        if broker.run(count_existing([keys.task(queue, task_id) for task_id in some])):
            yield from (task_id for task_id in some if broker.run(count_existing([keys.task(queue, task_id)])))


def _lock_names(books: Books) -> list[str]:
    orders = books.by_id.values()
    return [keys.unique_for_key(order.queue, order.type, order.unique_key) for order in orders if order.unique_key]


def _members(broker: BlockingBroker, queue: str, state: str, check: Callable[[], None]) -> Iterator[str]:
    start = 0
    while some := broker.run(list_members(queue, state, start, _CHUNK)):
        check()
        yield from some
        start += len(some)


def _chunks(items: Sequence[T], check: Callable[[], None]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _CHUNK):
        check()
        yield items[start : start + _CHUNK]


def _all(results: list[T | BrokerError]) -> list[T]:
    for result in results:
        if isinstance(result, BrokerError):
            raise result
    return results  # type: ignore[return-value]  # it contains no errors
