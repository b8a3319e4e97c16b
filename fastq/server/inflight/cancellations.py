"""Cancellations of tasks that are not in flight here: a dequeue under way may bring the tasks."""

from typing import Final, NamedTuple

from fastq.broker.operations.cancel import CancelAs, Cancellation
from fastq.common.clock import Clock
from fastq.server.inflight.expiring_dict import ExpiringDict

REMEMBER_S: Final = 2.0


class _Early(NamedTuple):
    """The outcome wanted, and when the cancellation came (monotonic seconds)."""

    outcome: CancelAs
    at_s: float


class EarlyCancellations(ExpiringDict[tuple[str | None, str], _Early]):
    """The cancellations of the last two seconds that named no task in flight here."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(REMEMBER_S, clock)

    def keep(self, cancellation: Cancellation) -> None:
        """Remember a cancellation for a while."""
        early = _Early(cancellation.outcome or CancelAs.RETRY, self._clock.monotonic_s())
        self.put((cancellation.queue, cancellation.task_id), early)

    def outcome_of(self, queue: str, task_id: str, asked_s: float) -> CancelAs | None:
        """Return the wanted fate of an incoming task that was canceled on its way here, else None.

        ``asked_s`` is the time of its dequeue request. A cancellation from before that time was for an earlier run, not
        for this one.
        """
        self.forget_what_is_over()
        by_id, by_name = self.take((None, task_id)), self.take((queue, task_id))
        early = by_name or by_id
        return early.outcome if early is not None and early.at_s >= asked_s else None
