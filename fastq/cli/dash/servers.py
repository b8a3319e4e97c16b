"""The running servers, asynq's and fastq's, and the running tasks of the server under the cursor."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import ClassVar, Final

from textual.widget import Widget

from fastq.cli.dash.desk import Desk
from fastq.cli.dash.grid import Grid, Row
from fastq.cli.dash.task import TaskView
from fastq.cli.dash.view import Hint, Line, View
from fastq.cli.server import COLUMNS, server_rows
from fastq.cli.tables import Cell, Column
from fastq.inspector import ServerInfo
from fastq.text.human import clean, payload_text, plural, span, when
from fastq.text.places import places_of, use_text
from fastq.wire.messages import WorkerInfo

WORK_COLUMNS: Final = (
    Column("TASK ID", cut=True),
    Column("TYPE", cut=True),
    Column("QUEUE", cut=True),
    Column("FOR", right=True),
    Column("DEADLINE"),
    Column("PAYLOAD", cut=True, rank=1),
)
MOST_PAYLOAD: Final = 200


class ServersView(View):
    """The list of servers, and below it the running tasks of one."""

    PLACE = "Servers"
    HINTS: ClassVar[Sequence[Hint]] = (
        Hint("Enter", "its tasks, a task"),
        Hint("Tab", "other list"),
        Hint("j/k", "move"),
        Hint("Esc", "back"),
    )

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._servers: Sequence[ServerInfo] | None = None
        self._sum = Line(id="sum")
        self._grid = Grid(id="servers")
        self._about = Line(id="about")
        self._work = Grid(id="work")

    def body(self) -> Iterable[Widget]:
        """Lay out both lists, each below its heading."""
        return (self._sum, self._grid, self._about, self._work)

    async def look(self) -> None:
        """Read the servers and their running tasks."""
        self._servers = await self.desk.inspector.servers()

    def draw(self) -> None:
        """Show the servers as last read."""
        servers, now = self._servers or (), datetime.now(UTC)
        use = f"  {use_text(places_of(servers))} busy" if servers else ""
        self._sum.say(f" {plural(len(servers), 'server')}{use}")
        rows = [Row(info.id, cells) for info, cells in zip(servers, server_rows(servers, now), strict=True)]
        self._grid.show(COLUMNS, rows, "  There are no servers running." if self._servers is not None else "  …")
        self._draw_work()

    def _draw_work(self) -> None:
        info = next((info for info in self._servers or () if info.id == self._grid.key), None)
        if info is None:
            self._about.say("")
            self._work.show((), ())
            return
        runs = plural(len(info.active_workers), "task")
        self._about.say(f" {clean(info.host)}:{info.pid} runs {runs}, {use_text(places_of([info]))} busy", "bold")
        now = datetime.now(UTC)
        rows = [Row(f"{worker.queue}\n{worker.task_id}", _row(worker, now)) for worker in info.active_workers]
        self._work.show(WORK_COLUMNS, rows, "  It runs no tasks now.")

    def on_grid_moved(self, event: Grid.Moved) -> None:
        """Show the tasks of another server."""
        if event.grid is self._grid:
            self._draw_work()

    def on_grid_chosen(self, event: Grid.Chosen) -> None:
        """Move to the tasks of the chosen server, or show the chosen task."""
        if event.grid is self._grid:
            self._work.focus()
        else:
            queue, _, task_id = event.key.partition("\n")
            self.app.push_screen(TaskView(self.desk, queue, task_id))

    def action_back(self) -> None:
        """Go back to the servers, or to the queues."""
        if self._work.has_focus:
            self._grid.focus()
        else:
            super().action_back()


def _row(worker: WorkerInfo, now: datetime) -> list[str]:
    late = worker.deadline is not None and worker.deadline < now
    return [
        clean(worker.task_id),
        clean(worker.task_type),
        clean(worker.queue),
        span(now - worker.start_time) if worker.start_time else "-",
        Cell(when(worker.deadline, now), "red" if late else None),
        payload_text(worker.task_payload[:MOST_PAYLOAD]),
    ]
