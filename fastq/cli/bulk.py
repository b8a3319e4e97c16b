"""What destructive commands share: they ask, show how far they are, and stop without harm when they are interrupted.

A signal is noted, and acted on between two pieces of work: each piece is done wholly or not at all.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from fastq.broker.operation import Flow
from fastq.cli.human import number
from fastq.cli.pieces import count_tasks, watched
from fastq.cli.progress import StatusLine
from fastq.cli.session import Session, say_failure
from fastq.demo.interruption import Interrupted, Interruption
from fastq.errors import BrokerError, FastqError

__all__ = ["EXIT_SIGNAL", "Progress", "carry_out", "confirm", "looking", "yes_option"]

T = TypeVar("T")

EXIT_SIGNAL: Final = 128

yes_option = click.option("--yes", "-y", is_flag=True, help="do not ask")


def confirm(what: str, *, yes: bool) -> None:
    """Say what will be done, and end the command unless the answer is yes; where nobody answers it is misuse."""
    if yes:
        return
    click.echo(f"{what} Go on? [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline() if sys.stdin else ""  # None where it was closed before the command began
    if not answer:
        click.echo(err=True)
        raise click.UsageError("nobody answered, so nothing was done; --yes does it without asking")
    if answer.strip().lower() not in ("y", "yes"):
        say_failure("nothing was done")
        click.get_current_context().exit(1)


@contextmanager
def looking() -> Iterator[None]:
    """Be a look at tasks before anything is done to them; an interruption ends the command, and says so."""
    try:
        yield
    except KeyboardInterrupt:
        say_failure("interrupted: nothing was done")
        click.get_current_context().exit(EXIT_SIGNAL + signal.SIGINT)


class Progress:
    """Count the tasks that are done, and show it on a terminal, some times a second."""

    def __init__(self, session: Session, done: str, total: int) -> None:
        self._line = StatusLine(session.notes)
        self._done = done
        self._total = total
        self._count = 0

    def __str__(self) -> str:
        return f"{self._done} {number(self._count)} of {number(self._total)} tasks"

    def note(self, result: Any) -> None:
        """Count what an operation did, if it is one that does something to tasks."""
        self._count += count_tasks(result)
        if self._count:
            self._line.show(self)

    def clear(self) -> None:
        """Take the line away."""
        self._line.clear()


def carry_out(session: Session, flow: Flow[T], progress: Progress) -> T:
    """Drive a flow to its end; when it is interrupted say how far it came, and end the command with 128 + signal.

    An error of Redis is raised with how far it came.
    """
    with Interruption() as interruption:
        try:
            return session.broker.drive(watched(flow, progress.note, interruption.check))
        except Interrupted as interrupted:
            say_failure(f"interrupted: {progress}; the rest is as it was")
            code = EXIT_SIGNAL + interrupted.signum
        except BrokerError as error:
            raise FastqError(f"{progress}, then: {error}") from error
        finally:
            progress.clear()
    click.get_current_context().exit(code)
