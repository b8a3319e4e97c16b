"""``fastq task run-all``, ``archive-all`` and ``delete-all``: actions on all tasks of a state."""

from typing import Final, Protocol

import click

from fastq.cli.commands import Verb
from fastq.cli.destructive import TO_PENDING, Change, change_many, yes_option
from fastq.cli.parameters import json_option, queue_option, state_option
from fastq.cli.session import Session, pass_session
from fastq.cli.task import group_option, of_group
from fastq.common.states import TaskState
from fastq.inspector.progress import OnProgress
from fastq.text.human import clean

_WAITING: Final = (TaskState.PENDING, TaskState.AGGREGATING, TaskState.SCHEDULED, TaskState.RETRY)


class _All(Protocol):
    """A method that acts on all tasks of a state."""

    def __call__(
        self, queue: str, state: TaskState | str, *, group: str | None = None, progress: OnProgress | None = None
    ) -> int: ...


class _Place:
    """The tasks of a queue in the state that a command was given."""

    def __init__(self, queue: str, state: str, group: str | None) -> None:
        self.queue = queue
        self.state = TaskState(state)
        self.group = of_group(self.state, group)

    def change(self, session: Session, act: _All, done: str, warning: str, **flags: bool) -> None:
        """Act on all of these tasks."""
        total = session.inspector.count_tasks(self.queue, self.state, group=self.group)
        where = clean(self.queue) + ("" if self.group is None else f" in group {clean(self.group)}")

        def work(note: OnProgress) -> int:
            return act(self.queue, self.state, group=self.group, progress=note)

        change_many(session, Change(done, warning, self.state.value, where), total, work, **flags)


@click.command(
    "run-all",
    cls=Verb,
    examples=["task run-all --queue low --state scheduled", "task run-all -q low -s aggregating --group weekly --yes"],
)
@queue_option
@state_option(TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED, TaskState.COMPLETED, TaskState.AGGREGATING)
@group_option
@yes_option
@json_option
@pass_session
def run_all(session: Session, /, queue: str, state: str, group: str | None, **flags: bool) -> None:
    """Move all tasks in a state to pending."""
    act = session.inspector.run_all_tasks
    _Place(queue, state, group).change(session, act, "made pending", TO_PENDING, **flags)


@click.command("archive-all", cls=Verb, examples=["task archive-all --queue low --state retry --yes"])
@queue_option
@state_option(*_WAITING)
@group_option
@yes_option
@json_option
@pass_session
def archive_all(session: Session, /, queue: str, state: str, group: str | None, **flags: bool) -> None:
    """Move all tasks in a state to the archive, which keeps the last 10,000."""
    act, warning = session.inspector.archive_all_tasks, "archived; the archive keeps the last 10,000"
    _Place(queue, state, group).change(session, act, "archived", warning, **flags)


@click.command(
    "delete-all",
    cls=Verb,
    examples=[
        "task delete-all --queue default --state archived",
        "task delete-all -q default -s completed --yes --json",
    ],
)
@queue_option
@state_option(*_WAITING, TaskState.ARCHIVED, TaskState.COMPLETED)
@group_option
@yes_option
@json_option
@pass_session
def delete_all(session: Session, /, queue: str, state: str, group: str | None, **flags: bool) -> None:
    """Delete all tasks in a state."""
    act = session.inspector.delete_all_tasks
    _Place(queue, state, group).change(session, act, "deleted", "deleted for good", **flags)
