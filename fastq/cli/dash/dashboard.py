"""The dashboard as a Textual application: the views, the global keys, and the refresh."""

import asyncio
import time
from collections.abc import Mapping
from typing import ClassVar, Final

from textual.app import App
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.worker import Worker

from fastq.cli.dash.colours import COLOURS
from fastq.cli.dash.cron import CronView
from fastq.cli.dash.desk import Desk, Options
from fastq.cli.dash.help import Help
from fastq.cli.dash.queues import QueuesView
from fastq.cli.dash.redis import RedisView
from fastq.cli.dash.servers import ServersView
from fastq.cli.dash.tasks import TasksView
from fastq.cli.dash.view import View

BEAT_S: Final = 0.5
RETRY_S: Final = 2.0
"""The time between retries while Redis does not answer."""

PLACES: Final[Mapping[str, type[View]]] = {"servers": ServersView, "cron": CronView, "redis": RedisView}
"""The views that open on top of the queues, by their names in the key bindings."""

CSS: Final = """
View { layout: vertical; background: $background; }
Line { width: 100%; height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
Grid { width: 100%; height: 1fr; }
#foot { height: 3; text-wrap: wrap; }
#more { height: auto; min-height: 2; }
#scroll { height: 1fr; }
#search { height: 1; }
#about { margin-top: 1; }
ModalScreen { align: center middle; }
#box { width: 76; max-width: 100%; height: auto; max-height: 90%; padding: 1 2; border: round $secondary; }
#task, #question, #progress, #help { height: auto; text-wrap: wrap; }
#answers { margin-top: 1; }
"""


class Dash(App[int]):
    """The dashboard."""

    CSS = CSS
    TITLE = "fastq"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "exit_dash", "quit"),
        Binding("ctrl+c,ctrl+q", "exit_dash", "quit", priority=True),
        Binding("question_mark", "help", "help"),
        Binding("f1", "go('queues')", "queues"),
        Binding("f2", "go('servers')", "servers"),
        Binding("f3", "go('cron')", "schedulers"),
        Binding("f4", "go('redis')", "Redis"),
    ]

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.animation_level = "none"
        self.ansi_theme_dark = COLOURS
        self.desk = Desk(options)
        self._look: Worker[None] | None = None
        self._looked_s = 0.0

    def get_default_screen(self) -> Screen[None]:
        """Start with the queues."""
        return QueuesView(self.desk)

    def on_mount(self) -> None:
        """Start to refresh, and open the queue given with ``--queue``."""
        self.look_now()
        self.set_interval(BEAT_S, self._beat)
        if self.desk.options.queue is not None:
            self.push_screen(TasksView(self.desk, self.desk.options.queue))

    @property
    def is_looking(self) -> bool:
        """Return whether a read of the queues is pending."""
        return self._look is not None and not self._look.is_finished

    def look_now(self) -> None:
        """Read all queues."""
        self._looked_s = time.monotonic()
        self._look = self.run_worker(self._look_once, group="queues", exclusive=True)

    async def _look_once(self) -> None:
        with self.desk.health.asking():
            await self.desk.look()
        self._draw()

    def _draw(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, View):
                screen.draw()
                screen.draw_frame()

    def _beat(self) -> None:
        """Refresh when it is time, unless a read is pending; show the health of Redis."""
        if not self.screen_stack:
            return  # the app is closing, and this is its last timer
        now_s = time.monotonic()
        period_s = self.desk.options.refresh_s
        if self.desk.health.is_ill:
            period_s = min(period_s, RETRY_S)
        if now_s - self._looked_s >= period_s and not self.is_looking:
            self.look_now()
        screen = self.screen
        if isinstance(screen, View):
            if now_s - screen.looked_s >= period_s and screen.beats and not screen.is_looking:
                screen.look_now()
            screen.draw_frame()

    def on_view_acted(self) -> None:
        """Refresh everything after an action."""
        self.look_now()

    def action_go(self, name: str) -> None:
        """Show one of the four main views."""
        if isinstance(self.screen, View):
            self.desk.said = ""
            while len(self.screen_stack) > 1:
                self.pop_screen()
            if name in PLACES:
                self.push_screen(PLACES[name](self.desk))

    def action_help(self) -> None:
        """Show the keys."""
        if isinstance(self.screen, View):
            self.push_screen(Help(read_only=self.desk.options.read_only))

    def action_exit_dash(self) -> None:
        """Quit."""
        self.exit(0)


def run(options: Options) -> int:
    """Run the dashboard until the user quits; returns the exit code."""

    async def run_app() -> int:
        app = Dash(options)
        try:
            code = await app.run_async()
        finally:
            await app.desk.close()
        return app.return_code or code or 0

    return asyncio.run(run_app())
