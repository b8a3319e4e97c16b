"""For how long Redis has answered without a break, queue by queue, as its recoverer has seen it.

After an outage every lease has ended, also those of servers that live: they extend them with their next beat. Who takes
tasks before that beat takes them from the living. The same holds for a process that stood still itself, and for one
that has just started: it cannot know what was before.
"""

from dataclasses import dataclass

from fastq.clock import Clock, Moment
from fastq.server.timing import Timing

__all__ = ["Answers"]


@dataclass(slots=True)
class _Streak:
    began_s: float
    asked: Moment
    is_steady: bool


class Answers:
    """The answers that Redis gave about each queue.

    A span of them ends with an answer that failed, and with a gap in which an outage may have gone unseen.
    """

    def __init__(self, clock: Clock, timing: Timing) -> None:
        self._clock = clock
        self._settle_s = timing.settle_s
        # A living server's lease was extended at most a beat before a gap: it has not ended a grace ago after this one.
        self._longest_gap_s = timing.lease_s + timing.recover_grace_s - timing.settle_s
        self._longest_first_gap_s = 2 * timing.heartbeat_interval_s
        self._streaks: dict[str, _Streak] = {}

    def are_steady(self, queue: str) -> bool:
        """Return whether Redis had answered for long enough when it answered last."""
        streak = self._streaks.get(queue)
        return streak is not None and streak.is_steady

    def note(self, queue: str, asked: Moment) -> bool:
        """Note an answer to what was asked at a moment; return whether Redis has answered for long enough."""
        now = Moment.now(self._clock)
        streak = self._streaks.get(queue)
        if streak is None or streak.asked.until(now) > self._longest(streak):
            streak = self._streaks[queue] = _Streak(now.monotonic_s, asked, is_steady=False)
        streak.asked = asked
        streak.is_steady = now.monotonic_s - streak.began_s >= self._settle_s
        return streak.is_steady

    def note_failure(self, queue: str) -> None:
        """Note that Redis did not answer, or refused."""
        self._streaks.pop(queue, None)

    def _longest(self, streak: _Streak) -> float:
        return self._longest_gap_s if streak.is_steady else self._longest_first_gap_s
