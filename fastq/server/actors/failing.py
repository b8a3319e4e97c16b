"""The queues whose Redis operations fail just now: each is tried again by itself, while the others are served."""

from collections.abc import Iterator
from logging import Logger

from fastq.errors import BrokerError, BrokerOutOfMemoryError
from fastq.server.actors.actor import backoff_s
from fastq.server.base.outage import Outage


class FailingQueues:
    """Counts an actor's failures in a row, by queue, and logs them; an outage is not logged for each queue."""

    def __init__(self, actor: object, outage: Outage, log: Logger) -> None:
        self._actor = actor
        self._outage = outage
        self._log = log
        self._failures: dict[str, int] = {}
        self.errors: dict[str, BrokerError] = {}
        """The last error of each queue that fails."""
        self._full: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._failures)

    def __iter__(self) -> Iterator[str]:
        return iter(self._failures)

    def in_outage(self) -> set[str]:
        """Return the queues whose last failure was an outage of Redis, not a failure of their own.

        Queues on a Redis that is out of memory are left out: the command that asks whether an outage is over only
        reads, so its success would prove nothing.
        """
        return {queue for queue in self._failures if self._outage.is_met_by((self._actor, queue))} - self._full

    def note_failure(self, queue: str, error: BrokerError) -> float:
        """Log why a queue failed, unless that is known; return for how many seconds to leave it alone."""
        (self._full.add if isinstance(error, BrokerOutOfMemoryError) else self._full.discard)(queue)
        failures = self._failures[queue] = self._failures.get(queue, 0) + 1
        self.errors[queue] = error
        if self._outage.report((self._actor, queue), error):
            self._log.warning("queue %s: %s; trying again until it works", queue, error)
        return backoff_s(failures)

    def note_answer(self, queue: str) -> None:
        """Note that a queue does not fail any more."""
        self.errors.pop(queue, None)
        if self._failures.pop(queue, 0) and (failures := self._outage.clear((self._actor, queue))):
            self._log.info("Redis operations succeed again after %d failed attempts", failures)

    def forget(self) -> None:
        """Forget all failures, since no request will follow that could succeed."""
        self.errors.clear()
        while self._failures:
            self._outage.clear((self._actor, self._failures.popitem()[0]))
