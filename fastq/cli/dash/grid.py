"""A list with columns and a cursor, which shows as many columns and rows as fit, and handles the common keys."""

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Click, MouseScrollDown, MouseScrollUp
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from fastq.cli.dash.cells import text_of
from fastq.cli.tables import Column, Layout, pad, shortened

TITLES: Final = 1
MARK: Final = "▸ "
GAP: Final = "  "


class Row(NamedTuple):
    """A line of a grid: the key of its item, and a text for each column."""

    key: str
    cells: Sequence[str]


class Grid(Widget, can_focus=True):
    """A table of rows; the cursor stays on its row when the rows change."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up"),
        Binding("down,j", "move(1)", "down"),
        Binding("pageup", "leap(-1)", "a screen up"),
        Binding("pagedown,space", "leap(1)", "a screen down"),
        Binding("home,g", "first", "first"),
        Binding("end,G", "last", "last"),
        Binding("enter", "choose", "open"),
    ]

    class Chosen(Message):
        """Posted when a row is opened."""

        def __init__(self, grid: "Grid", key: str) -> None:
            self.grid = grid
            self.key = key
            super().__init__()

    class Moved(Message):
        """Posted when the cursor has moved to another row."""

        def __init__(self, grid: "Grid") -> None:
            self.grid = grid
            super().__init__()

    cursor = reactive(0)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._columns: Sequence[Column] = ()
        self._rows: Sequence[Row] = ()
        self._nothing = ""
        self._top = 0

    @property
    def key(self) -> str | None:
        """Return the key under the cursor."""
        return self._rows[self.cursor].key if self._rows else None

    @property
    def keys(self) -> list[str]:
        """Return the keys of the rows."""
        return [row.key for row in self._rows]

    @property
    def rows_shown(self) -> int:
        """Return how many rows fit."""
        return max(1, self.size.height - TITLES)

    def show(self, columns: Sequence[Column], rows: Sequence[Row], nothing: str = "") -> None:
        """Replace the rows, or show a text if there are none."""
        before = self.key
        self._columns, self._rows, self._nothing = columns, rows, nothing
        at = next((at for at, row in enumerate(rows) if row.key == before), self.cursor)
        self._place(at)
        self.refresh()
        if self.key != before:
            self.post_message(self.Moved(self))

    def _place(self, at: int) -> None:
        self.cursor = max(0, min(at, len(self._rows) - 1))

    def render(self) -> Text:
        """Draw the titles, and the rows around the cursor."""
        layout = Layout.of(self._columns, [list(row.cells) for row in self._rows])
        layout = layout.fitted(max(1, self.size.width - len(MARK)))
        lines = [self._line(layout, [column.title for column in layout.columns], "bold")]
        if not self._rows:
            lines = [Text(self._nothing, style="dim")]
        self._top = max(min(self._top, self.cursor), self.cursor - self.rows_shown + 1, 0)
        for at in range(self._top, min(self._top + self.rows_shown, len(self._rows))):
            lines.append(self._line(layout, layout.rows[at], "", is_current=at == self.cursor))
        text = Text("\n").join(lines)
        text.no_wrap, text.overflow = True, "crop"
        return text

    def _line(self, layout: Layout, cells: Sequence[str], style: str, *, is_current: bool = False) -> Text:
        line = Text(MARK if is_current else " " * len(MARK), style="bold" if is_current else "")
        parts = [
            text_of(cell, pad(shortened(cell, width), width, right=column.right), style)
            for column, width, cell in zip(layout.columns, layout.widths, cells, strict=True)
        ]
        line.append_text(Text(GAP).join(parts))
        if is_current:
            line.pad_right(max(0, self.size.width - line.cell_len))
            line.stylize("bold on #303a5c" if self.has_focus else "bold on #2a2a2a")
        return line

    def watch_cursor(self) -> None:
        """Post a message for each move."""
        self.post_message(self.Moved(self))

    def action_move(self, by: int) -> None:
        """Move by rows."""
        self._place(self.cursor + by)

    def action_leap(self, by: int) -> None:
        """Move by screens."""
        self._place(self.cursor + by * self.rows_shown)

    def action_first(self) -> None:
        """Move to the first row."""
        self._place(0)

    def action_last(self) -> None:
        """Move to the last row."""
        self._place(len(self._rows) - 1)

    def action_choose(self) -> None:
        """Open the item under the cursor."""
        if self.key is not None:
            self.post_message(self.Chosen(self, self.key))

    def on_click(self, event: Click) -> None:
        """Move to the clicked row; a second click opens it."""
        at = self._top + event.y - TITLES
        if event.y >= TITLES and at < len(self._rows):
            self._place(at)
            if event.chain == 2:
                self.action_choose()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Move down with the wheel."""
        event.stop()
        self.action_move(1)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Move up with the wheel."""
        event.stop()
        self.action_move(-1)
