"""``fastq queue move``: moves tasks to another queue, so that none is lost and none runs twice."""

import secrets
from collections.abc import Sequence
from typing import Final

import click

from fastq.broker.inspect.bulk import Source
from fastq.broker.inspect.move import count_parked
from fastq.broker.inspect.put import Put
from fastq.broker.inspect.queues import group_sizes
from fastq.broker.inspect.tasks import container
from fastq.broker.inspect.walk import Listed
from fastq.broker.operations.archive_rule import ArchiveFull, read_archive_rule
from fastq.cli.bulk import Progress, carry_out, confirm, yes_option
from fastq.cli.commands import QueueName, Verb, json_option, state_choice
from fastq.cli.human import clean, number
from fastq.cli.session import Session, emit, pass_session, say_failure
from fastq.cli.task_filter import Filter
from fastq.errors import FastqError
from fastq.inspector.move import Move
from fastq.inspector.queues import require_queue
from fastq.inspector.task_lines import describe_listed
from fastq.states import TaskState
from fastq.wire import keys

__all__ = ["move"]

_MOVABLE: Final = (
    TaskState.PENDING,
    TaskState.SCHEDULED,
    TaskState.RETRY,
    TaskState.AGGREGATING,
    TaskState.ARCHIVED,
    TaskState.COMPLETED,
)
_REASONS: Final = {
    Put.ID_CONFLICT: "its id is there already",
    Put.DUPLICATE: "another task there has its unique lock",
}
_BEYOND: Final = {
    ArchiveFull.TRIM: "the next that fails for good there deletes the oldest but {}",
    ArchiveFull.PAUSE: "the next that fails for good there pauses it, as its archive keeps {}",
    ArchiveFull.SPILL: "its servers write the oldest but {} to files",
}


@click.command(
    "move",
    cls=Verb,
    examples=['queue move low bulk --state pending --type "mail:*"', "queue move low bulk --yes --json"],
    exits="0 all are moved, 1 failed, or some had to stay; 2 misused, 130 Ctrl-C, 143 SIGTERM",
)
@click.argument("origin", type=QueueName(), metavar="FROM")
@click.argument("target", type=QueueName(), metavar="TO")
@click.option(
    "--state",
    "-s",
    "states",
    type=state_choice(*_MOVABLE),
    multiple=True,
    help="a state; may be repeated  [default: all but active]",
)
@click.option("--type", metavar="PATTERN", help="those of this type; * and ? match as in file names")
@yes_option
@json_option
@pass_session
def move(session: Session, /, origin: str, target: str, states: Sequence[str], type: str | None, **flags: bool) -> int:
    """Move tasks to another queue, with their ids, states, times and unique locks; active ones stay.

    200 at a time are parked where no server takes them, first in one queue, then in the other. So each is in one of
    them only, whatever happens; what an interrupted move has parked goes on when the same command is run again. A task
    stays, and it is said, if the other queue has its id or another holder of its lock.
    """
    if origin == target:
        raise click.UsageError(f"FROM and TO are both {origin!r}")
    known = [state for state in _MOVABLE if state in states or not states]
    sources = [source for state in known for source in _sources(session, origin, state)]
    total = sum(session.broker.run(source.size()) for source in sources)
    parked = sum(session.broker.run(count_parked(queue)) for queue in (origin, target))
    if not parked:  # else its last tasks may be on their way, and Go's tools may have taken it off the list since
        session.broker.drive(require_queue(origin))
    filtering = Filter(type, None, None)

    def wanted(source: Source, task: Listed) -> bool:
        info = describe_listed(origin, source.state, task, session.now)
        return info is not None and filtering.wants(info)

    moving = Move(origin, target, secrets.token_hex(8), wanted)
    if total or parked:
        if TaskState.ARCHIVED in known:
            _warn_of_a_full_archive(session, origin, target)
        which = f"Those of type {clean(type)} among the" if type is not None else "The"
        what = f"{which} {number(total)} tasks of {clean(origin)} that are {', '.join(known)}"
        confirm(f"{what} will be moved to {clean(target)}.", yes=flags["yes"])
        try:
            carry_out(session, moving.run(sources), Progress(session, "moved", total))
        except FastqError as error:
            raise FastqError(f"{error}; some may be between the queues until the same move is run again") from error
    return _told(session, moving, as_json=flags["as_json"])


def _sources(session: Session, queue: str, state: TaskState) -> list[Source]:
    if state is not TaskState.AGGREGATING:
        return [Source(queue, container(queue, state), state)]
    names = sorted(session.broker.drive(group_sizes(queue)))
    return [Source(queue, keys.group(queue, name), state, name) for name in names]


def _warn_of_a_full_archive(session: Session, origin: str, target: str) -> None:
    found = [Source(queue, container(queue, TaskState.ARCHIVED), TaskState.ARCHIVED) for queue in (origin, target)]
    leaving, there = (session.broker.run(source.size()) for source in found)
    rule = session.broker.run(read_archive_rule(target))
    if leaving and leaving + there > rule.most:
        say_failure(
            f"note: up to {number(leaving + there)} archived tasks will be in {clean(target)}; "
            f"{_BEYOND[rule.full].format(number(rule.most))}"
        )


def _told(session: Session, moving: Move, *, as_json: bool) -> int:
    stayed = sum(moving.stayed.values())
    for task_id, outcome in moving.named:
        say_failure(f"{clean(task_id)} stays in {clean(moving.origin)}: {_REASONS[outcome]}")
    if as_json:
        exists, held = moving.stayed[Put.ID_CONFLICT], moving.stayed[Put.DUPLICATE]
        named = [{"id": task_id, "error": _REASONS[outcome]} for task_id, outcome in moving.named]
        emit({"count": moving.moved, "stayed": {"exists": exists, "lock_held": held}, "failed": named})
    else:
        more = f"; {number(stayed)} had to stay" if stayed else ""
        tasks = "task" if moving.moved == 1 else "tasks"
        session.screen.say(
            f"Moved {number(moving.moved)} {tasks} of {clean(moving.origin)} to {clean(moving.target)}{more}."
        )
    return 1 if stayed else 0
