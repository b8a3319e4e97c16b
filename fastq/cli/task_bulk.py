"""``fastq task run-all``, ``archive-all`` and ``delete-all``: do something to all tasks of a state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import click

from fastq.cli.bulk import carry_out, confirm, yes_option
from fastq.cli.commands import Verb, json_option, queue_option, state_choice
from fastq.cli.human import clean, number
from fastq.cli.session import Session, emit, pass_session
from fastq.cli.task import group_option, of_group
from fastq.inspector.json_records import acted_record
from fastq.inspector.progress import OnProgress
from fastq.states import TaskState

__all__ = ["archive_all", "delete_all", "run_all"]

_WAITING: Final = (TaskState.PENDING, TaskState.AGGREGATING, TaskState.SCHEDULED, TaskState.RETRY)


@dataclass(frozen=True, slots=True)
class _Change:
    """An action, and the tasks it applies to."""

    done: str
    warning: str
    queue: str
    state: TaskState
    group: str | None

    def tasks(self, count: int) -> str:
        """Write how many tasks of which kind."""
        group = "" if self.group is None else f" in group {clean(self.group)}"
        return f"{number(count)} {self.state} task{'' if count == 1 else 's'} of {clean(self.queue)}{group}"


def _change(done: str, warning: str, queue: str, state: str, group: str | None) -> _Change:
    known = TaskState(state)
    return _Change(done, warning, queue, known, of_group(known, group))


class _All(Protocol):
    """A method that does something to all tasks of a state."""

    def __call__(
        self, queue: str, state: TaskState | str, *, group: str | None = None, progress: OnProgress | None = None
    ) -> int: ...


def _on_all(act: _All, change: _Change) -> Callable[[OnProgress], int]:
    return lambda note: act(change.queue, change.state, group=change.group, progress=note)


def _count(session: Session, change: _Change) -> int:
    return session.inspector.count_tasks(change.queue, change.state, group=change.group)


def _apply(session: Session, change: _Change, work: Callable[[OnProgress], int], *, yes: bool, as_json: bool) -> None:
    total = _count(session, change)
    count = 0
    if total:
        confirm(f"{change.tasks(total)} will be {change.warning}.", yes=yes)
        count = carry_out(session, work, change.done, total)
    if as_json:
        emit(acted_record(count, {}))
    elif total:
        session.screen.say(f"{change.tasks(count)} {change.done}.")
    else:
        session.screen.say(f"There are {change.tasks(0).replace('0', 'no', 1)}.")


@click.command(
    "run-all",
    cls=Verb,
    examples=["task run-all --queue low --state scheduled", "task run-all -q low -s aggregating --group weekly --yes"],
)
@queue_option
@click.option(
    "--state",
    "-s",
    type=state_choice(
        TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED, TaskState.COMPLETED, TaskState.AGGREGATING
    ),
    required=True,
    help="the state of the tasks",
)
@group_option
@yes_option
@json_option
@pass_session
def run_all(session: Session, queue: str, state: str, group: str | None, yes: bool, as_json: bool) -> None:
    """Move all tasks in a state to pending."""
    change = _change("made pending", "pending, and run as soon as servers get to them", queue, state, group)
    _apply(session, change, _on_all(session.inspector.run_all_tasks, change), yes=yes, as_json=as_json)


@click.command("archive-all", cls=Verb, examples=["task archive-all --queue low --state retry --yes"])
@queue_option
@click.option("--state", "-s", type=state_choice(*_WAITING), required=True, help="the state of the tasks")
@group_option
@yes_option
@json_option
@pass_session
def archive_all(session: Session, queue: str, state: str, group: str | None, yes: bool, as_json: bool) -> None:
    """Move all tasks in a state to the archive, which keeps the last 10,000."""
    change = _change("archived", "archived; the archive keeps the last 10,000", queue, state, group)
    _apply(session, change, _on_all(session.inspector.archive_all_tasks, change), yes=yes, as_json=as_json)


@click.command(
    "delete-all",
    cls=Verb,
    examples=[
        "task delete-all --queue default --state archived",
        "task delete-all -q default -s completed --yes --json",
    ],
)
@queue_option
@click.option(
    "--state",
    "-s",
    type=state_choice(*_WAITING, TaskState.ARCHIVED, TaskState.COMPLETED),
    required=True,
    help="the state of the tasks",
)
@group_option
@yes_option
@json_option
@pass_session
def delete_all(session: Session, queue: str, state: str, group: str | None, yes: bool, as_json: bool) -> None:
    """Delete all tasks in a state."""
    change = _change("deleted", "deleted for good", queue, state, group)
    _apply(session, change, _on_all(session.inspector.delete_all_tasks, change), yes=yes, as_json=as_json)
