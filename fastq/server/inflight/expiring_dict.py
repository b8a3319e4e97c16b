"""A dict whose entries are forgotten after a fixed time."""

from typing import TypeVar

from fastq.common.clock import Clock

K = TypeVar("K")
V = TypeVar("V")


class ExpiringDict(dict[K, tuple[float, V]]):
    """The last value put under each key, kept for ``keep_s`` seconds; a dict, so that an empty one costs nothing."""

    def __init__(self, keep_s: float, clock: Clock) -> None:
        super().__init__()
        self._keep_s = keep_s
        self._clock = clock

    def put(self, key: K, value: V) -> None:
        """Keep a value for ``keep_s`` from now on."""
        self.forget_what_is_over()
        self.pop(key, None)
        self[key] = (self._clock.monotonic_s() + self._keep_s, value)

    def forget_what_is_over(self) -> None:
        """Drop the entries whose time is up."""
        # Entries are in the order of their expiry, so only expired ones are visited, even with thousands of entries.
        now_s = self._clock.monotonic_s()
        while self and next(iter(self.values()))[0] <= now_s:
            del self[next(iter(self))]

    def take(self, key: K) -> V | None:
        """Return the value of a key, and forget it."""
        until_s, value = self.pop(key, (0.0, None))
        return value if until_s > self._clock.monotonic_s() else None
