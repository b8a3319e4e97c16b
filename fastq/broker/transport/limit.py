"""The time limit of a client's call, whatever Redis does, and of the steps that follow a fault."""

import time
from typing import Final, NamedTuple

from fastq.broker.operation import Soon

STEPS: Final = 4
"""A call's time has this many parts: connecting, logging in and sending may each take one."""
REPLY_S: Final = 3.0
"""How long Redis may take for a reply, unless a setting says otherwise."""
LEAST_S: Final = 1.0
"""The shortest time for the steps after silence: connecting, logging in, looking and sending."""


def step_s(timeout_s: float) -> float:
    """Return the longest time of one step of a call. A reply may take all of the time that is left."""
    return timeout_s / STEPS


class Limit(NamedTuple):
    """The time of a call in seconds, and its end on the monotonic clock."""

    timeout_s: float
    until_s: float
    is_afresh: bool = False
    """Whether each round trip is made on a new connection."""

    @classmethod
    def from_now(cls, timeout_s: float, after_s: float = 0.0) -> "Limit":
        """Return the limit of a call whose time begins now, or after a wait of so many seconds."""
        return cls(timeout_s, time.monotonic() + after_s + timeout_s)

    @classmethod
    def of_rest(cls, soon: Soon, reply_s: float, before: "Limit | None") -> "Limit":
        """Return the limit of the rest of a call that has met a fault, where a reply may take ``reply_s``."""
        seconds = max(LEAST_S, reply_s / 2) if soon.after_silence else reply_s
        limit = cls.from_now(seconds)
        if before is not None and before.until_s < limit.until_s:
            limit = before
        return limit._replace(is_afresh=soon.after_silence)

    @property
    def left_s(self) -> float:
        """Return the seconds that are left, 0 if none are."""
        return max(0.0, self.until_s - time.monotonic())

    def require(self, steps: int) -> None:
        """Raise ``TimeoutError`` if there is no time left for ``steps`` steps."""
        if self.left_s < steps * step_s(self.timeout_s) or not self.left_s:
            raise TimeoutError(f"the timeout of {self.timeout_s:g} s leaves no time to try again")
