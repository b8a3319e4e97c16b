"""Counts starts that went wrong: how long to wait before the next, and when to give up instead of spinning."""

import time
from collections import deque

__all__ = ["Failures"]

_BACKOFF_S = (0.1, 0.2, 0.5, 1.0)
_TOO_MANY = 5
_WITHIN_S = 60.0


class Failures:
    """Remember the last failed starts of children and preloaders."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=_TOO_MANY)

    def count(self) -> bool:
        """Count one more; true when there were too many in too short a time."""
        now = time.monotonic()
        self._times.append(now)
        return len(self._times) == _TOO_MANY and now - self._times[0] < _WITHIN_S

    def clear(self) -> None:
        """Forget them: a child has worked."""
        self._times.clear()

    @property
    def backoff_s(self) -> float:
        """Return how long to wait before the next try."""
        return _BACKOFF_S[max(0, min(len(self._times), len(_BACKOFF_S)) - 1)]
