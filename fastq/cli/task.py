"""``fastq task``: lists and describes tasks, and acts on single tasks."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from typing import Any, Final

import click

from fastq.cli.acting import Acting
from fastq.cli.commands import EXITS_OF_MANY, Noun
from fastq.cli.destructive import confirm, yes_option
from fastq.cli.numbers import IntegerRange
from fastq.cli.parameters import GROUP_NAME, TASK_ID, QueueName, json_option, queue_option, state_option
from fastq.cli.session import Record, Session, emit, pass_session, tell_each
from fastq.cli.stats import STATES
from fastq.cli.status_line import Look
from fastq.cli.tables import facts, table
from fastq.cli.task_filter import filter_options, page_of, read_filter
from fastq.cli.task_shown import BY_STATE, COMMON, attempt_facts, last_traceback, lock_facts, task_facts
from fastq.common.states import TaskState
from fastq.info import TaskInfo
from fastq.inspector.checks import MAX_PAGE
from fastq.inspector.filters import TaskFilter
from fastq.inspector.json_records import attempt_record, locks_record, task_record
from fastq.text.human import clean, payload_text

_EPILOG: Final = """\b
Examples:
  fastq task ls --queue default --state retry --error TimeoutError --since 1h
  fastq task inspect --queue default 9f1c
  fastq task enqueue --type mail:welcome --payload '{"to": "ann"}' --process-in 30m
  fastq task cancel 9f1c
  fastq task run-all --queue default --state archived"""

task = Noun(
    "task",
    help="List, describe, enqueue, run, retry, archive, delete, cancel, export, import and follow tasks.",
    epilog=_EPILOG,
)

MOST_A_PAGE: Final = 10_000


def ids_option(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the ids of its tasks, as arguments or by ``--id``, as in asynq."""

    @wraps(command)
    def with_ids(*args: Any, named: Sequence[str], ids: Sequence[str], **more: Any) -> int:
        if not named and not ids:
            raise click.UsageError("Missing argument 'TASK_ID...'.")
        return command(*args, ids=(*named, *ids), **more)

    option = click.option(
        "--id", "-i", "ids", type=TASK_ID, multiple=True, metavar="ID", help="the same as TASK_ID; may be repeated"
    )
    return option(click.argument("named", type=TASK_ID, nargs=-1, metavar="TASK_ID...")(with_ids))


group_option = click.option(
    "--group", "-g", type=GROUP_NAME, metavar="GROUP", help="the group of the aggregating tasks"
)


def of_group(state: TaskState, group: str | None) -> str | None:
    """Return the group for a state; ``UsageError`` if it is missing or not allowed."""
    if state is TaskState.AGGREGATING and group is None:
        raise click.UsageError("aggregating tasks are in groups: name one with --group; fastq group ls lists them")
    if state is not TaskState.AGGREGATING and group is not None:
        raise click.UsageError(f"--group goes with --state aggregating only, not with {state}")
    return group


@task.verb(
    "ls",
    "list",
    examples=[
        "task ls --queue default --state retry",
        'task ls -q default -s archived --type "mail:*" --error Timeout --since 1h',
        "task ls -q low -s aggregating --group weekly --page 2 --size 100",
    ],
)
@queue_option
@state_option(*STATES)
@group_option
@click.option("--page", type=IntegerRange(1, MAX_PAGE), default=1, show_default=True, metavar="N", help="page number")
@click.option(
    "--size", type=IntegerRange(1, MOST_A_PAGE), default=30, show_default=True, metavar="N", help="tasks per page"
)
@filter_options
@json_option
@pass_session
def ls(session: Session, /, queue: str, state: str, page: int, size: int, as_json: bool, **more: str | None) -> None:
    """List the tasks of a queue in one state, a page at a time, the oldest first.

    With a filter, tasks are read, some hundreds per round trip, until the page is full; pages have only matching tasks.
    HELD shows whether a server has the lease of an active task; tasks without a lease are recovered within a minute.
    """
    known = TaskState(state)
    group = of_group(known, more.pop("group"))
    where = read_filter([known], session.now, **more)
    if where.is_needed:
        found = page_of(_found(session, queue, known, group, where), page, size)
    else:
        found = session.inspector.list_tasks(queue, known, group=group, page=page, page_size=size)
    if as_json:
        emit([task_record(info) for info in found])
    elif not found:
        which = f"on page {page} " if page > 1 else "that match " if where.is_needed else ""
        session.screen.say(f"There are no {known} tasks {which}in {clean(queue)}.")
    else:
        shown = (*COMMON, *BY_STATE[known])
        rows = ([show(info, session.now) for _, show in shown] for info in found)
        table(session.screen, [column for column, _ in shown], rows)


def _found(session: Session, queue: str, state: TaskState, group: str | None, where: TaskFilter) -> Iterator[TaskInfo]:
    """Iterate over all tasks in a state, and show the progress on a terminal."""
    with Look(session.notes) as look:
        yield from session.inspector.find_tasks(queue, state, where, group=group, progress=look.note)


@task.verb(
    "inspect",
    examples=["task inspect --queue default 9f1c", "task inspect -q default -i 9f1c -i 77ab --json"],
    exits=EXITS_OF_MANY,
)
@queue_option
@ids_option
@json_option
@pass_session
def inspect(session: Session, queue: str, ids: Sequence[str], as_json: bool) -> int:
    """Describe tasks, with their payloads, results and last failed attempts."""

    def tell(task_id: str) -> Record | None:
        info = session.inspector.get_task_info(queue, task_id)
        attempts = session.inspector.get_failed_attempts(queue, task_id)
        locks = session.inspector.get_task_locks(queue, task_id)
        if as_json:
            attempt_records = list(map(attempt_record, attempts))
            return {**task_record(info), "locks": locks_record(locks), "failed_attempts": attempt_records}
        now = session.now
        pairs = [*task_facts(info, now), *lock_facts(locks, now), *attempt_facts(attempts, now)]
        pairs.append(("Payload", payload_text(info.payload)))
        if info.result is not None:
            pairs.append(("Result", payload_text(info.result)))
        facts(session.screen, [(name, text) for name, text in pairs if text])
        heading, lines = last_traceback(attempts)
        if lines:
            session.screen.say("\n  ".join([heading, *lines]))
        session.screen.say()
        return None

    return tell_each(session, ids, tell, as_json=as_json)


_ENDS: Final = {"archive": "archived", "delete": "deleted for good"}


@task.verb(
    "cancel",
    examples=["task cancel 9f1c", "task cancel 9f1c --queue default --outcome archive --yes"],
    exits=EXITS_OF_MANY,
)
@click.argument("ids", type=TASK_ID, nargs=-1, required=True, metavar="TASK_ID...")
@click.option("--queue", "-q", type=QueueName(), metavar="QUEUE", help="the queue, if several queues have the id")
@click.option(
    "--outcome",
    type=click.Choice(["retry", "archive", "delete"]),
    help="how the canceled tasks end; Go servers always retry",
)
@yes_option
@json_option
@pass_session
def cancel(
    session: Session, ids: Sequence[str], queue: str | None, outcome: str | None, yes: bool, as_json: bool
) -> int:
    """Ask the servers that run tasks to stop them. Servers do not answer, so the outcome is not known."""
    if outcome in _ENDS:
        where = "any queue" if queue is None else clean(queue)
        listed = ", ".join(map(clean, ids))
        confirm(f"{listed} in {where} will be stopped and {_ENDS[outcome]}.", yes=yes)
    act = partial(session.inspector.cancel_processing, outcome=outcome, queue=queue)
    return Acting(session, as_json=as_json).each(ids, act, "Asked the servers to stop {}.").end()


@task.verb("run", examples=["task run --queue default 77ab"], exits=EXITS_OF_MANY)
@queue_option
@ids_option
@json_option
@pass_session
def run(session: Session, queue: str, ids: Sequence[str], as_json: bool) -> int:
    """Move waiting, archived or completed tasks to pending."""
    act = partial(session.inspector.run_task, queue)
    return Acting(session, as_json=as_json).each(ids, act, "{} is pending.").end()


@task.verb("archive", examples=["task archive --queue default 77ab"], exits=EXITS_OF_MANY)
@queue_option
@ids_option
@json_option
@pass_session
def archive(session: Session, queue: str, ids: Sequence[str], as_json: bool) -> int:
    """Move tasks that are not active to the archive."""
    act = partial(session.inspector.archive_task, queue)
    return Acting(session, as_json=as_json).each(ids, act, "{} is archived.").end()


@task.verb("delete", "remove", "rm", examples=["task delete --queue default 77ab --yes"], exits=EXITS_OF_MANY)
@queue_option
@ids_option
@yes_option
@json_option
@pass_session
def delete(session: Session, queue: str, ids: Sequence[str], yes: bool, as_json: bool) -> int:
    """Delete tasks that are not active."""
    found: list[TaskInfo] = []
    acting = Acting(session, as_json=as_json)
    acting.look(ids, lambda task_id: found.append(session.inspector.get_task_info(queue, task_id)))
    if not found:
        return acting.end()
    listed = ", ".join(f"{clean(info.id)} ({info.state}, {clean(info.type)})" for info in found)
    confirm(f"This deletes from {clean(queue)} for good: {listed}.", yes=yes)
    act = partial(session.inspector.delete_task, queue)
    return acting.each([info.id for info in found], act, "{} is deleted.").end()


for _name, _place, *_aliases in (
    ("enqueue", "fastq.cli.task_enqueue:enqueue"),
    ("retry", "fastq.cli.task_retry:retry"),
    ("run-all", "fastq.cli.task_bulk:run_all", "runall"),
    ("archive-all", "fastq.cli.task_bulk:archive_all", "archiveall"),
    ("delete-all", "fastq.cli.task_bulk:delete_all", "deleteall"),
    ("export", "fastq.cli.task_export:export"),
    ("import", "fastq.cli.task_import:import_tasks"),
    ("tail", "fastq.cli.task_tail:tail"),
):
    task.add(_name, _place, *_aliases)
