"""Asks before an action, shows its progress, lets the user stop it, and reports the result."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.worker import Worker

from fastq.cli.dash.view import Hint, Line, View, keys_text
from fastq.errors import FastqError
from fastq.inspector import AsyncInspector, Progress
from fastq.inspector.jobs import Job
from fastq.text.human import clean, number

SHOWN_EVERY_S = 0.1


class _Stopped(Exception):  # noqa: N818 - no defect
    """Raised in a job to stop it before its next chunk."""


class Confirm(ModalScreen[str]):
    """A dialog that asks, then shows the progress of the work; its result is a text about the work done."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,Y", "go_on", "do it"),
        Binding("n,N,escape", "stop", "no, or stop"),
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
        """Open the dialog over a view, which then shows the result; a read-only dashboard refuses."""
        if not view.may_act():
            return

        def end(said: str | None) -> None:
            view.say(said or "")
            view.post_message(View.Acted())

        view.app.push_screen(cls(job, view.desk.inspector), end)

    def compose(self) -> ComposeResult:
        """Lay out the question, the progress and the keys."""
        with Vertical(id="box"):
            yield Line(id="question")
            yield Line(id="progress")
            yield Line(id="answers")

    def on_mount(self) -> None:
        """Show the question and the keys."""
        style = "bold red" if self._job.destroys else "bold"
        self.query_one("#question", Line).say(Text(self._job.question, style=style))
        self.query_one("#answers", Line).say(keys_text([Hint("y", "yes"), Hint("n", "no"), Hint("Esc", "no")]))
        self.set_interval(SHOWN_EVERY_S, self._show)

    def _show(self) -> None:
        if self._worker is not None:
            trouble = "; Redis does not answer; retrying" if self._progress.trouble else ""
            self.query_one("#progress", Line).say(f"{self._done()}{trouble} …")

    def _done(self) -> str:
        return f"{number(self._progress.done)} of {number(self._progress.total)} {self._job.done}"

    def action_go_on(self) -> None:
        """Start the work."""
        if self._worker is None:
            self.query_one("#answers", Line).say(keys_text([Hint("Esc", "stop; the rest stays unchanged")]))
            self._worker = self.run_worker(self._work, group="job")

    def action_stop(self) -> None:
        """Close the dialog if the work has not begun, else stop the work after its current chunk."""
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
