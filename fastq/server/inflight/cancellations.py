"""Cancellations of tasks that are not here: a dequeue under way may bring them."""

from typing import Final, NamedTuple

from fastq.broker.operations.cancel import CancelAs, Cancellation
from fastq.common.clock import Clock
from fastq.server.inflight.expiring_dict import ExpiringDict

REMEMBER_S: Final = 2.0


class _Early(NamedTuple):
    """The outcome wanted, and when the cancellation came (monotonic seconds)."""

    outcome: CancelAs
    at_s: float


class EarlyCancellations:
    """The cancellations of the last two seconds that named no task in flight here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept = ExpiringDict[tuple[str | None, str], _Early](REMEMBER_S, clock)

    def keep(self, cancellation: Cancellation) -> None:
        """Remember a cancellation for a while."""
        early = _Early(cancellation.outcome or CancelAs.RETRY, self._clock.monotonic_s())
        self._kept.put((cancellation.queue, cancellation.task_id), early)

    def __bool__(self) -> bool:
        """Return whether any is kept."""
        if not self._kept:
            return False
        self._kept.forget_what_is_over()
        return bool(self._kept)

    def take(self, queue: str, task_id: str, asked_s: float) -> CancelAs | None:
        """Return the wanted fate of an incoming task that was canceled on its way here, else None.

        ``asked_s`` is the time of its dequeue request. A cancellation from before that time was for an earlier run, not
        for this one.
        """
        if not self._kept:
            return None
        by_id, by_name = self._kept.take((None, task_id)), self._kept.take((queue, task_id))
        early = by_name or by_id
        return early.outcome if early is not None and early.at_s >= asked_s else None
