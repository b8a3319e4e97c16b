"""``fastq cron``: lists periodic tasks, and when they were enqueued."""

from collections.abc import Sequence
from typing import Final

import click

from fastq.cli.commands import EXITS_OF_MANY, Noun
from fastq.cli.numbers import IntegerRange
from fastq.cli.parameters import json_option
from fastq.cli.session import Record, Session, emit, pass_session, tell_each
from fastq.cli.tables import Column, heading, table
from fastq.inspector.checks import MAX_PAGE
from fastq.inspector.json_records import entry_record, event_record
from fastq.text.human import clean, payload_text, stamp, when

_EPILOG: Final = """\b
Examples:
  fastq cron ls
  fastq cron history 21f50a8d-c173-409d-a90c-ffa564248cf7 --size 3"""

cron = Noun("cron", help="List periodic tasks, and when they were enqueued.", epilog=_EPILOG)

MOST_A_PAGE: Final = 1000
_COLUMNS: Final = (
    Column("ENTRY ID"),
    Column("SPEC"),
    Column("QUEUE", cut=True),
    Column("TYPE", cut=True),
    Column("PAYLOAD", cut=True),
    Column("OPTIONS", cut=True),
    Column("NEXT"),
    Column("NEXT AT", rank=1),
    Column("PREV"),
)


@cron.verb("ls", "list", examples=["cron ls"])
@json_option
@pass_session
def ls(session: Session, as_json: bool) -> None:
    """List the periodic tasks of all running schedulers."""
    entries = session.inspector.scheduler_entries()
    if as_json:
        emit([entry_record(entry) for entry in entries])
    elif not entries:
        session.screen.say("There are no schedulers running; fastq scheduler MODULE:APP runs one.")
    else:
        rows = [
            (
                clean(entry.id),
                clean(entry.spec),
                clean(entry.queue) or "?",
                clean(entry.task_type),
                payload_text(entry.task_payload),
                ", ".join(map(clean, entry.enqueue_options)),
                when(entry.next_enqueue_time, session.now),
                stamp(entry.next_enqueue_time),
                when(entry.prev_enqueue_time, session.now),
            )
            for entry in entries
        ]
        table(session.screen, _COLUMNS, rows)


@cron.verb("history", examples=["cron history 21f50a8d-c173-409d-a90c-ffa564248cf7 --size 3"], exits=EXITS_OF_MANY)
@click.argument("entry_ids", nargs=-1, required=True, metavar="ENTRY_ID...")
@click.option("--page", type=IntegerRange(1, MAX_PAGE), default=1, show_default=True, metavar="N", help="page number")
@click.option(
    "--size", type=IntegerRange(1, MOST_A_PAGE), default=30, show_default=True, metavar="N", help="events per page"
)
@json_option
@pass_session
def history(session: Session, entry_ids: Sequence[str], page: int, size: int, as_json: bool) -> int:
    """Show when periodic tasks were enqueued, the latest first; Redis keeps 1,000 times an entry."""

    def tell(entry_id: str) -> Record | None:
        events = session.inspector.list_scheduler_enqueue_events(entry_id, page=page, page_size=size)
        if as_json:
            return {"entry_id": entry_id, "events": [event_record(event) for event in events]}
        heading(session.screen, clean(entry_id))
        if events:
            rows = [(clean(event.task_id), stamp(event.enqueue_time)) for event in events]
            table(session.screen, [Column("TASK ID"), Column("ENQUEUED AT")], rows)
        else:
            session.screen.say("There are no times on this page; they are deleted when the scheduler ends.")
        session.screen.say()
        return None

    return tell_each(session, entry_ids, tell, as_json=as_json)
