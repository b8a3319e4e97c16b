"""Failed starts in a row: how long to wait before the next one, and when to give up instead of spinning.

Children that are started together and fail together count as one. A pool gives up only while none of its children has
ever worked. Later failures are due to the machine (mostly its memory) and may pass.
"""

import time

_BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_TOO_MANY = 5


class Failures:
    """The failed starts of children and preloaders since the last successful one."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._wait_until_s = 0.0
        self._has_worked = False

    def count(self) -> None:
        """Count one more failure and begin a back-off."""
        self._in_a_row += 1
        self._wait_until_s = time.monotonic() + _BACKOFF_S[min(self._in_a_row, len(_BACKOFF_S)) - 1]

    def try_now(self) -> None:
        """End the back-off: the next start is from another preloader."""
        self._wait_until_s = 0.0

    def __bool__(self) -> bool:
        """Return whether the last start failed."""
        return self._in_a_row > 0

    def clear(self) -> None:
        """Forget all failures: a child has worked."""
        self._in_a_row = 0
        self._has_worked = True

    @property
    def are_too_many(self) -> bool:
        """Return whether to give up."""
        return not self._has_worked and self._in_a_row >= _TOO_MANY

    @property
    def wait_s(self) -> float:
        """Return the seconds until the next try, 0 if it may be made now."""
        return max(0.0, self._wait_until_s - time.monotonic())
