"""The time that one call of a client may take, whatever Redis does."""

import time
from typing import Final, NamedTuple

__all__ = ["Limit", "step_s"]

STEPS: Final = 4
"""Into so many parts the time is divided: connecting, logging in and sending take one each at most."""


def step_s(timeout_s: float) -> float:
    """Return the longest that one step of a call may take; for a reply there is as much time as is left."""
    return timeout_s / STEPS


class Limit(NamedTuple):
    """The seconds that a call has, and their end on the monotonic clock."""

    timeout_s: float
    until_s: float

    @classmethod
    def from_now(cls, timeout_s: float) -> "Limit":
        """Return the limit of a call that begins."""
        return cls(timeout_s, time.monotonic() + timeout_s)

    @property
    def left_s(self) -> float:
        """Return the seconds that are left, 0 if none are."""
        return max(0.0, self.until_s - time.monotonic())

    def require(self, steps: int) -> None:
        """Raise ``TimeoutError`` if there is no time for so many steps."""
        if self.left_s < steps * step_s(self.timeout_s) or not self.left_s:
            raise TimeoutError(f"the timeout of {self.timeout_s:g} s leaves no time to try again")
