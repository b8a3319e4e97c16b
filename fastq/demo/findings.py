"""The findings: the data in Redis after the worker has ended, and the ledger of the handlers."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from fastq.broker.inspect.queues import QueueStats, queue_stats
from fastq.broker.inspect.tasks import STATES, FoundTask, container, read_all_tasks
from fastq.broker.operation import Operation
from fastq.broker.operations.walk import LISTS
from fastq.broker.transport.blocking import BlockingBroker
from fastq.common.states import TaskState
from fastq.demo.books import Books
from fastq.demo.ledger import Run, read_ledger
from fastq.errors import BrokerError
from fastq.wire import keys

T = TypeVar("T")

TaskKey = tuple[str, str]
"""Queue and id."""

_LEASE: Final = "lease"
_PLACES: Final = (*STATES, _LEASE)
_CHUNK: Final = 500


class QueueCounts(NamedTuple):
    """The number of tasks in each state of a queue, and the totals of runs ever processed and failed."""

    scheduled: int
    retry: int
    pending: int
    active: int
    completed: int
    archived: int
    processed: int
    failed: int

    @property
    def unfinished(self) -> int:
        """Return the number of unfinished tasks."""
        return self.scheduled + self.retry + self.pending + self.active


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings in Redis and in the ledgers.

    ``states`` lists, for each task, the lists and sets of Redis that contain it, and ``stored`` has the contents of its
    hash. ``orphans`` are enqueued tasks with a hash that no list or set contains. ``locks`` are unique locks that are
    still held.
    """

    counts: Mapping[str, QueueCounts]
    states: Mapping[TaskKey, Sequence[str]]
    stored: Mapping[TaskKey, FoundTask]
    orphans: Sequence[TaskKey]
    locks: Sequence[str]
    runs: Mapping[str, Sequence[Run]]


def read_counts(broker: BlockingBroker, queues: Sequence[str]) -> dict[str, QueueCounts]:
    """Count the tasks of queues in one round trip."""
    stats: list[QueueStats] = _all(broker.run_many([queue_stats(queue, time.time()) for queue in queues]))
    return {
        queue: QueueCounts(
            **{str(state): size for state, size in each.sizes.items()},
            processed=each.processed_total,
            failed=each.failed_total,
        )
        for queue, each in zip(queues, stats, strict=True)
    }


def find(broker: BlockingBroker, books: Books, ledger: Path, check: Callable[[], None]) -> Findings:
    """Collect the findings; ``check`` is called now and then, and may raise to stop."""
    queues = sorted({order.queue for order in books.by_id.values()})
    states: dict[TaskKey, list[str]] = {}
    for queue in queues:
        for place in _PLACES:
            for task_id in _members(broker, queue, place, check):
                states.setdefault((queue, task_id), []).append(place)
    stored: dict[TaskKey, FoundTask] = {}
    for queue in queues:
        for some in _chunks([key for key in states if key[0] == queue], check):
            stored |= zip(some, broker.drive(read_all_tasks(queue, [task_id for _, task_id in some])), strict=True)
    orphans = [(queue, task_id) for queue in queues for task_id in _orphans(broker, books, queue, states, check)]
    locks = [lock for lock in _lock_names(books) if broker.run(_count_existing(lock))]
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
        if broker.run(_count_existing(*(keys.task(queue, task_id) for task_id in some))):
            yield from (task_id for task_id in some if broker.run(_count_existing(keys.task(queue, task_id))))


def _count_existing(*names: str) -> Operation[int]:
    return Operation("EXISTS", names, (), int, idempotent=True)


def _lock_names(books: Books) -> list[str]:
    orders = books.by_id.values()
    return [keys.unique_for_key(order.queue, order.type, order.unique_key) for order in orders if order.unique_key]


def _members(broker: BlockingBroker, queue: str, place: str, check: Callable[[], None]) -> Iterator[str]:
    start = 0
    while some := broker.run(_read_ids(queue, place, start)):
        check()
        yield from (member.decode("utf-8", "surrogateescape") for member in some)
        start += len(some)


def _read_ids(queue: str, place: str, start: int) -> Operation[list[bytes]]:
    key = keys.lease(queue) if place == _LEASE else container(queue, TaskState(place))
    return Operation("LRANGE" if place in LISTS else "ZRANGE", (key,), (start, start + _CHUNK - 1), idempotent=True)


def _chunks(items: Sequence[T], check: Callable[[], None]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _CHUNK):
        check()
        yield items[start : start + _CHUNK]


def _all(results: list[T | BrokerError]) -> list[T]:
    for result in results:
        if isinstance(result, BrokerError):
            raise result
    return results  # type: ignore[return-value]  # it contains no errors
