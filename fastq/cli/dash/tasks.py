"""The tasks of a queue, by state and page; for aggregating tasks, first the lanes and groups."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from fastq.cli.dash.acting import ACTING, Acting, hints_for
from fastq.cli.dash.cells import state_texts
from fastq.cli.dash.desk import Desk
from fastq.cli.dash.finder import Finder
from fastq.cli.dash.grid import Grid, Row
from fastq.cli.dash.task import TaskView
from fastq.cli.dash.task_rows import GROUP_COLUMNS, columns_of, row_of
from fastq.cli.dash.view import Hint, Line
from fastq.cli.lane_shown import LANE_COLUMNS, lane_cells
from fastq.cli.stats import STATE_COLOURS, STATES
from fastq.common.states import TaskState
from fastq.errors import FastqError, QueueNotFoundError
from fastq.info import TaskInfo
from fastq.inspector import GroupInfo, LaneInfo
from fastq.inspector.jobs import Place, doing_all, may
from fastq.text.human import clean, number

MOST_LANES = 1_000
"""The most lanes that are read; further lanes are listed as groups."""


class TasksView(Acting):
    """The list of a queue's tasks."""

    PLACE = "Queues"
    HINTS: ClassVar[Sequence[Hint]] = (
        Hint("Enter", "open"),
        Hint("h/l", "state"),
        Hint("n/p", "page"),
        Hint("/", "search"),
        Hint("Esc", "back"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "state(-1)", "the previous state"),
        Binding("right,l", "state(1)", "the next state"),
        Binding("n", "page(1)", "the next page"),
        Binding("p", "page(-1)", "the previous page"),
        Binding("slash", "search", "search"),
        *ACTING,
        Binding("R", "act_all('run')", "run all"),
        Binding("A", "act_all('archive')", "archive all"),
        Binding("D", "act_all('delete')", "delete all"),
    ]

    def __init__(self, desk: Desk, queue: str) -> None:
        super().__init__(desk)
        self.queue = queue
        self._tabs = Line(id="tabs")
        self._where = Line(id="where")
        self._grid = Grid(id="tasks")
        self._input = Input(id="search", placeholder="an id, or part of type, payload or error", compact=True)
        self._groups: Sequence[GroupInfo] | None = None
        self._lanes: Sequence[LaneInfo] = ()
        self._is_gone = False
        self._is_begun = False
        self._finder = Finder(Place(queue, TaskState.ACTIVE))

    @property
    def state(self) -> TaskState:
        """Return the state whose tasks are listed."""
        return self._finder.place.state

    @property
    def lists_groups(self) -> bool:
        """Return whether the rows are groups to choose from."""
        return self.state is TaskState.AGGREGATING and self._finder.place.group is None

    @property
    def beats(self) -> bool:
        """Return whether to refresh automatically; search results do not change until the user asks for it."""
        return not self._finder.text

    def body(self) -> Iterable[Widget]:
        """Lay out the states, the position, the list, and the search field."""
        self._input.display = False
        return (self._tabs, self._where, self._grid, self._input)

    async def look(self) -> None:
        """Read the groups, a page, or the matches of a search."""
        if not self._is_begun:
            await self._begin()
        self._is_gone = False
        if self.lists_groups:
            self._lanes, _ = await self.desk.inspector.lanes(self.queue, page_size=MOST_LANES)
            self._groups = await self.desk.inspector.groups(self.queue)
        else:
            await self._finder.look(self.desk, self._grid.rows_shown, self.draw)

    async def _begin(self) -> None:
        """Start with the first state that has tasks."""
        info = self.desk.queue(self.queue) or await self.desk.inspector.get_queue_info(self.queue)
        state = next((state for state in STATES if getattr(info, state.value)), TaskState.ACTIVE)
        self._finder, self._is_begun = Finder(Place(self.queue, state)), True

    def bears(self, error: FastqError) -> bool:
        """Accept an error that says that the queue does not exist any more."""
        self._is_gone = isinstance(error, QueueNotFoundError)
        return self._is_gone

    def refit(self) -> None:
        """Read as many tasks as fit."""
        super().refit()
        found = self._finder.found
        if found is not None and not self._finder.text and found.size != self._grid.rows_shown:
            self.look_now()

    def draw(self) -> None:
        """Show the last results."""
        self._tabs.say(self._tabs_text())
        self._where.say(self._where_text())
        if self._is_gone:
            self._grid.show((), (), f"  The queue {clean(self.queue)} no longer exists.")
        elif self.lists_groups:
            self._draw_groups()
        else:
            found = self._finder.found
            which = " that match" if self._finder.text else ""
            nothing = f"  There are no {self.state} tasks{which}." if found is not None else "  …"
            self._grid.show(columns_of(self.state), [row_of(info) for info in found.infos] if found else [], nothing)

    def _draw_groups(self) -> None:
        """Show the groups; in a queue with lanes, show first the lanes, with the reason why they wait."""
        nothing = "  There are no groups." if self._groups is not None else "  …"
        if not self._lanes:
            groups = [Row(info.group, (clean(info.group), number(info.size))) for info in self._groups or ()]
            self._grid.show(GROUP_COLUMNS, groups, nothing)
            return
        names = {info.lane for info in self._lanes}
        rows = [Row(info.lane, lane_cells(info)) for info in sorted(self._lanes, key=lambda info: info.lane)]
        rows += [
            Row(info.group, (clean(info.group), number(info.size), "-", "-", "-"))
            for info in self._groups or ()
            if info.group not in names
        ]
        self._grid.show(LANE_COLUMNS, rows, nothing)

    def _tabs_text(self) -> Text:
        text = Text()
        for state, counted in state_texts(self.desk.queue(self.queue), self.size.width):
            text.append(f" {counted} ", style=f"{STATE_COLOURS[state]}{' reverse' * (state is self.state)}")
        return text

    def _where_text(self) -> Text:
        text = Text(" ").append(clean(self.queue), style="bold")
        info = self.desk.queue(self.queue)
        if info is not None and info.paused:
            text.append(" (paused)", style="yellow")
        if info is not None and info.max_pending is not None:
            text.append(f"  max {number(info.max_pending)} pending")
        if self.lists_groups:
            what = "lanes and groups" if self._lanes else "groups"
            return text.append(f"  {number(len(self._groups or ()))} {what}; Enter shows the tasks of one")
        if self._finder.place.group is not None:
            text.append(f"  group {clean(self._finder.place.group)}")
        return text.append(f"  {self.state} {self._finder}")

    def hints(self) -> Sequence[Hint]:
        """Return the keys of this view, with the actions of this state."""
        return self.HINTS if self.lists_groups else (*self.HINTS, *hints_for(self.state, all_too=True))

    # Navigation

    def _go(self, place: Place) -> None:
        self._finder, self._is_begun = Finder(place), True
        self._groups, self._lanes = None, ()
        self._grid.action_first()
        self.draw()
        self.look_now()

    def action_state(self, by: int) -> None:
        """Show the tasks of the next or the previous state."""
        self._go(Place(self.queue, STATES[(STATES.index(self.state) + by) % len(STATES)]))

    def action_page(self, by: int) -> None:
        """Show the next or the previous page."""
        if self._finder.turn(by):
            self._grid.action_first()
            self.look_now()

    def action_back(self) -> None:
        """End the search, or leave the group or the queue."""
        if self._input.display:
            self._close_input()
        elif self._finder.text:
            self._go(self._finder.place)
        elif self._finder.place.group is not None:
            self._go(Place(self.queue, TaskState.AGGREGATING))
        else:
            super().action_back()

    def on_grid_chosen(self, event: Grid.Chosen) -> None:
        """Show the tasks of a group, or a task."""
        if self.lists_groups:
            self._go(Place(self.queue, TaskState.AGGREGATING, event.key))
        else:
            self.app.push_screen(TaskView(self.desk, self.queue, event.key))

    # Searching

    def action_search(self) -> None:
        """Open the field for a search."""
        if not self.lists_groups:
            self._input.value = self._finder.text
            self._input.display = True
            self._input.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search for the typed text."""
        self._close_input()
        self._finder.search(event.value)
        self._grid.action_first()
        self.draw()
        self.look_now()

    def _close_input(self) -> None:
        self._input.display = False
        self._grid.focus()

    # Acting

    def target(self) -> TaskInfo | None:
        """Return the task under the cursor."""
        return None if self.lists_groups else self._finder.info(self._grid.key)

    def action_act_all(self, name: str) -> None:
        """Act on all tasks of the state; during a search, on the matches shown."""
        found = self._finder.found
        if not self.may_act():
            return
        if self.lists_groups or found is None or not found.infos:
            self.say("Choose a group first." if self.lists_groups else "There are no tasks here.")
        elif self._finder.text:
            self.propose(name, found.infos)
        elif may(name, self.state):
            self.confirm(doing_all(name, self._finder.place, self._finder.total))
        else:
            self.say(f"Cannot {name} tasks in state {self.state}.")
