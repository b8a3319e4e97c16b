"""``fastq queue move``: moves tasks to another queue such that no task is lost and no task runs twice."""

from collections.abc import Sequence
from typing import Final

import click

from fastq.cli.commands import Verb
from fastq.cli.destructive import carry_out, confirm, yes_option
from fastq.cli.parameters import QueueName, json_option, states_option, type_option
from fastq.cli.session import Session, emit, pass_session
from fastq.cli.streams import say_failure
from fastq.errors import FastqError
from fastq.inspector import Moved, TaskFilter
from fastq.inspector.json_records import moved_record
from fastq.inspector.transfer import MOVABLE, MovePlan
from fastq.text.human import clean, number

_BEYOND: Final = {
    "trim": "the next task archived there deletes all but the newest {}",
    "pause": "the next task archived there pauses the queue, because its archive keeps {}",
    "spill": "its servers write all but the newest {} to files",
}


@click.command(
    "move",
    cls=Verb,
    examples=['queue move low bulk --state pending --type "mail:*"', "queue move low bulk --yes --json"],
    exits="0 all are moved, 1 failed, or some stayed; 2 misused, 130 Ctrl-C, 143 SIGTERM",
)
@click.argument("origin", type=QueueName(), metavar="FROM")
@click.argument("target", type=QueueName(), metavar="TO")
@states_option(MOVABLE, "a state; may be repeated  [default: all but active]")
@type_option
@yes_option
@json_option
@pass_session
def move(session: Session, /, origin: str, target: str, states: Sequence[str], type: str | None, **flags: bool) -> int:
    """Move tasks to another queue, with their ids, states, times and unique locks; active ones stay.

    Tasks are moved 200 at a time. In between they are parked where no server takes them, so each task is in one queue
    only, whatever happens. Running the same command again finishes an interrupted move. A task stays if the other
    queue already has its id, or another task there holds its lock; the command lists such tasks.
    """
    if origin == target:
        raise click.UsageError(f"FROM and TO are both {origin!r}")
    known = [state for state in MOVABLE if state in states or not states]
    plan = session.inspector.plan_move(origin, target, states=known, where=TaskFilter(type))
    job = plan.job
    if job.total or plan.parked:
        _warn_of_a_full_archive(plan, target)
        which = f"Those of type {clean(type)} among the" if type is not None else "The"
        what = f"{which} {number(job.total)} tasks of {clean(origin)} that are {', '.join(known)}"
        confirm(f"{what} will be moved to {clean(target)}.", yes=flags["yes"])
        try:
            carry_out(session, lambda note: session.inspector.carry_out(job, progress=note), job.done, job.total)
        except FastqError as error:
            raise FastqError(
                f"{error}; some tasks may be parked between the queues; run the same move again to finish it"
            ) from error
    return _told(session, plan.moved, (origin, target), as_json=flags["as_json"])


def _warn_of_a_full_archive(plan: MovePlan, target: str) -> None:
    rule = plan.archive
    if plan.archived > rule.most:
        say_failure(
            f"note: up to {number(plan.archived)} archived tasks will be in {clean(target)}; "
            f"{_BEYOND[rule.full].format(number(rule.most))}"
        )


def _told(session: Session, moved: Moved, queues: tuple[str, str], *, as_json: bool) -> int:
    origin, target = map(clean, queues)
    for task_id, why in moved.failed:
        say_failure(f"{clean(task_id)} stays in {origin}: {why}")
    stayed = moved.id_conflicts + moved.lock_conflicts
    if as_json:
        emit(moved_record(moved))
    else:
        more = f"; {number(stayed)} stayed" if stayed else ""
        tasks = "task" if moved.count == 1 else "tasks"
        session.screen.say(f"Moved {number(moved.count)} {tasks} of {origin} to {target}{more}.")
    return 1 if stayed else 0
