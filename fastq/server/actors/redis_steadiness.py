"""The time for which Redis has answered without a gap, per queue, as seen by the recoverer.

After an outage every lease has expired, also those of live servers, which extend them with their next heartbeat. A
recoverer that takes tasks before that heartbeat takes them from live servers. A recoverer whose process was suspended
would do the same, and so would one that has just started, because it does not know the past.
"""

from dataclasses import dataclass

from fastq.common.clock import Clock, Moment
from fastq.server.base.timing import Timing


@dataclass(slots=True)
class _Streak:
    began_s: float
    asked: Moment
    is_steady: bool


class Answers:
    """The answers that Redis gave about each queue.

    A streak of answers ends with a failed request, or with a gap in which an outage may have gone unseen.
    """

    def __init__(self, clock: Clock, timing: Timing) -> None:
        self._clock = clock
        self._settle_s = timing.settle_s
        # A live server extended its leases at most a heartbeat before the gap, so they cannot have expired a grace
        # period ago.
        self._longest_gap_s = timing.lease_s + timing.recover_grace_s - timing.settle_s
        self._longest_first_gap_s = 2 * timing.heartbeat_interval_s
        self._streaks: dict[str, _Streak] = {}

    def are_steady(self, queue: str) -> bool:
        """Return whether Redis had answered for long enough when it answered last."""
        streak = self._streaks.get(queue)
        return streak is not None and streak.is_steady

    def note(self, queue: str, asked: Moment) -> bool:
        """Note an answer to a request sent at ``asked``; return whether Redis has answered for long enough."""
        now = Moment.now(self._clock)
        streak = self._streaks.get(queue)
        if streak is None or streak.asked.until(now) > self._longest(streak):
            streak = self._streaks[queue] = _Streak(now.monotonic_s, asked, is_steady=False)
        streak.asked = asked
        streak.is_steady = now.monotonic_s - streak.began_s >= self._settle_s
        return streak.is_steady

    def note_failure(self, queue: str) -> None:
        """Note that Redis did not answer, or refused the request."""
        self._streaks.pop(queue, None)

    def _longest(self, streak: _Streak) -> float:
        return self._longest_gap_s if streak.is_steady else self._longest_first_gap_s
