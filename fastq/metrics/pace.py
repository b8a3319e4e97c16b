"""How long the runs of a queue's tasks take, from data that every client of Redis can read."""

from typing import Final

HALF_S: Final = 60.0
"""The time after which earlier runs count half."""


class Pace:
    """The mean run time of a queue's tasks, by Little's law: how many tasks run, divided by how many end per second.

    So it needs no report of run times, which Go's servers do not make.
    """

    def __init__(self) -> None:
        self._ran_s = 0.0
        self._ended = 0.0
        self._processed = 0
        self._seen_s: float | None = None

    def note(self, running: int, processed: int, now_s: float) -> None:
        """Note how many tasks run, and how many runs have ended so far."""
        if self._seen_s is not None:
            passed_s = now_s - self._seen_s
            # The weight of at least one end is kept; otherwise the time of a long run would be forgotten before the run
            # ends.
            kept = 1.0 if self._ended <= 1 else max(0.5 ** (passed_s / HALF_S), 1 / self._ended)
            self._ran_s = self._ran_s * kept + running * passed_s
            self._ended = self._ended * kept + max(0, processed - self._processed)
        self._processed, self._seen_s = processed, now_s

    @property
    def mean_s(self) -> float | None:
        """Return the mean in seconds; None if no run has been seen. The mean is too low until the first run ends."""
        if not self._ran_s and not self._ended:
            return None
        return self._ran_s / max(1.0, self._ended)
