"""``fastq leave``: deletes fastq's own keys, for users who continue with Go's asynq alone."""

import click

from fastq.cli.commands import Verb
from fastq.cli.parameters import json_option
from fastq.cli.session import Session, emit, pass_session
from fastq.cli.tables import Column, table
from fastq.text.human import number


@click.command("leave", cls=Verb, examples=["leave", "leave --yes"])
@click.option("--yes", "-y", is_flag=True, help="delete them  [default: only count them]")
@json_option
@pass_session
def leave(session: Session, yes: bool, as_json: bool) -> None:
    """Count the keys of fastq's own, which Go's asynq does not know; with --yes delete them.

    Queues and tasks do not change. All keys of Redis are scanned, in chunks. Nothing is deleted while a server or
    scheduler of fastq runs, since it would write such keys again.
    """
    kinds = session.inspector.own_keys()
    count = session.inspector.delete_own_keys() if yes else sum(kinds.values())
    own = f"{number(count)} key{'' if count == 1 else 's'} of fastq's own"
    if as_json:
        emit({"count": count, "deleted": yes, "kinds": kinds})
        return
    if kinds:
        rows = [(kind, number(found)) for kind, found in kinds.items()]
        table(session.screen, [Column("KIND"), Column("KEYS", right=True)], rows)
        session.screen.say()
    if yes:
        session.screen.say(f"Deleted {own}. Queues and tasks are as they were.")
    elif kinds:
        session.screen.say(f"fastq leave --yes deletes {own}. Queues and tasks stay.")
    else:
        session.screen.say("There are no keys of fastq's own.")
