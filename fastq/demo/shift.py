"""The shift: from the worker's start until all tasks are finished, observed through Redis' counters."""

import time
from collections.abc import Mapping
from typing import Final

from fastq.broker.operation import Operation
from fastq.broker.transport.blocking import BlockingBroker
from fastq.client import Client
from fastq.demo.books import Books
from fastq.demo.display import Display
from fastq.demo.fates import STUCK
from fastq.demo.findings import QueueCounts, read_counts
from fastq.demo.ledger import LedgerTail
from fastq.demo.worker import Worker
from fastq.demo.workload import Workload
from fastq.terminal.interruption import Interruption
from fastq.terminal.screen import Screen, grouped
from fastq.wire import keys

_POLL_S: Final = 0.1


class StalledError(Exception):
    """Raised when no task has made progress for a long time although some are unfinished."""


class Shift:
    """The work during a demo: watch the worker, cancel tasks that hang without a timeout, enqueue the late tasks."""

    def __init__(
        self,
        broker: BlockingBroker,
        worker: Worker,
        books: Books,
        screen: Screen,
        interruption: Interruption,
        patience_s: float = 60.0,
    ) -> None:
        self._broker = broker
        self._worker = worker
        self._books = books
        self._screen = screen
        self._interruption = interruption
        self._patience_s = patience_s
        self._tail = LedgerTail(worker.ledger)
        self._stuck = books.the(STUCK.name)
        self._stuck_has_begun = False
        self._is_canceled = False
        self._last: Mapping[str, QueueCounts] = {}
        self._last_change_s = time.monotonic()
        self._is_finished = False

    def work_off(
        self, workload: Workload, client: Client, weights: Mapping[str, int], before: Mapping[str, QueueCounts]
    ) -> None:
        """Wait until all is done; ``WorkerEndedError``, ``StalledError`` or ``Interrupted`` if that fails."""
        display = Display(self._screen, workload.tasks, weights, before)
        late_are_in = False
        while not self._is_finished:
            counts = read_counts(self._broker, list(weights))
            if not late_are_in and not any(count.pending for count in counts.values()):
                late_are_in = True
                for _ in self._books.enqueue(client, workload.second_wave()):
                    pass
                continue
            display.show(counts, len(self._books.by_id))
            self._note(counts)
            self._cancel_stuck()
            self._worker.check()
            self._interruption.wait(_POLL_S)
        display.show(self._last, len(self._books.by_id), last=True)

    def _note(self, counts: Mapping[str, QueueCounts]) -> None:
        now_s = time.monotonic()
        unfinished = sum(count.unfinished for count in counts.values())
        changed = counts != self._last
        self._is_finished = not unfinished
        if changed:
            self._last, self._last_change_s = counts, now_s
        elif now_s - self._last_change_s > self._patience_s:
            raise StalledError(
                f"no progress for {self._patience_s:g} s; {grouped(unfinished)} tasks are left\n"
                + self._worker.last_words()
            )

    def _cancel_stuck(self) -> None:
        self._stuck_has_begun = self._stuck_has_begun or self._tail.names(self._stuck)
        if self._stuck_has_begun and not self._is_canceled:
            # The message is lost while the worker renews its subscription. So it is sent again in the next round.
            cancel = Operation("PUBLISH", (), (keys.CANCEL_CHANNEL, self._stuck), int, idempotent=True)
            self._is_canceled = self._broker.run(cancel) > 0
