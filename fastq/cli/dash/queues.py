"""The first view: all queues with their contents and rates, and details of the queue under the cursor."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget

from fastq.cli.dash.cells import spark, state_bar, state_texts
from fastq.cli.dash.confirm import Confirm
from fastq.cli.dash.desk import Desk
from fastq.cli.dash.grid import Grid, Row
from fastq.cli.dash.tasks import TasksView
from fastq.cli.dash.view import Hint, Line, View
from fastq.cli.stats import STATE_COLOURS
from fastq.cli.tables import Cell, Column, column_of
from fastq.inspector import QueueInfo
from fastq.inspector.fields import QUEUE, faced
from fastq.inspector.jobs import pausing
from fastq.text.fields import text_of
from fastq.text.human import clean, number, plural, share

WIDE: Final = 110
"""The width from which bars and sparklines are longer."""
SHORT_NAME: Final = 12
"""A narrow list cuts longer names."""

MORE: Final = sorted(faced(QUEUE, "dash"))
COLUMNS: Final = (
    Column("QUEUE", cut=True),
    Column("STATES"),
    Column("SIZE", right=True),
    Column("/S", right=True),
    Column("LATELY", rank=1),
    *(column_of(*each) for each in MORE),
)


def per_second(rate: float | None) -> str:
    """Format a number of tasks per second; an unknown rate is a dash."""
    if rate is None:
        return "-"
    return number(round(rate)) if rate >= 100 else f"{rate:.1f}"


class QueuesView(View):
    """The list of queues."""

    PLACE = "Queues"
    HINTS: ClassVar[Sequence[Hint]] = (
        Hint("Enter", "tasks"),
        Hint("j/k", "move"),
        Hint("P", "pause/resume", acts=True),
        Hint("F5", "look now"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("P", "pause", "pause or resume the queue")]

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._grid = Grid(id="queues")
        self._sum = Line(id="sum")
        self._more = Line(id="more")

    def body(self) -> Iterable[Widget]:
        """Lay out the totals, the list, and the lines about one queue."""
        return (self._sum, self._grid, self._more)

    def draw(self) -> None:
        """Show the queues as last read."""
        queues = self.desk.queues
        if queues is None:
            self._grid.show(COLUMNS, (), "waiting for Redis …")
            return
        width = 24 if self.size.width >= WIDE else 12
        self._grid.show(COLUMNS, [self._row(info, width) for info in queues], "There are no queues yet.")
        self._draw_sum(queues)
        self._draw_more()

    def _row(self, info: QueueInfo, width: int) -> Row:
        name = clean(info.queue)
        track = self.desk.tracks.of(info.queue)
        cells = [
            Cell(f"{name} (paused)", fg="yellow") if info.paused else name,
            state_bar(info, width),
            number(info.size),
            per_second(track.rate),
            Cell(spark(self.desk.lately(info.queue), width - 2), fg="green"),
            *(text_of(field, info) for _, _, field in MORE),
        ]
        return Row(info.queue, cells)

    def _draw_sum(self, queues: Sequence[QueueInfo]) -> None:
        whole = self.desk.tracks.whole
        runs, failed, lost = (sum(getattr(info, name) for info in queues) for name in ("processed", "failed", "lost"))
        text = Text(f" {plural(len(queues), 'queue')}  {plural(sum(info.size for info in queues), 'task')}  ")
        text.append(f"{per_second(whole.rate)}/s ", style="bold").append(spark(whole.processed, 16), style="green")
        text.append(f"  {per_second(whole.failure_rate)} failed/s", style="red" if whole.failure_rate else "")
        if self.size.width >= WIDE:
            text.append(f"  today {plural(runs, 'run')}, {share(failed, runs)} failed")
            text.append(f", {number(lost)} lost" if lost else "", style="yellow")
        self._sum.say(text)

    def _draw_more(self) -> None:
        info = self.desk.queue(self._grid.key) if self._grid.key is not None else None
        self._more.say("" if info is None else _more(info, self.size.width))

    def on_grid_moved(self) -> None:
        """Show details of another queue."""
        self._draw_more()

    def on_grid_chosen(self, event: Grid.Chosen) -> None:
        """Show the queue's tasks."""
        self.app.push_screen(TasksView(self.desk, event.key))

    def action_pause(self) -> None:
        """Pause or resume the queue, after a confirmation."""
        info = self.desk.queue(self._grid.key) if self._grid.key is not None else None
        if info is not None:
            Confirm.ask(self, pausing(info))


def _more(info: QueueInfo, width: int) -> Text:
    """Format the contents of a queue by state, and its counters."""
    text = Text()
    for state, counted in state_texts(info, width):
        text.append(f" {counted} ", style=STATE_COLOURS[state] if getattr(info, state.value) else "dim")
    lost = f", {number(info.lost)} lost with their servers" if info.lost else ""
    paused = "  paused" if info.paused else ""
    dropped = f"  {number(info.archive_dropped)} dropped from the archive" if info.archive_dropped else ""
    text.append(
        f"\n today {plural(info.processed, 'run')}, {number(info.failed)} failed{lost}"
        f"  in total {plural(info.processed_total, 'run')}{paused}{dropped}"
    )
    if len(info.queue) > SHORT_NAME:
        text.append(f"\n {clean(info.queue)}")
    return text
