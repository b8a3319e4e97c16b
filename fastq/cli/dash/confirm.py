"""Asks before something is done, shows how far it is, and lets it be stopped; at last says what it came to."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.worker import Worker

from fastq.cli.dash.view import Hint, Line, View, keys_text
from fastq.cli.human import clean, number
from fastq.errors import FastqError
from fastq.inspector import AsyncInspector, Progress
from fastq.inspector.jobs import Job

__all__ = ["Confirm"]

SHOWN_EVERY_S = 0.1


class _Stopped(Exception):  # noqa: N818 - no defect
    """Raised in a job to end it before its next piece."""


class Confirm(ModalScreen[str]):
    """A dialog that asks, then shows the work; its result is a text that says what was done."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,Y", "go_on", "do it"),
        Binding("n,N,escape", "stop", "do not do it, or stop"),
    ]

    def __init__(self, job: Job, inspector: AsyncInspector) -> None:
        super().__init__()
        self._inspector = inspector
        self._job = job
        self._progress = Progress(job.total)
        self._stops = False
        self._worker: Worker[None] | None = None

    @classmethod
    def ask(cls, view: View, job: Job) -> None:
        """Ask over a view, which then says what became of it; where nothing may be done, nobody is asked."""
        if not view.may_act():
            return

        def end(said: str | None) -> None:
            view.say(said or "")
            view.post_message(View.Acted())

        view.app.push_screen(cls(job, view.desk.inspector), end)

    def compose(self) -> ComposeResult:
        """Lay out the question, how far it is, and the keys."""
        with Vertical(id="box"):
            yield Line(id="question")
            yield Line(id="progress")
            yield Line(id="answers")

    def on_mount(self) -> None:
        """Ask."""
        style = "bold red" if self._job.destroys else "bold"
        self.query_one("#question", Line).say(Text(self._job.question, style=style))
        self.query_one("#answers", Line).say(keys_text([Hint("y", "yes"), Hint("n", "no"), Hint("Esc", "no")]))
        self.set_interval(SHOWN_EVERY_S, self._show)

    def _show(self) -> None:
        if self._worker is not None:
            trouble = "; Redis does not answer; asking again" if self._progress.trouble else ""
            self.query_one("#progress", Line).say(f"{self._done()}{trouble} …")

    def _done(self) -> str:
        return f"{number(self._progress.done)} of {number(self._progress.total)} {self._job.done}"

    def action_go_on(self) -> None:
        """Begin the work."""
        if self._worker is None:
            self.query_one("#answers", Line).say(keys_text([Hint("Esc", "stop; the rest stays unchanged")]))
            self._worker = self.run_worker(self._work, group="job")

    def action_stop(self) -> None:
        """Let everything be as it is; what has begun ends after its current piece."""
        if self._worker is not None:
            self._stops = True
        else:
            self.dismiss("Nothing was done.")

    def _note(self, progress: Progress) -> None:
        self._progress = progress
        if self._stops:
            raise _Stopped

    async def _work(self) -> None:
        try:
            await self._inspector.carry_out(self._job, progress=self._note)
        except _Stopped:
            said = f"Stopped: {self._done()}{self._progress.doubt}; the rest is unchanged."
        except FastqError as error:
            said = f"{self._done()}{self._progress.doubt}, then: {clean(' '.join(str(error).split()))}"
        else:
            said = self._job.outcome(self._progress)
        self.dismiss(said)
