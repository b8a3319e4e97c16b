"""``fastq group``: lists the groups of a queue."""

from typing import Final

from fastq.cli.commands import Noun
from fastq.cli.parameters import json_option, queue_option
from fastq.cli.session import Session, emit, pass_session
from fastq.cli.tables import Column, table
from fastq.errors import QueueNotFoundError
from fastq.text.human import clean, number

_EPILOG: Final = """\b
Examples:
  fastq group ls --queue low"""

group = Noun("group", help="List the groups of tasks that are aggregated into one.", epilog=_EPILOG)


@group.verb("ls", "list", examples=["group ls --queue low"])
@queue_option
@json_option
@pass_session
def ls(session: Session, queue: str, as_json: bool) -> None:
    """List the groups of a queue, and how many tasks wait in each."""
    groups = session.inspector.groups(queue)
    if not groups and queue not in session.inspector.queues():
        raise QueueNotFoundError(queue)
    if as_json:
        emit([{"group": info.group, "size": info.size} for info in groups])
    elif not groups:
        session.screen.say(f"There are no groups in {clean(queue)}.")
    else:
        rows = [(clean(info.group), number(info.size)) for info in groups]
        table(session.screen, [Column("GROUP"), Column("SIZE", right=True)], rows)
