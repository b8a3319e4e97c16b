"""The time limit of a client's call, whatever Redis does."""

import time
from typing import Final, NamedTuple

__all__ = ["Limit", "step_s"]

STEPS: Final = 4
"""The number of parts of the time: connecting, logging in and sending take at most one each."""


def step_s(timeout_s: float) -> float:
    """Return the longest time of one step of a call; a reply may take all the time that is left."""
    return timeout_s / STEPS


class Limit(NamedTuple):
    """The time of a call in seconds, and its end on the monotonic clock."""

    timeout_s: float
    until_s: float

    @classmethod
    def from_now(cls, timeout_s: float) -> "Limit":
        """Return the limit of a call that begins now."""
        return cls(timeout_s, time.monotonic() + timeout_s)

    @property
    def left_s(self) -> float:
        """Return the seconds that are left, 0 if none are."""
        return max(0.0, self.until_s - time.monotonic())

    def require(self, steps: int) -> None:
        """Raise ``TimeoutError`` if there is no time left for ``steps`` steps."""
        if self.left_s < steps * step_s(self.timeout_s) or not self.left_s:
            raise TimeoutError(f"the timeout of {self.timeout_s:g} s leaves no time to try again")
