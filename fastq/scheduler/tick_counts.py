"""``TickCounts``: a scheduler's ticks counted by their outcome, for the counters in Redis."""

import logging
from collections import Counter
from typing import Final

from fastq.broker.operations.schedulers import TickOutcome, count_ticks
from fastq.broker.transport.blocking import BlockingBroker
from fastq.errors import BrokerError

PAUSE_S: Final = 5.0

_log = logging.getLogger("fastq.scheduler")


class TickCounts:
    """The ticks of a scheduler that are not counted in Redis yet.

    A count whose write may have been carried out is not written again, so no tick is counted twice.
    """

    def __init__(self) -> None:
        self._waiting: Counter[tuple[TickOutcome, str]] = Counter()
        self._write_at_s = 0.0
        self._fails = False

    def note(self, outcome: TickOutcome, task_type: str, count: int = 1) -> None:
        """Count ticks of an entry whose tasks have this type."""
        self._waiting[outcome, task_type] += count

    def write(self, broker: BlockingBroker, now_s: float) -> None:
        """Add the counted ticks to Redis. After an error, try again at most every 5 s. ``now_s`` is monotonic."""
        if not self._waiting or now_s < self._write_at_s:
            return
        counts, self._waiting = self._waiting, Counter()
        (error,) = broker.run_many((count_ticks(counts),))
        if not isinstance(error, BrokerError):
            self._write_at_s, self._fails = 0.0, False
            return
        if not error.maybe_applied:
            self._waiting.update(counts)
        self._write_at_s = now_s + PAUSE_S
        if not self._fails:
            _log.warning("ticks could not be counted in Redis, which is tried again: %s", error)
        self._fails = True
