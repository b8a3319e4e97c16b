"""``fastq task retry``: runs failed tasks again now, single ones or all that match a filter."""

from collections.abc import Sequence
from functools import partial

import click

from fastq.cli.acting import Acting
from fastq.cli.commands import EXITS_OF_MANY, Verb
from fastq.cli.destructive import TO_PENDING, Change, change_many, looking, yes_option
from fastq.cli.parameters import TASK_ID, json_option, queue_option, states_option
from fastq.cli.session import Session, pass_session
from fastq.cli.status_line import Look
from fastq.cli.task_filter import filter_options, filter_text, read_filter
from fastq.inspector.progress import OnProgress
from fastq.inspector.retry import FAILED
from fastq.text.human import clean


@click.command(
    "retry",
    cls=Verb,
    examples=[
        "task retry --queue default --id 77ab",
        "task retry -q default --all --error TimeoutError --since 1h",
        "task retry -q default --all --state archived --yes",
    ],
    exits=EXITS_OF_MANY,
)
@queue_option
@click.option("--id", "-i", "ids", type=TASK_ID, multiple=True, metavar="ID", help="id of a task; may be repeated")
@click.option("--all", "every", is_flag=True, help="all failed tasks, or all that match the filters")
@states_option(FAILED, "only tasks in this state [default: both]")
@filter_options
@yes_option
@json_option
@pass_session
def retry(
    session: Session,
    /,
    queue: str,
    ids: Sequence[str],
    every: bool,
    states: Sequence[str],
    yes: bool,
    **more: str | None,
) -> int:
    """Run failed tasks again now: they go to pending, from retry and from the archive.

    They keep their number of attempts, as with task run. With a filter, all tasks are read first. The number of matches
    is shown. A match that has run and failed again since it was read is left out.
    """
    as_json = bool(more.pop("as_json"))
    known = [state for state in FAILED if state in states or not states]
    if every == bool(ids):
        raise click.UsageError("name tasks with --id, or use --all")
    if ids and (states or any(value is not None for value in more.values())):
        raise click.UsageError("--state, --type, --error and --since go with --all, not with --id")
    if ids:
        run = partial(session.inspector.retry_task, queue)
        return Acting(session, as_json=as_json).each(ids, run, "{} is pending.").end()
    where = read_filter(known, session.now, **more)
    with looking(), Look(session.notes) as look:
        job = session.inspector.plan_retry(queue, states=known, where=where, progress=look.note)
    change = Change(job.done, TO_PENDING, " and ".join(known), f"{clean(queue)} {filter_text(where)}".rstrip())

    def work(note: OnProgress) -> int:
        return session.inspector.carry_out(job, progress=note).done

    change_many(session, change, job.total, work, yes=yes, as_json=as_json)
    return 0
