"""The producer: enqueues the tasks while faults strike, through a proxy of its own, in a thread.

A task whose enqueue returned must not be lost. One whose enqueue failed in doubt is not sent again: it may be there or
not. One that was surely not sent is sent again.
"""

import threading
import time
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from fastq.client import Client
from fastq.enqueueing.results import EnqueueResults
from fastq.errors import BrokerError
from tests.chaos.workload import Order

_CHUNK: Final = 100
_AGAIN_S: Final = 0.2


class Enqueued(Enum):
    """What the client reported of a task."""

    YES = "enqueued"
    MAYBE = "in doubt"


class Entry(NamedTuple):
    """A task that was sent, and the time during which it was on its way."""

    order: Order
    said: Enqueued
    began_ns: int
    ended_ns: int


class Producer:
    """Enqueue a third of the tasks at once, the others evenly over the time; ``failure`` is a defect of the bench."""

    def __init__(self, url: str, orders: Iterator[Order], tasks: int, over_s: float) -> None:
        self._url = url
        self._orders = orders
        self._at_once = tasks // 3
        self._rate = (tasks - self._at_once) / over_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos producer")
        self.entries: list[Entry] = []
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End early, if it has not ended."""
        self._stop.set()
        self._thread.join()

    def enqueue(self, url: str, some: list[Order]) -> None:
        """Enqueue tasks beside the others, from the caller's thread."""
        with Client(url) as client:
            unsent = self._send(client, some)
            assert not unsent, unsent

    def _run(self) -> None:
        try:
            with Client(self._url) as client:
                self._produce(client)
        except BaseException as error:  # noqa: BLE001 - shown by the bench, whose thread this is not
            self.failure = error

    def _produce(self, client: Client) -> None:
        began_s = time.monotonic()
        sent = 0
        unsent: list[Order] = []
        while not self._stop.is_set() and (some := unsent or list(islice(self._orders, _CHUNK))):
            due_s = began_s + (sent - self._at_once) / self._rate
            self._stop.wait(max(0.0, due_s - time.monotonic()))
            unsent = self._send(client, some)
            sent += len(some) - len(unsent)
            if unsent:
                self._stop.wait(_AGAIN_S)

    def _send(self, client: Client, some: list[Order]) -> list[Order]:
        """Enqueue tasks, and return those that were surely not."""
        began_ns = time.monotonic_ns()
        failure: BrokerError | None = None
        try:
            results = client.enqueue_many([order.task for order in some])
        except BrokerError as error:
            failure, results = error, _results_until(error)
        ended_ns = time.monotonic_ns()
        errors = dict(results.errors())
        unsent = []
        for at, order in enumerate(some):
            fault = errors.get(at) if at < len(results) else failure
            if isinstance(fault, BrokerError) and not fault.maybe_applied:
                unsent.append(order)
            else:
                said = Enqueued.YES if fault is None else Enqueued.MAYBE
                self.entries.append(Entry(order, said, began_ns, ended_ns))
        return unsent


def _results_until(error: BrokerError) -> EnqueueResults:
    assert isinstance(error.results, EnqueueResults), error
    return error.results
