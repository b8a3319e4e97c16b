"""Tables for terminals and pipes: aligned columns; on a terminal also colour, and no line wider than the window.

In a pipe nothing is cut and nothing coloured. Where the encoding lacks a character, an escape stands in its place.
"""

import shutil
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from fastq.demo.screen import Screen

__all__ = ["Cell", "Column", "facts", "heading", "table"]

GAP: Final = "  "
LEAST_WIDTH: Final = 12
"""To how many columns a text is cut at most, however narrow the window."""


@dataclass(frozen=True, slots=True)
class Column:
    """Describe a column; ``right`` is for numbers, ``cut`` for texts that may be shortened to fit the window."""

    title: str
    right: bool = False
    cut: bool = False


class Cell(str):
    """Be a text with a colour of click's, or dim."""

    __slots__ = ("dim", "fg")

    fg: str | None
    dim: bool

    def __new__(cls, text: str, fg: str | None = None, *, dim: bool = False) -> Self:
        """Make one."""
        cell = super().__new__(cls, text)
        cell.fg, cell.dim = fg, dim
        return cell


def heading(screen: Screen, text: str) -> None:
    """Write a headline above what comes."""
    screen.say(screen.paint(text, bold=True))


def facts(screen: Screen, pairs: Iterable[tuple[str, str]]) -> None:
    """Write names and values, a pair a line."""
    rows = list(pairs)
    width = max((_width(name) for name, _ in rows), default=0)
    for name, value in rows:
        screen.say(f"{screen.paint(_pad(name, width), dim=True)}{GAP}{_painted(screen, value, value)}".rstrip())


def table(screen: Screen, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Write a table with its titles; the titles alone if there are no rows."""
    body = [list(row) for row in rows]
    widths = [max([_width(column.title), *(_width(row[at]) for row in body)]) for at, column in enumerate(columns)]
    if screen.is_live:
        widths = _fitted(columns, widths, shutil.get_terminal_size().columns)
    screen.say(screen.paint(_line(columns, widths, [column.title for column in columns]), bold=True))
    for row in body:
        screen.say(_line(columns, widths, row, screen))


def _fitted(columns: Sequence[Column], widths: list[int], window: int) -> list[int]:
    """Take from the widest column that may be cut, until the line fits."""
    fitted = list(widths)
    over = sum(fitted) + len(GAP) * (len(fitted) - 1) - (window - 1)
    while over > 0:
        at = max((at for at, column in enumerate(columns) if column.cut), key=fitted.__getitem__, default=None)
        if at is None or fitted[at] <= LEAST_WIDTH:
            break
        others = [fitted[other] for other, column in enumerate(columns) if column.cut and other != at]
        step = min(over, max(1, fitted[at] - max([LEAST_WIDTH, *others])), fitted[at] - LEAST_WIDTH)
        fitted[at] -= step
        over -= step
    return fitted


def _line(columns: Sequence[Column], widths: Sequence[int], row: Sequence[str], screen: Screen | None = None) -> str:
    parts = []
    for column, width, text in zip(columns, widths, row, strict=True):
        shown = _pad(_shortened(text, width), width, right=column.right)
        parts.append(_painted(screen, text, shown) if screen else shown)
    return GAP.join(parts).rstrip()


def _painted(screen: Screen, text: str, shown: str) -> str:
    return screen.paint(shown, fg=text.fg, dim=text.dim or None) if isinstance(text, Cell) else shown


def _shortened(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    kept = ""
    for char in text:
        if _width(kept + char) > width - 1:
            break
        kept += char
    return f"{kept}…"


def _pad(text: str, width: int, *, right: bool = False) -> str:
    blank = " " * (width - _width(text))
    return blank + text if right else text + blank


def _width(text: str) -> int:
    """Count the columns that a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
