"""``fastq task retry``: runs failed tasks again now, those that are named or all whose failure matches."""

import time
from collections.abc import Sequence
from typing import Final

import click

from fastq.broker.inspect.bulk import Source
from fastq.broker.inspect.tasks import container
from fastq.broker.inspect.walk import Chosen, run_chosen, run_some
from fastq.broker.operation import Flow
from fastq.cli.acting import Acting, acted_record
from fastq.cli.bulk import Progress, carry_out, confirm, looking, yes_option
from fastq.cli.commands import EXITS_OF_MANY, TaskId, Verb, json_option, queue_option, state_choice
from fastq.cli.human import clean, number
from fastq.cli.progress import Look
from fastq.cli.session import Session, emit, pass_session
from fastq.cli.task_filter import Filter, filter_options
from fastq.cli.task_walk import walked
from fastq.errors import TaskStateError
from fastq.inspector.bulk import run_all_tasks
from fastq.inspector.queues import require_queue
from fastq.states import TaskState

__all__ = ["retry"]

_FAILED: Final = (TaskState.RETRY, TaskState.ARCHIVED)


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
@click.option("--id", "-i", "ids", type=TaskId(), multiple=True, metavar="ID", help="a task's id; may be repeated")
@click.option("--all", "every", is_flag=True, help="all failed tasks, or those that the filters leave")
@click.option(
    "--state",
    "-s",
    "states",
    type=state_choice(*_FAILED),
    multiple=True,
    help="only tasks in this state [default: both]",
)
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

    They keep how often they were tried, as with task run. With a filter all tasks are read first, and it is said how
    many match; one that changes before its turn comes, since it ran and failed again, is left out.
    """
    as_json = bool(more.pop("as_json"))
    known = [state for state in _FAILED if state in states or not states]
    if every == bool(ids):
        raise click.UsageError("name tasks with --id, or say --all")
    if ids and (states or any(value is not None for value in more.values())):
        raise click.UsageError("--state, --type, --error and --since go with --all, not with --id")
    if ids:
        return _retry_named(session, queue, ids, as_json=as_json)
    wanted = [Filter.of(state, session.now, **more) for state in known]
    sources = [Source(queue, container(queue, state), state) for state in known]
    session.broker.drive(require_queue(queue))
    if wanted[0].is_needed:
        with looking():
            chosen = _choose(session, sources, wanted)
        count, flow = sum(map(len, chosen)), _run_chosen(sources, chosen)
    else:
        count = sum(session.broker.run(source.size()) for source in sources)
        flow = _run_all(sources)
    what = _Words(queue, " and ".join(known), wanted[0].text)
    _apply(session, what, count, flow, yes=yes, as_json=as_json)
    return 0


def _retry_named(session: Session, queue: str, ids: Sequence[str], *, as_json: bool) -> int:
    def act(task_id: str) -> str:
        now_ns = time.time_ns()
        for state in _FAILED:
            source = Source(queue, container(queue, state), state)
            taken = session.broker.run(run_some(source, [Chosen(task_id.encode())], now_ns))
            if taken.tasks:
                return f"{clean(task_id)} is pending."
        raise TaskStateError(queue, task_id, "retry", session.inspector.get_task_info(queue, task_id).state.value)

    return Acting(session, as_json=as_json).each(ids, act).end()


class _Words:
    """Write which tasks are meant."""

    def __init__(self, queue: str, states: str, filter_text: str) -> None:
        self._states = states
        self._rest = f" of {clean(queue)}{f' {filter_text}' if filter_text else ''}"

    def tasks(self, count: int) -> str:
        return f"{number(count) if count else 'no'} {self._states} task{'' if count == 1 else 's'}{self._rest}"


def _apply(session: Session, what: _Words, count: int, flow: Flow[int], *, yes: bool, as_json: bool) -> None:
    if not count:
        if as_json:
            emit(acted_record(0, {}))
        else:
            session.screen.say(f"There are {what.tasks(0)}.")
        return
    confirm(f"{what.tasks(count)} will be pending, and run as soon as servers get to them.", yes=yes)
    done = carry_out(session, flow, Progress(session, "made pending", count))
    if as_json:
        emit(acted_record(done, {}))
    else:
        session.screen.say(f"{what.tasks(done)} made pending.")


def _choose(session: Session, sources: Sequence[Source], wanted: Sequence[Filter]) -> list[list[Chosen]]:
    """Read all tasks, and keep those that are wanted, as they were then: about 150 bytes each."""
    look = Look(session.notes, sum(session.broker.run(source.size()) for source in sources))
    try:
        return [
            [Chosen.of(task) for task, info in walked(session, source, look) if each.wants(info)]
            for source, each in zip(sources, wanted, strict=True)
        ]
    finally:
        look.clear()


def _run_chosen(sources: Sequence[Source], chosen: Sequence[Sequence[Chosen]]) -> Flow[int]:
    moved = 0
    for source, some in zip(sources, chosen, strict=True):
        moved += yield from run_chosen(source, some, time.time_ns())
    return moved


def _run_all(sources: Sequence[Source]) -> Flow[int]:
    moved = 0
    for source in sources:
        moved += yield from run_all_tasks(source.queue, source.state, None, time.time_ns())
    return moved
