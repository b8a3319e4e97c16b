"""``fastq server``: lists the running servers of Go and fastq; ``server_control`` has stop and quiet."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from fastq.cli.commands import Noun
from fastq.cli.parameters import json_option
from fastq.cli.server_names import short_ids
from fastq.cli.session import Session, emit, pass_session
from fastq.cli.tables import Cell, Column, table
from fastq.inspector import ServerInfo
from fastq.inspector.json_records import server_record
from fastq.text.human import clean, when
from fastq.text.places import places_of

_EPILOG: Final = """\b
Examples:
  fastq server ls
  fastq server quiet aeea
  fastq server stop --all --yes"""

server = Noun("server", help="List, quiet and stop servers.", epilog=_EPILOG)

COLUMNS = (
    Column("ID"),
    Column("HOST"),
    Column("PID", right=True),
    Column("STATE"),
    Column("ACTIVE", right=True),
    Column("QUEUES", cut=True),
    Column("STARTED"),
)


@server.verb("ls", "list", examples=["server ls", "server ls --json"])
@json_option
@pass_session
def ls(session: Session, as_json: bool) -> None:
    """List the servers that are running, how much of their concurrency is used, and which queues they serve.

    A server that has died is listed for about ten more seconds.
    """
    servers = session.inspector.servers()
    if as_json:
        emit([server_record(info) for info in servers])
    elif not servers:
        session.screen.say("There are no servers running.")
    else:
        table(session.screen, COLUMNS, server_rows(servers, session.now))


def server_rows(servers: Sequence[ServerInfo], now: datetime) -> list[list[str]]:
    """Return the rows of servers for a table with ``COLUMNS``."""
    ids = short_ids(servers)
    return [[clean(ids[info.id]), *_row(info, now)] for info in servers]


def _row(info: ServerInfo, now: datetime) -> list[str]:
    queues = sorted(info.queues.items(), key=lambda item: (-item[1], item[0]))
    places = places_of([info])
    weights = " ".join(f"{clean(name)}:{weight}" for name, weight in queues)
    return [
        clean(info.host),
        str(info.pid),
        Cell(clean(info.status), "green" if info.status == "active" else "yellow"),
        ", ".join(f"{busy}/{size}{f' {kind}' if len(places) > 1 else ''}" for kind, busy, size in places),
        f"{weights} (strict)" if info.strict_priority else weights,
        when(info.started, now),
    ]


server.add("quiet", "fastq.cli.server_control:quiet")
server.add("stop", "fastq.cli.server_control:stop")
