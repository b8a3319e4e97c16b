"""Tables for terminals and pipes: aligned columns; on a terminal also color, and lines cut to the window.

In a pipe nothing is cut or colored. Characters that the encoding lacks are escaped.
"""

import shutil
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self, TypeVar

from fastq.inspector.fields import Field
from fastq.terminal.screen import Screen
from fastq.text.fields import NUMBERS

T = TypeVar("T")

GAP: Final = "  "
LEAST_WIDTH: Final = 12
"""No text is cut to less than this width, however narrow the window."""
_SHORT: Final = {"PROCESSED": "RUNS"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column; ``right`` is for numbers.

    In a narrow window, titles are first replaced by the ``short`` ones, then texts of columns with ``cut`` are
    shortened, and then columns are left out, the highest ``rank`` first. Columns of rank 0 are never left out.
    """

    title: str
    right: bool = False
    cut: bool = False
    short: str = ""
    rank: int = 0


def column_of(rank: int, title: str, field: Field) -> Column:
    """Return the column of a field."""
    return Column(title, right=field.kind in NUMBERS, short=_SHORT.get(title, ""), rank=rank)


class Cell(str):
    """A text in one of click's colors, or dim."""

    __slots__ = ("dim", "fg")

    fg: str | None
    dim: bool

    def __new__(cls, text: str, fg: str | None = None, *, dim: bool = False) -> Self:
        """Create a cell."""
        cell = super().__new__(cls, text)
        cell.fg, cell.dim = fg, dim
        return cell


def heading(screen: Screen, text: str) -> None:
    """Write a heading."""
    screen.say(screen.paint(text, bold=True))


def facts(screen: Screen, pairs: Iterable[tuple[str, str]]) -> None:
    """Write names and values, one pair per line."""
    rows = list(pairs)
    width = max((width_of(name) for name, _ in rows), default=0)
    for name, value in rows:
        screen.say(f"{screen.paint(pad(name, width), dim=True)}{GAP}{_painted(screen, value, value)}".rstrip())


def table(screen: Screen, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Write a table with its titles; the titles alone if there are no rows."""
    laid = Layout.of(columns, [list(row) for row in rows])
    if screen.is_live:
        laid = laid.fitted(shutil.get_terminal_size().columns - 1)
    titles = [column.title for column in laid.columns]
    screen.say(screen.paint(_line(laid.columns, laid.widths, titles), bold=True))
    for row in laid.rows:
        screen.say(_line(laid.columns, laid.widths, row, screen))


class Layout(NamedTuple):
    """A table with the widths of its columns."""

    columns: Sequence[Column]
    rows: list[list[str]]
    widths: list[int]

    @classmethod
    def of(cls, columns: Sequence[Column], rows: list[list[str]]) -> "Layout":
        """Make each column as wide as its widest text."""
        widths = [
            max([width_of(column.title), *(width_of(row[at]) for row in rows)]) for at, column in enumerate(columns)
        ]
        return cls(columns, rows, widths)

    def over(self, window: int) -> int:
        """Return by how many characters a line is too wide for the window."""
        return sum(self.widths) + len(GAP) * (len(self.widths) - 1) - window

    def fitted(self, window: int) -> "Layout":
        """Shorten the table as much as needed for a line to fit."""
        if self.over(window) <= 0:
            return self
        laid = self.of([replace(column, title=column.short or column.title) for column in self.columns], self.rows)
        while (cut := laid.cut(window)).over(window) > 0 and any(column.rank for column in laid.columns):
            laid = laid.without(max(range(len(laid.columns)), key=lambda at: laid.columns[at].rank))
        return cut

    def without(self, at: int) -> "Layout":
        """Leave out a column."""

        def left(items: Sequence[T]) -> list[T]:
            return [*items[:at], *items[at + 1 :]]

        return Layout(left(self.columns), [left(row) for row in self.rows], left(self.widths))

    def cut(self, window: int) -> "Layout":
        """Shorten the widest column that may be cut, until the line fits or no column can be cut further."""
        widths = list(self.widths)
        while (over := self._replace(widths=widths).over(window)) > 0:
            may = [at for at, column in enumerate(self.columns) if column.cut and widths[at] > LEAST_WIDTH]
            if not may:
                break
            widest = max(may, key=widths.__getitem__)
            next_widest = max([LEAST_WIDTH, *(widths[at] for at in may if at != widest)])
            widths[widest] -= min(over, max(1, widths[widest] - next_widest))
        return self._replace(widths=widths)


def _line(columns: Sequence[Column], widths: Sequence[int], row: Sequence[str], screen: Screen | None = None) -> str:
    parts = []
    for column, width, text in zip(columns, widths, row, strict=True):
        shown = pad(shortened(text, width), width, right=column.right)
        parts.append(_painted(screen, text, shown) if screen else shown)
    return GAP.join(parts).rstrip()


def _painted(screen: Screen, text: str, shown: str) -> str:
    return screen.paint(shown, fg=text.fg, dim=text.dim or None) if isinstance(text, Cell) else shown


def shortened(text: str, width: int) -> str:
    """Cut a text to at most this width, with an ellipsis at the end."""
    if width_of(text) <= width:
        return text
    kept = ""
    for char in text:
        if width_of(kept + char) > width - 1:
            break
        kept += char
    return f"{kept}…"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Pad a text to this width."""
    blank = " " * (width - width_of(text))
    return blank + text if right else text + blank


def width_of(text: str) -> int:
    """Return the width of a text in a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
