"""How many lines of a kind are logged; the rest is counted."""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

__all__ = ["LINES", "PER_S", "LogLimit"]

LINES: Final = 10
PER_S: Final = 10.0
MAX_KINDS: Final = 200
LOOK_EVERY_S: Final = 1.0
"""How often room is looked for where there are that many kinds: a look passes all of them."""

K = TypeVar("K", bound=Hashable)


class LogLimit(Generic[K]):
    """The lines that were logged of each kind: the first 10 in 10 s pass, the others are counted.

    What makes a kind comes from producers; beyond 200 at a time all others are one, None.
    """

    def __init__(self) -> None:
        self._windows: dict[K | None, _Window] = {}
        self._look_s = 0.0

    def allows(self, kind: K | None, now_s: float) -> bool:
        """Return whether a line of a kind may be logged now; if not, it is counted."""
        window = self._windows.get(kind)
        if window is None and not self._has_room(now_s):
            window = self._windows.get(kind := None)
        if window is None or (now_s >= window.ends_s and not window.held_back):
            window = self._windows[kind] = _Window(now_s + PER_S)
        window.lines += 1
        if window.lines <= LINES:
            return True
        window.held_back += 1
        return False

    def _has_room(self, now_s: float) -> bool:
        """Return whether there is room for another kind; those that are over, with nothing to be counted, make room."""
        if len(self._windows) >= MAX_KINDS and now_s >= self._look_s:
            self._look_s = now_s + LOOK_EVERY_S
            self._windows = {
                kind: window for kind, window in self._windows.items() if now_s < window.ends_s or window.held_back
            }
        return len(self._windows) < MAX_KINDS

    @property
    def holds_back(self) -> bool:
        """Return whether any line was held back that has not been counted aloud."""
        return any(window.held_back for window in self._windows.values())

    def ended(self, now_s: float) -> list[tuple[K | None, int]]:
        """Forget the windows that have ended; return of which kinds lines were held back in them, and how many."""
        over = [kind for kind, window in self._windows.items() if now_s >= window.ends_s]
        windows = [(kind, self._windows.pop(kind).held_back) for kind in over]
        return [(kind, held_back) for kind, held_back in windows if held_back]


class _Window:
    """Ten seconds of one kind."""

    __slots__ = ("ends_s", "held_back", "lines")

    def __init__(self, ends_s: float) -> None:
        self.ends_s = ends_s
        self.lines = 0
        self.held_back = 0
