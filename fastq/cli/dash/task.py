"""One task: its facts, its payload and its result, in readable form."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget

from fastq.cli.dash.acting import ACTING, Acting, hints_for
from fastq.cli.dash.cells import text_of
from fastq.cli.dash.desk import Desk
from fastq.cli.dash.payload import shown_lines
from fastq.cli.dash.view import Hint, Line
from fastq.cli.task_shown import attempt_facts, last_traceback, lock_facts, task_facts
from fastq.errors import FastqError, QueueNotFoundError, TaskNotFoundError
from fastq.info import TaskInfo
from fastq.inspector import FailedAttempt, TaskLocks
from fastq.text.human import clean, size


class _Body(VerticalScroll):
    """The scrolled text, with the same keys as lists."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "scroll_up"),
        Binding("j", "scroll_down"),
        Binding("g", "scroll_home"),
        Binding("G", "scroll_end"),
        Binding("space", "page_down"),
    ]


class TaskView(Acting):
    """The details of a task."""

    PLACE = "Queues"
    HINTS: ClassVar[Sequence[Hint]] = (Hint("j/k", "scroll"), Hint("Esc", "back"))
    BINDINGS: ClassVar[list[BindingType]] = [*ACTING]

    def __init__(self, desk: Desk, queue: str, task_id: str) -> None:
        super().__init__(desk)
        self._queue = queue
        self._task_id = task_id
        self._info: TaskInfo | None = None
        self._attempts: list[FailedAttempt] = []
        self._locks: TaskLocks | None = None
        self._is_gone = False
        self._text = Line(id="task")
        self._where = Line(id="where")

    def body(self) -> Iterable[Widget]:
        """Lay out the heading of the task, and a scrolled text."""
        return (self._where, _Body(self._text, id="scroll"))

    async def look(self) -> None:
        """Read the task."""
        inspector = self.desk.inspector
        self._info = await inspector.get_task_info(self._queue, self._task_id)
        self._attempts = await inspector.get_failed_attempts(self._queue, self._task_id)
        self._locks = await inspector.get_task_locks(self._queue, self._task_id)
        self._is_gone = False

    def bears(self, error: FastqError) -> bool:
        """Accept an error that says that the task does not exist any more."""
        self._is_gone = isinstance(error, TaskNotFoundError | QueueNotFoundError)
        return self._is_gone

    def target(self) -> TaskInfo | None:
        """Return the task."""
        return None if self._is_gone else self._info

    def hints(self) -> Sequence[Hint]:
        """Return the keys of this view, with the actions on the task."""
        info = self.target()
        return (*self.HINTS, *(hints_for(info.state) if info else ()))

    def draw(self) -> None:
        """Show the task as last read."""
        where = Text(" task ").append(clean(self._task_id), style="bold")
        if self._is_gone:
            where.append("  is gone: done or deleted" if self._info else "  there is no such task", style="yellow")
        self._where.say(where)
        if self._info is not None:
            text = _text(self._info, self._locks, self._attempts)
            self._text.say(text)


def _text(info: TaskInfo, locks: TaskLocks | None, attempts: Sequence[FailedAttempt]) -> Text:
    text, now = Text(), datetime.now(UTC)
    of_locks = lock_facts(locks, now) if locks else []
    pairs = [pair for pair in (*task_facts(info, now), *of_locks, *attempt_facts(attempts, now)) if pair[1]]
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        text.append(f" {name:<{width}}  ", style="dim").append_text(text_of(value, value)).append("\n")
    for name, data in (("Payload", info.payload), ("Result", info.result)):
        if data is not None:
            text.append(f"\n {name}", style="bold").append(f"  {size(len(data))}\n", style="dim")
            text.append("".join(f" {line}\n" for line in shown_lines(data)))
    heading, lines = last_traceback(attempts)
    if lines:
        text.append(f"\n {heading}\n", style="bold").append("".join(f" {line}\n" for line in lines))
    return text
