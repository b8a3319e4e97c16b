"""``fastq queue``: lists, describes, pauses, resumes and removes queues."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import click

from fastq.cli.acting import Acting
from fastq.cli.commands import EXITS_OF_MANY, Noun
from fastq.cli.numbers import IntegerRange
from fastq.cli.parameters import QueueName, json_option
from fastq.cli.session import Record, Session, askable, emit, pass_session, tell_each
from fastq.cli.stats import STATE_COLUMNS, state_counts
from fastq.cli.tables import Cell, Column, facts, heading, table
from fastq.inspector import QueueInfo
from fastq.inspector.checks import MAX_PENDING
from fastq.inspector.fields import QUEUE, Field, faced
from fastq.inspector.json_records import daily_record, queue_record
from fastq.text.fields import text_of
from fastq.text.human import clean, number, share

MOST_DAYS: Final = 90

_EPILOG: Final = """\b
Examples:
  fastq queue inspect critical default
  fastq queue history default --days 30 --json
  fastq queue pause low
  fastq queue rm old --force"""

queue = Noun("queue", help="List, describe, limit, pause, resume, drain, move and remove queues.", epilog=_EPILOG)
queues_argument = click.argument("queues", type=QueueName(), nargs=-1, required=True, metavar="QUEUE...")


@queue.verb("ls", "list", examples=["queue ls", "queue ls --json"])
@json_option
@pass_session
def ls(session: Session, as_json: bool) -> None:
    """List the names of all queues; of a cluster also where each is."""
    inspector = session.inspector
    names = inspector.queues()
    if not session.is_cluster:
        if as_json:
            emit([{"queue": name} for name in names])
        else:
            for name in names:
                session.screen.say(clean(name))
        return
    places = [(name, inspector.cluster_key_slot(name), inspector.cluster_nodes(name)) for name in askable(names)]
    if as_json:
        emit(
            [
                {"queue": name, "key_slot": slot, "nodes": [{"id": node.id, "addr": node.addr} for node in nodes]}
                for name, slot, nodes in places
            ]
        )
        return
    table(
        session.screen,
        [Column("QUEUE"), Column("KEY SLOT", right=True), Column("NODES")],
        [(clean(name), str(slot), ", ".join(node.addr for node in nodes)) for name, slot, nodes in places],
    )


@queue.verb("inspect", examples=["queue inspect critical default"], exits=EXITS_OF_MANY)
@queues_argument
@json_option
@pass_session
def inspect(session: Session, queues: Sequence[str], as_json: bool) -> int:
    """Describe queues: what is in them, in which states, and what was done today (UTC)."""

    def tell(name: str) -> Record | None:
        info = session.inspector.get_queue_info(name)
        if as_json:
            return queue_record(info)
        _show(session, info)
        return None

    return tell_each(session, queues, tell, as_json=as_json)


def _show(session: Session, info: QueueInfo) -> None:
    screen = session.screen
    heading(screen, clean(info.queue))
    facts(screen, [(title, _fact(field, info)) for _, title, field in sorted(faced(QUEUE, "facts"))])
    screen.say()
    table(screen, STATE_COLUMNS, [state_counts(info)])
    screen.say()
    counters = [("today (UTC)", info.processed, info.failed), ("in total", info.processed_total, info.failed_total)]
    _show_counters(session, "", counters)
    screen.say()


def _fact(field: Field, info: QueueInfo) -> str:
    text = text_of(field, info)
    return Cell(text, fg="yellow") if field.warns and getattr(info, field.name) else text


def _show_counters(session: Session, title: str, counters: Sequence[tuple[str, int, int]]) -> None:
    table(
        session.screen,
        [Column(title), Column("PROCESSED", right=True), Column("FAILED", right=True), Column("ERRORS", right=True)],
        [(name, number(done), number(failed), share(failed, done)) for name, done, failed in counters],
    )


@queue.verb("history", examples=["queue history default --days 30 --json"], exits=EXITS_OF_MANY)
@queues_argument
@click.option(
    "--days",
    "-x",
    type=IntegerRange(1, MOST_DAYS),
    default=10,
    show_default=True,
    metavar="N",
    help="number of days, including today",
)
@json_option
@pass_session
def history(session: Session, queues: Sequence[str], days: int, as_json: bool) -> int:
    """Show what queues did on each of the last days (UTC), today first; Redis keeps 90 days."""

    def tell(name: str) -> Record | None:
        stats = session.inspector.history(name, days)
        if as_json:
            return {"queue": name, "days": [daily_record(day) for day in stats]}
        heading(session.screen, clean(name))
        _show_counters(session, "DATE", [(f"{day.date}", day.processed, day.failed) for day in stats])
        session.screen.say()
        return None

    return tell_each(session, queues, tell, as_json=as_json)


@queue.verb("pause", examples=["queue pause low", "queue pause next --ahead"], exits=EXITS_OF_MANY)
@queues_argument
@click.option("--ahead", is_flag=True, help="also pause queues that do not exist yet")
@json_option
@pass_session
def pause(session: Session, queues: Sequence[str], ahead: bool, as_json: bool) -> int:
    """Stop servers from taking tasks of queues; running tasks go on."""
    act = partial(session.inspector.pause_queue, ahead=ahead)
    return Acting(session, as_json=as_json).each(queues, act, "Paused {}.").end()


@queue.verb("resume", "unpause", examples=["queue resume low"], exits=EXITS_OF_MANY)
@queues_argument
@json_option
@pass_session
def resume(session: Session, queues: Sequence[str], as_json: bool) -> int:
    """Let servers take tasks from queues again."""
    return Acting(session, as_json=as_json).each(queues, session.inspector.unpause_queue, "Resumed {}.").end()


@queue.verb("limit", examples=["queue limit mail 100000", "queue limit mail --remove"])
@click.argument("name", type=QueueName(), metavar="QUEUE")
@click.argument("max_pending", type=IntegerRange(1, MAX_PENDING), required=False, metavar="[PENDING]")
@click.option("--remove", is_flag=True, help="in place of PENDING: let the queue have any number of tasks")
@json_option
@pass_session
def limit(session: Session, name: str, max_pending: int | None, remove: bool, as_json: bool) -> None:
    """Refuse new tasks while a queue has PENDING pending tasks. All clients of fastq then raise QueueFullError. The
    limit does not apply to scheduled tasks, tasks of lanes and groups, and Go's clients. To limit how many tasks of a
    queue run at once, use fastq lane limit --whole-queue.
    """
    if remove == (max_pending is not None):
        raise click.UsageError("expected PENDING, or --remove in its place")
    session.inspector.set_max_pending(name, max_pending)
    if as_json:
        emit({"queue": name, "max_pending": max_pending})
    else:
        most = "any number of" if max_pending is None else f"at most {number(max_pending)}"
        session.screen.say(f"{clean(name)}: {most} pending tasks.")


queue.add("drain", "fastq.cli.queue_drain:drain")
queue.add("move", "fastq.cli.queue_move:move")
queue.add("rm", "fastq.cli.queue_removal:rm", "remove", "delete")
