"""The progress of a command: a line of the terminal that is updated several times a second and removed at the end."""

import time
from typing import Final, Self

from fastq.inspector import Progress
from fastq.terminal.screen import Screen
from fastq.text.human import number

SHOWN_EVERY_S: Final = 0.1


class StatusLine:
    """Shows a text on the last line of a terminal; elsewhere it shows nothing."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._shown_s = 0.0

    def show(self, text: object) -> None:
        """Show a text, unless another text was shown a moment ago."""
        now_s = time.monotonic()
        if self._screen.is_live and now_s - self._shown_s >= SHOWN_EVERY_S:
            self._shown_s = now_s
            self._screen.show([f"{text} …"])

    def clear(self) -> None:
        """Remove the line."""
        if self._shown_s:
            self._screen.show([""])
            self._shown_s = 0.0


class Look:
    """The number of tasks read for a filter, shown on a terminal."""

    def __init__(self, screen: Screen) -> None:
        self._line = StatusLine(screen)

    def note(self, now: Progress) -> None:
        """Show how many tasks were read."""
        of = f" of {number(now.total)}" if now.total >= now.done else ""
        self._line.show(f"read {number(now.done)}{of} tasks")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.clear()
