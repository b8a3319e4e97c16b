"""The periodic tasks of all running schedulers with their next and last times, and the history of one entry."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget

from fastq.cli.dash.desk import Desk
from fastq.cli.dash.grid import Grid, Row
from fastq.cli.dash.view import Hint, Line, View
from fastq.cli.tables import Column
from fastq.text.human import clean, number, payload_text, stamp, when
from fastq.wire.messages import SchedulerEnqueueEvent, SchedulerEntry

COLUMNS: Final = (
    Column("SPEC", cut=True),
    Column("QUEUE", cut=True),
    Column("TYPE", cut=True),
    Column("NEXT"),
    Column("PREV"),
    Column("NEXT AT", rank=3),
    Column("OPTIONS", cut=True, rank=1),
    Column("PAYLOAD", cut=True, rank=2),
    Column("ENTRY ID", cut=True, rank=4),
)
EVENT_COLUMNS: Final = (Column("ENQUEUED AT"), Column("AGO"), Column("TASK ID", cut=True))


class CronView(View):
    """The list of periodic tasks."""

    PLACE = "Schedulers"
    HINTS: ClassVar[Sequence[Hint]] = (Hint("Enter", "when it was enqueued"), Hint("j/k", "move"), Hint("Esc", "back"))

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._entries: Sequence[SchedulerEntry] | None = None
        self._sum = Line(id="sum")
        self._grid = Grid(id="entries")
        self._more = Line(id="more")

    def body(self) -> Iterable[Widget]:
        """Lay out the list, and the lines about one entry."""
        return (self._sum, self._grid, self._more)

    async def look(self) -> None:
        """Read the entries."""
        self._entries = await self.desk.inspector.scheduler_entries()

    def draw(self) -> None:
        """Show the entries as last read."""
        entries = self._entries or ()
        self._sum.say(f" {number(len(entries))} periodic tasks")
        now = datetime.now(UTC)
        nothing = "  There are no schedulers running." if self._entries is not None else "  …"
        self._grid.show(COLUMNS, [Row(entry.id, _row(entry, now)) for entry in entries], nothing)
        self._draw_more()

    @property
    def _current(self) -> SchedulerEntry | None:
        return next((entry for entry in self._entries or () if entry.id == self._grid.key), None)

    def _draw_more(self) -> None:
        entry = self._current
        if entry is None:
            self._more.say("")
            return
        options = ", ".join(map(clean, entry.enqueue_options))
        payload = payload_text(entry.task_payload)
        self._more.say(f" next {stamp(entry.next_enqueue_time)}  id {clean(entry.id)}\n {options}  {payload}")

    def on_grid_moved(self) -> None:
        """Show details of another entry."""
        self._draw_more()

    def on_grid_chosen(self) -> None:
        """Show when an entry's task was enqueued."""
        if (entry := self._current) is not None:
            self.app.push_screen(EntryView(self.desk, entry))


class EntryView(View):
    """The list of times when the task of an entry was enqueued, the latest first."""

    PLACE = "Schedulers"
    HINTS: ClassVar[Sequence[Hint]] = (Hint("n/p", "page"), Hint("j/k", "move"), Hint("Esc", "back"))
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "page(1)", "the next page"),
        Binding("p", "page(-1)", "the previous page"),
    ]

    def __init__(self, desk: Desk, entry: SchedulerEntry) -> None:
        super().__init__(desk)
        self._entry = entry
        self._events: Sequence[SchedulerEnqueueEvent] | None = None
        self._page = 1
        self._where = Line(id="where")
        self._grid = Grid(id="events")

    def body(self) -> Iterable[Widget]:
        """Lay out the entry and its times."""
        return (self._where, self._grid)

    async def look(self) -> None:
        """Read a page of the times."""
        self._events = await self.desk.inspector.list_scheduler_enqueue_events(
            self._entry.id, page=self._page, page_size=self._grid.rows_shown
        )

    def draw(self) -> None:
        """Show the times."""
        text = Text(" ").append(clean(self._entry.spec), style="bold")
        self._where.say(text.append(f"  {clean(self._entry.task_type)}  page {number(self._page)}"))
        now = datetime.now(UTC)
        rows = [
            Row(event.task_id, (stamp(event.enqueue_time), when(event.enqueue_time, now), clean(event.task_id)))
            for event in self._events or ()
        ]
        nothing = "  There are no times on this page; they are deleted when the scheduler ends."
        self._grid.show(EVENT_COLUMNS, rows, nothing if self._events is not None else "  …")

    def action_page(self, by: int) -> None:
        """Show the next or the previous page."""
        if self._page + by >= 1 and (by < 0 or self._events):
            self._page += by
            self._grid.action_first()
            self.look_now()


def _row(entry: SchedulerEntry, now: datetime) -> list[str]:
    return [
        clean(entry.spec),
        clean(entry.queue) or "?",
        clean(entry.task_type),
        when(entry.next_enqueue_time, now),
        when(entry.prev_enqueue_time, now),
        stamp(entry.next_enqueue_time),
        ", ".join(map(clean, entry.enqueue_options)),
        payload_text(entry.task_payload),
        clean(entry.id),
    ]
