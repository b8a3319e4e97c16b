"""The display of tasks: the columns of each state, and all values of one task."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from fastq.cli.stats import STATE_COLOURS
from fastq.cli.tables import Cell, Column
from fastq.common.states import TaskState
from fastq.info import TaskInfo
from fastq.inspector import FailedAttempt, TaskLocks
from fastq.inspector.fields import LOCKS, TASK, faced
from fastq.text.fields import text_of
from fastq.text.human import clean, number, payload_text, span, when

Show = Callable[[TaskInfo, datetime], str]

COMMON: Final[tuple[tuple[Column, Show], ...]] = (
    (Column("ID"), lambda info, now: clean(info.id)),
    (Column("TYPE", cut=True), lambda info, now: clean(info.type)),
    (Column("PAYLOAD", cut=True), lambda info, now: payload_text(info.payload)),
)
_FAILED: Final[tuple[Column, Show]] = (Column("LAST FAILED"), lambda info, now: when(info.last_failed_at, now))
_ERROR: Final[tuple[Column, Show]] = (Column("LAST ERROR", cut=True), lambda info, now: clean(info.last_err) or "-")
BY_STATE: Final[dict[TaskState, tuple[tuple[Column, Show], ...]]] = {
    TaskState.ACTIVE: ((Column("HELD"), lambda info, now: Cell("no", "red") if info.is_orphaned else "yes"),),
    TaskState.PENDING: (),
    TaskState.SCHEDULED: ((Column("PROCESS IN"), lambda info, now: when(info.next_process_at, now)),),
    TaskState.RETRY: (
        (Column("NEXT RETRY"), lambda info, now: when(info.next_process_at, now)),
        _ERROR,
        _FAILED,
        (Column("RETRIED", right=True), lambda info, now: number(info.retried)),
        (Column("MAX RETRY", right=True), lambda info, now: number(info.max_retry)),
        (Column("LOST", right=True), lambda info, now: number(info.lost)),
    ),
    TaskState.ARCHIVED: (_FAILED, _ERROR),
    TaskState.COMPLETED: (
        (Column("COMPLETED"), lambda info, now: when(info.completed_at, now)),
        (Column("RESULT", cut=True), lambda info, now: payload_text(info.result)),
    ),
    TaskState.AGGREGATING: ((Column("GROUP", cut=True), lambda info, now: clean(info.group)),),
}


_FACTS: Final = sorted(faced(TASK, "facts"))
_LOCK_FACTS: Final = sorted(faced(LOCKS, "facts"))


def task_facts(info: TaskInfo, now: datetime) -> list[tuple[str, str]]:
    """Return titles and values of a task, except payload and result; missing values are blank."""
    facts = [(title, text_of(field, info, now) if field.read(info) else "") for _, title, field in _FACTS]
    return [(title, Cell(text, STATE_COLOURS[info.state]) if title == "State" else text) for title, text in facts]


def lock_facts(locks: TaskLocks, now: datetime) -> list[tuple[str, str]]:
    """Return titles and values of a task's unique lock and follow-up run; missing values are blank."""
    return [(title, text_of(field, locks, now) if field.read(locks) else "") for _, title, field in _LOCK_FACTS]


def attempt_facts(attempts: Sequence[FailedAttempt], now: datetime) -> list[tuple[str, str]]:
    """Return a title and a text for each failed attempt, the oldest first."""

    def told(one: FailedAttempt) -> str:
        ran = f", ran {span(one.ended_at - one.started_at)}" if one.started_at else ""
        server = f" on {clean(one.server)}" if one.server else ""
        return f"failed {when(one.ended_at, now)}{ran}{server}: {clean(one.error)}"

    return [(f"Attempt {one.attempt}", told(one)) for one in attempts]


def last_traceback(attempts: Sequence[FailedAttempt]) -> tuple[str, list[str]]:
    """Return a heading and the lines of the last kept traceback, or no lines."""
    for one in reversed(attempts):
        if one.traceback is not None:
            return f"Traceback of attempt {one.attempt}", [clean(line) for line in one.traceback.splitlines()]
    return "", []
