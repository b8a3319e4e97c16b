"""``fastq outbox``: the shell command; SQLAlchemy is imported only when it runs."""

from contextlib import closing
from typing import Any, Final

import click

from fastq.cli.commands import Verb
from fastq.cli.destructive import EXIT_SIGNAL
from fastq.cli.numbers import NumberRange
from fastq.cli.session import Session, pass_session
from fastq.cli.streams import say_failure
from fastq.client import Client
from fastq.common.extras import import_extra
from fastq.errors import FastqError
from fastq.terminal.interruption import Interrupted, Interruption

RELAY: Final = "fastq.contrib.sqlalchemy.outbox"


@click.command(
    "outbox",
    cls=Verb,
    examples=["outbox postgresql+psycopg://app@db/shop", "outbox sqlite:///shop.db --burst"],
    exits="0 done, and without --burst after a signal; 1 failed, 2 misused, 130 Ctrl-C, 143 SIGTERM",
)
@click.argument("database", envvar="FASTQ_OUTBOX_DATABASE")
@click.option(
    "--interval",
    type=NumberRange(0.01, 3600),
    default=0.5,
    show_default=True,
    metavar="SECONDS",
    help="how often to look for new tasks",
)
@click.option("--burst", is_flag=True, help="end once the outbox is empty; a failure or a full queue ends it, too")
@pass_session
def outbox(session: Session, database: str, interval: float, burst: bool) -> int:
    """Enqueue the tasks of the table fastq_outbox of DATABASE, until a signal.

    DATABASE is a SQLAlchemy URL; it can also be set in $FASTQ_OUTBOX_DATABASE. A task that is already in its queue
    counts as enqueued, so any number of these commands may run, and each may end at any time. Needs
    fastq-worker[sqlalchemy].
    """
    text = "the outbox needs SQLAlchemy: pip install 'fastq-worker[sqlalchemy]'"
    module = import_extra(RELAY, ["sqlalchemy"], text)
    with (
        Client(session.url) as client,
        closing(module.Relay(database, client)) as relay,
        Interruption() as interruption,
    ):
        try:
            _run(session, relay, interruption, None if burst else interval)
        except Interrupted as signal:
            return EXIT_SIGNAL + signal.signum if burst else 0
    return 0


def _run(session: Session, relay: Any, interruption: Interruption, interval_s: float | None) -> None:
    """Relay until a signal, or without an interval until no row is left but those of full queues."""
    failure, total = "", 0
    full: tuple[str, ...] = ()
    while True:
        interruption.check()
        try:
            sent, refused, now_full = relay.run()
        except FastqError as error:
            if interval_s is None:
                raise
            if str(error) != failure:
                failure = str(error)
                say_failure(f"{failure}; trying again every {interval_s:g} s")
            interruption.wait(interval_s)
            continue
        if failure:
            session.notes.say("works again")
            failure = ""
        total += sent
        if now_full != full and interval_s is not None:
            session.notes.say(_waiting(now_full) if now_full else "no queue is full any more")
        full = now_full
        if sent or refused:
            continue
        if interval_s is None:
            session.screen.say(f"{total} tasks enqueued")
            if full:
                raise FastqError(_waiting(full))
            return
        interruption.wait(interval_s)


def _waiting(full: tuple[str, ...]) -> str:
    return f"tasks wait for room in queue {', '.join(map(repr, full))}"
