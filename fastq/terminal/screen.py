"""Output with color and rewritten lines on a terminal, and as plain lines elsewhere."""

import os
import shutil
import sys
from typing import Any, TextIO

import click


def grouped(number: float) -> str:
    """Write a whole number with a space between groups of three digits."""
    return f"{number:,.0f}".replace(",", " ")


class Screen:
    """A writer to ``out``, stdout by default.

    ``is_live`` is true if lines can be rewritten. Color is used if ``is_live``, and $NO_COLOR is not set. ``can_draw``
    is true if the encoding has block characters.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.is_live = self._out.isatty() and os.environ.get("TERM") != "dumb"
        self._has_colour = self.is_live and not os.environ.get("NO_COLOR")
        self.can_draw = _can_encode(self._out, "█░✓")
        self._block = 0

    def paint(self, text: str, **style: Any) -> str:
        """Return the text in a style of click, if there is color."""
        return click.style(text, **style) if style and self._has_colour else text

    def say(self, text: str = "", **style: Any) -> None:
        """Write a line that stays."""
        self._block = 0
        click.echo(self.paint(text, **style), self._out, color=True)

    def show(self, lines: list[str]) -> None:
        """Write lines over those of the last call; below them if ``say`` was called since."""
        width = shutil.get_terminal_size().columns
        up = f"\x1b[{self._block}F" if self._block else ""
        text = "".join(f"\x1b[2K{_cut(line, width - 1)}\n" for line in lines)
        self._block = len(lines)
        click.echo(up + text, self._out, nl=False, color=True)


def _cut(line: str, width: int) -> str:
    """Shorten a line that would wrap, and drop its color: a wrapped line cannot be rewritten."""
    return line if len(click.unstyle(line)) <= width else click.unstyle(line)[:width]


def _can_encode(out: TextIO, text: str) -> bool:
    try:
        text.encode(out.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
