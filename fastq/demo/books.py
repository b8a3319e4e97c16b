"""The books: every enqueued task by its id, and the duplicates that Redis refused."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from fastq.client import Client
from fastq.demo.fates import Fate
from fastq.demo.workload import Offer, Ordered
from fastq.enqueueing.results import EnqueueResults
from fastq.errors import DuplicateTaskError
from fastq.task import Task

_CHUNK: Final = 5_000


class Books:
    """The record of the enqueued tasks."""

    def __init__(self) -> None:
        self.by_id: dict[str, Ordered] = {}
        self.duplicates = 0
        self.refused = 0
        self.faults: list[str] = []
        """The discrepancies during the enqueue."""

    def enqueue(self, client: Client, offers: Iterable[Offer]) -> Iterator[int]:
        """Enqueue the offered tasks, and yield their number so far after each few thousand.

        Enqueued tasks are in the books before it yields, so that they can be deleted even if an exception ends it.
        """
        waiting = iter(offers)
        while True:
            ordered: list[Ordered] = []
            results = client.enqueue_many(_remembering(waiting, ordered))
            if not ordered:
                return
            self._enter(ordered, results)
            yield len(self.by_id)

    def _enter(self, ordered: list[Ordered], results: EnqueueResults) -> None:
        refused = dict(results.errors())
        for at, (task_id, order) in enumerate(zip(results.ids(), ordered, strict=True)):
            error = refused.get(at)
            if error is None:
                self.by_id[task_id] = order
            is_duplicate, is_refused = order.lot.fate is Fate.REFUSED, isinstance(error, DuplicateTaskError)
            self.duplicates += is_duplicate
            self.refused += is_refused
            if is_duplicate is not is_refused:
                what = "enqueued, although it is a duplicate" if error is None else f"not enqueued: {error}"
                self.faults.append(f"task {task_id} ({order.type}, queue {order.queue}) was {what}")

    def ids(self, queue: str) -> list[str]:
        """Return the ids of a queue's tasks."""
        return [task_id for task_id, order in self.by_id.items() if order.queue == queue]

    def the(self, name: str) -> str:
        """Return the id of the only task in the lot ``name``."""
        return next(task_id for task_id, order in self.by_id.items() if order.lot.name == name)

    def expected(self) -> Counter[Fate]:
        """Count the tasks, including duplicates, by their expected fates."""
        return Counter(order.lot.fate for order in self.by_id.values()) + Counter({Fate.REFUSED: self.duplicates})


def _remembering(offers: Iterator[Offer], ordered: list[Ordered]) -> Iterator[Task]:
    for offer in offers:
        ordered.append(offer.ordered)
        yield offer.task
        if len(ordered) == _CHUNK:
            return
