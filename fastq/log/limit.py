"""The rate limit of log lines per kind; lines over the limit are counted."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

LINES: Final = 10
PER_S: Final = 10.0
MAX_KINDS: Final = 200

K = TypeVar("K", bound=Hashable)


def until_next_s(now_s: float) -> float:
    """Return the seconds until the next period of ten seconds begins."""
    return PER_S - now_s % PER_S


class LogLimit(Generic[K]):
    """How many lines of each kind were logged: the first 10 in 10 s pass, further lines are counted.

    The periods follow the clock, 0 to 10 s, 10 to 20 s and so on, so they are the same in all processes of a server.
    Kinds depend on producers' data, so at most 200 are distinguished in a period; all further kinds count as one kind,
    None.
    """

    def __init__(self) -> None:
        self._passed: dict[K | None, int] = {}
        self._held_back: dict[K | None, int] = {}
        self._ended: list[tuple[K | None, int]] = []
        self._ends_s = 0.0

    def allows(self, kind: K | None, now_s: float, *, most: int = LINES) -> bool:
        """Return whether a line of a kind may be logged now; if not, count it."""
        if now_s >= self._ends_s:
            self._turn(now_s)
        passed = self._passed.get(kind)
        if passed is None:
            if len(self._passed) >= MAX_KINDS:
                kind = None
            passed = self._passed.setdefault(kind, 0)
        if passed < most:
            self._passed[kind] = passed + 1
            return True
        self._held_back[kind] = self._held_back.get(kind, 0) + 1
        return False

    def _turn(self, now_s: float) -> None:
        """Begin the next period."""
        self._ends_s = now_s + until_next_s(now_s)
        self._ended += self._held_back.items()
        self._passed, self._held_back = {}, {}

    @property
    def holds_back(self) -> bool:
        """Return whether a line was held back that no returned count includes yet."""
        return bool(self._held_back or self._ended)

    def ended(self, now_s: float) -> list[tuple[K | None, int]]:
        """Return the numbers of lines held back in past periods, by kind; each number is returned once."""
        if now_s >= self._ends_s:
            self._turn(now_s)
        ended, self._ended = self._ended, []
        return ended
