"""How far a command is: a line on a terminal that is written over, some times a second, and taken away at the end."""

import time
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from fastq.cli.human import number
from fastq.demo.screen import Screen

__all__ = ["Look", "StatusLine"]

T = TypeVar("T")

SHOWN_EVERY_S: Final = 0.1


class StatusLine:
    """Show a text on a terminal's last line; elsewhere nothing."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._shown_s = 0.0

    def show(self, text: object) -> None:
        """Show it, unless another was shown just now."""
        now_s = time.monotonic()
        if self._screen.is_live and now_s - self._shown_s >= SHOWN_EVERY_S:
            self._shown_s = now_s
            self._screen.show([f"{text} …"])

    def clear(self) -> None:
        """Take the line away."""
        if self._shown_s:
            self._screen.show([""])
            self._shown_s = 0.0


class Look:
    """Count the tasks that are looked at for a filter, and show it."""

    def __init__(self, screen: Screen, total: int) -> None:
        self._line = StatusLine(screen)
        self._total = total
        self._looked = 0

    def __str__(self) -> str:
        of = f" of {number(self._total)}" if self._total >= self._looked else ""
        return f"looked at {number(self._looked)}{of} tasks"

    def note(self, count: int) -> None:
        """Count some more."""
        self._looked += count
        self._line.show(self)

    def clear(self) -> None:
        """Take the line away."""
        self._line.clear()

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """Count what passes, and take the line away at the end."""
        try:
            for item in items:
                self.note(1)
                yield item
        finally:
            self.clear()
