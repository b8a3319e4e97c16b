"""``fastq task tail``: follows the events of a queue."""

import fnmatch
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import click

from fastq.cli.commands import Verb
from fastq.cli.numbers import NumberRange
from fastq.cli.parameters import json_option, queue_option, states_option, type_option
from fastq.cli.session import Session, pass_session
from fastq.cli.stats import STATE_COLOURS
from fastq.cli.streams import check_reader
from fastq.common.states import TaskState
from fastq.inspector import TaskEvent
from fastq.inspector.json_records import follow_record
from fastq.text.human import clean, number

_WIDTH: Final = max(map(len, ("scheduled", "completed")))


@click.command(
    "tail",
    cls=Verb,
    examples=["task tail --queue default", 'task tail -q default --state retry --type "mail:*" --json'],
    exits="1 failed, 2 misused, 130 ended by Ctrl-C",
)
@queue_option
@type_option
@states_option(TaskState, "only tasks that enter this state; may be repeated; finished tasks count as completed")
@click.option(
    "--interval",
    type=NumberRange(0.05, 3600),
    default=0.5,
    show_default=True,
    metavar="SECONDS",
    help="how often to read the queue",
)
@json_option
@pass_session
def tail(session: Session, queue: str, type: str | None, states: Sequence[str], interval: float, as_json: bool) -> None:
    """Follow the events of a queue until Ctrl-C; with --json one object a line.

    Redis has no stream of events, so the queue is read twice a second: the last 200 ids of each state, and 200 tasks.
    That takes Redis about a millisecond, however big the queue is. A task that was enqueued and done between two
    readings is not seen, but its run is counted ("missed"). If over 200 tasks are scheduled, retrying or completed,
    only tasks that were seen before are reported. Tasks of groups are reported after their aggregation.
    """
    wanted = frozenset(map(TaskState, states))
    for event in session.inspector.follow(queue, interval=interval, progress=lambda now: check_reader()):
        if _is_wanted(event, type, wanted):
            _tell(session, event, as_json=as_json)


def _is_wanted(event: TaskEvent, pattern: str | None, states: frozenset[TaskState]) -> bool:
    if event.name == "missed":
        return True
    if pattern is not None and not fnmatch.fnmatchcase(event.type, pattern):
        return False
    state = TaskState.COMPLETED if event.name == "done" else event.state
    return not states or state in states


def _tell(session: Session, event: TaskEvent, *, as_json: bool) -> None:
    now = datetime.now(UTC)
    if as_json:
        click.echo(json.dumps(follow_record(event, now)))
        return
    at = session.screen.paint(now.strftime("%H:%M:%S"), dim=True)
    if event.name == "missed":
        runs = "run" if event.runs == 1 else "runs"
        session.screen.say(f"{at}  {'missed':{_WIDTH}}  {number(event.runs)} {runs} ended unseen")
        return
    colour = STATE_COLOURS.get(event.state) if event.state else None
    name = session.screen.paint(f"{event.name:{_WIDTH}}", fg=colour)
    error = f"  {clean(event.error)}" if event.error else ""
    session.screen.say(f"{at}  {name}  {clean(event.id)}  {clean(event.type)}{error}")
