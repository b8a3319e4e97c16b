"""The common parts of all views: a header, a body that is refreshed from Redis, a message line, and the keys."""

import time
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static
from textual.worker import Worker

from fastq.cli.dash.desk import Desk
from fastq.cli.tables import shortened
from fastq.errors import FastqError
from fastq.text.human import clean

PLACES: Final = (("F1", "Queues"), ("F2", "Servers"), ("F3", "Schedulers"), ("F4", "Redis"))


class Hint(NamedTuple):
    """A key and what it does; ``acts`` means that the key changes something in Redis."""

    key: str
    does: str
    acts: bool = False


class Line(Static):
    """One or more lines of literal text, without markup."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._said: Text | None = None

    def say(self, text: str | Text, style: str = "") -> None:
        """Show a text."""
        shown = Text(text, style=style) if isinstance(text, str) else text
        before, self._said = self._said, shown
        if before is None or (shown, shown.style) != (before, before.style):  # otherwise the terminal needs no update
            self.update(shown)


def keys_text(hints: Iterable[Hint], width: int = 0) -> Text:
    """Format keys and their actions, on as many lines as the width requires; with the width 0 on one line."""
    text, used = Text(), 0
    for hint in hints:
        taken = len(hint.key) + len(hint.does) + 3
        if width and used and used + taken > width:
            text.append("\n")
            used = 0
        text.append(" ").append(hint.key, style="bold cyan").append(f" {hint.does} ")
        used += taken
    return text


class View(Screen[None]):
    """A screen of the dashboard; ``look`` reads from Redis, ``draw`` shows the data."""

    PLACE: ClassVar[str] = ""
    HINTS: ClassVar[Sequence[Hint]] = ()
    ALWAYS: ClassVar[Sequence[Hint]] = (Hint("?", "help"), Hint("q", "quit"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "go back"),
        Binding("f5,ctrl+l", "look_again", "look now"),
    ]

    class Acted(Message):
        """Posted after a change, so that all data is read again."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk = desk
        self.looked_s = 0.0
        self._head, self._places = Line(id="head"), Line(id="places")
        self._foot = Line(id="foot")
        self._look: Worker[None] | None = None

    def compose(self) -> ComposeResult:
        """Lay out the common lines around the body."""
        yield self._head
        yield self._places
        yield from self.body()
        yield self._foot

    def body(self) -> Iterable[Widget]:
        """Create the widgets between head and foot."""
        return ()

    async def look(self) -> None:
        """Read the data of the view from Redis."""

    def draw(self) -> None:
        """Show the last data."""

    def on_mount(self) -> None:
        """Start to refresh, without the messages of the previous view."""
        self.desk.said = ""
        self.draw_frame()
        self.draw()
        self.call_after_refresh(self.look_now)  # the size is known only after the first refresh

    def on_resize(self) -> None:
        """Show as much as fits."""
        self.call_after_refresh(self.refit)

    def refit(self) -> None:
        """Show the data in the new size."""
        self.draw()
        self.draw_frame()

    def on_screen_resume(self) -> None:
        """Refresh when a view on top of this one was closed."""
        if self._look is not None:
            self.draw_frame()
            self.draw()
            self.look_now()

    @property
    def beats(self) -> bool:
        """Return whether to refresh automatically."""
        return True

    @property
    def is_looking(self) -> bool:
        """Return whether a read is pending."""
        return self._look is not None and not self._look.is_finished

    def look_now(self) -> None:
        """Refresh now, and cancel a pending read."""
        self.looked_s = time.monotonic()
        self._look = self.run_worker(self._look_once, group="look", exclusive=True)

    async def _look_once(self) -> None:
        with self.desk.health.asking():
            try:
                await self.look()
            except FastqError as error:
                if not self.bears(error):
                    raise
        self.draw()
        self.draw_frame()

    def bears(self, error: FastqError) -> bool:
        """Accept an error that is part of the data to show; False if it is not."""
        del error
        return False

    def draw_frame(self) -> None:
        """Show the position, the health of Redis, and the keys."""
        self._head.say(self._head_text())
        self._places.say(self._places_text())
        self._foot.say(self._foot_text())

    def _foot_text(self) -> Text:
        """Put the messages above the keys: the health of Redis and the last result.

        A single message may take two lines.
        """
        health, said, width = str(self.desk.health), self.desk.said, max(1, self.size.width)
        most = width - 1 if health and said else 2 * width - 1
        text = Text().append(shortened(f" {said}", most) if said else "", style="yellow")
        text.append("\n" if health and said else "")
        text.append(shortened(f" {health}", most) if health else "", style="bold red").append("\n")
        read_only = self.desk.options.read_only
        hints = [hint for hint in (*self.hints(), *self.ALWAYS) if not (hint.acts and read_only)]
        return text.append_text(keys_text(hints, width))

    def hints(self) -> Sequence[Hint]:
        """Return the keys of this view."""
        return self.HINTS

    def _head_text(self) -> Text:
        text = Text().append(" fastq ", style="bold reverse")
        text.append(f" {clean(self.desk.inspector.where)}")
        if self.desk.options.read_only:
            text.append("  read-only", style="yellow")
        looked_at = self.desk.looked_at
        at = f"{looked_at.astimezone():%H:%M:%S}" if looked_at else "--:--:--"
        every = f"every {self.desk.options.refresh_s:g}s  {at} "
        text.append(every.rjust(max(len(every) + 1, self.size.width - text.cell_len)), style="dim")
        return text

    def _places_text(self) -> Text:
        text = Text()
        for key, name in PLACES:
            is_here = name == self.PLACE
            text.append(f" {key} ", style="dim").append(name, style="bold underline" if is_here else "").append(" ")
        return text

    def say(self, text: str) -> None:
        """Show the result of an action until the next message."""
        self.desk.said = text
        self.draw_frame()

    def may_act(self) -> bool:
        """Return whether changes are allowed; show a message if they are not."""
        if self.desk.options.read_only:
            self.say("This dashboard is read-only.")
        return not self.desk.options.read_only

    def action_look_again(self) -> None:
        """Refresh now."""
        self.look_now()
        self.post_message(self.Acted())

    def action_back(self) -> None:
        """Go back to the previous view."""
        if len(self.app.screen_stack) > 1:
            self.desk.said = ""
            self.app.pop_screen()
