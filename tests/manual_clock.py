"""A clock for tests that moves only when told to."""


class ManualClock:
    """A ``fastq.common.clock.Clock`` that moves only when told to."""

    def __init__(self, unix_s: float = 1_700_000_000.0) -> None:
        self._unix_ns = int(unix_s * 1_000_000_000)
        self._monotonic_ns = 0

    def unix_ns(self) -> int:
        """Return the wall time that was set, in nanoseconds."""
        return self._unix_ns

    def monotonic_s(self) -> float:
        """Return the seconds advanced so far."""
        return self._monotonic_ns / 1_000_000_000

    def advance(self, seconds: float) -> None:
        """Move both clocks forward by ``seconds``."""
        step_ns = round(seconds * 1_000_000_000)
        self._unix_ns += step_ns
        self._monotonic_ns += step_ns

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, as an operator or NTP does."""
        self._unix_ns += round(seconds * 1_000_000_000)
