"""``fastq dash``: the shell command; Textual is imported only here, and only when the dashboard runs."""

import sys
from typing import Final

import click

from fastq.cli.commands import Verb
from fastq.cli.parameters import Parsed, QueueName
from fastq.cli.session import Session, pass_session
from fastq.common.extras import import_extra
from fastq.common.times import read_duration
from fastq.errors import QueueNotFoundError

APP: Final = "fastq.cli.dash.dashboard"
LEAST_S: Final = 1.0


def _seconds(text: str) -> float:
    seconds = read_duration(text)
    if seconds < LEAST_S:
        raise ValueError(f"{text!r} is less than {LEAST_S:g}s")
    return seconds


@click.command("dash", cls=Verb, examples=["dash", "dash --queue default --refresh 2s --read-only"])
@click.option(
    "--refresh",
    default="8s",
    show_default=True,
    metavar="DURATION",
    type=Parsed("duration", _seconds),
    help="how often to refresh: seconds, or 1m30s; at least 1s",
)
@click.option("--read-only", is_flag=True, help="forbid all changes")
@click.option("--queue", "-q", type=QueueName(), metavar="QUEUE", help="begin with the tasks of this queue")
@pass_session
def dash(session: Session, refresh: float, read_only: bool, queue: str | None) -> int:
    """Show a live dashboard of queues, tasks, servers, schedulers and Redis in the terminal.

    Keys are asynq's; ? shows them. Actions that change something ask first. Needs fastq-worker[dash].
    """
    text = "the dashboard needs Textual; install it: pip install 'fastq-worker[dash]'"
    app = import_extra(APP, ["textual", "rich"], text)  # the import takes 0.2 s, which no other command should pay
    names = session.inspector.queues()
    if queue is not None and queue not in names:
        raise QueueNotFoundError(queue)
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise click.UsageError("the dashboard needs a terminal; fastq stats does not")
    code: int = app.run(app.Options(session.url, refresh, read_only, queue))
    return code
