"""The keys of the dashboard, on a screen over the current view."""

from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from fastq.cli.dash.view import Line

KEYS: Final = (
    ("Enter", "open the item under the cursor"),
    ("Esc", "go back"),
    ("Up Down  k j", "move; also PgUp PgDn Home End g G"),
    ("Left Right  h l", "the tasks of the previous, the next state"),
    ("p n", "the previous, the next page; continue a search"),
    ("/", "search the tasks: an id, or part of type, payload, error"),
    ("F1 F2 F3 F4", "queues, servers, schedulers, Redis"),
    ("F5  Ctrl-L", "look now"),
    ("q  Ctrl-C", "quit"),
)
ACTS: Final = (
    ("r a d", "run (retry) now, archive, delete the task"),
    ("c", "cancel the active task"),
    ("R A D", "run, archive, delete all tasks of the state, or all found"),
    ("P", "pause the queue, or resume it"),
)


class Help(ModalScreen[None]):
    """The list of keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,enter", "dismiss", "go back"),
        Binding("q", "app.exit_dash", "quit"),
    ]

    def __init__(self, *, read_only: bool) -> None:
        super().__init__()
        self._keys = KEYS if read_only else (*KEYS, *ACTS)

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        with VerticalScroll(id="box"):
            yield Line(id="help")

    def on_mount(self) -> None:
        """Write the text."""
        text = Text("Keys\n", style="")
        for key, does in self._keys:
            text.append(f"\n{key:<16}", style="bold cyan").append(does)
        text.append("\n\nActions that change something ask first: y confirms.", style="dim")
        self.query_one("#help", Line).say(text)
