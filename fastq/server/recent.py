"""What was heard a moment ago: entries that are forgotten after a fixed time."""

from typing import Generic, TypeVar

from fastq.clock import Clock

__all__ = ["Recent"]

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Keep the last value put under each key, for ``keep_s`` seconds."""

    def __init__(self, keep_s: float, clock: Clock) -> None:
        self._keep_s = keep_s
        self._clock = clock
        self._entries: dict[K, tuple[float, V]] = {}

    def put(self, key: K, value: V) -> None:
        """Keep a value from now on."""
        # They stand in the order of their ends, so that only those that are over are looked at: thousands may come.
        now_s = self._clock.monotonic_s()
        while self._entries and next(iter(self._entries.values()))[0] <= now_s:
            del self._entries[next(iter(self._entries))]
        self._entries.pop(key, None)
        self._entries[key] = (now_s + self._keep_s, value)

    def take(self, key: K) -> V | None:
        """Return what is kept under a key, and forget it."""
        if not self._entries:
            return None
        until_s, value = self._entries.pop(key, (0.0, None))
        return value if until_s > self._clock.monotonic_s() else None

    def __len__(self) -> int:
        return len(self._entries)
