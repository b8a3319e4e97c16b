"""The common parts of destructive commands: they ask for confirmation, show progress, and can be interrupted safely.
After a signal, the work ends between two chunks. Each chunk is done completely or not at all.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

import click

from fastq.cli.session import Session, emit
from fastq.cli.status_line import StatusLine
from fastq.cli.streams import say_failure
from fastq.errors import BrokerError, FastqError
from fastq.inspector import Progress
from fastq.inspector.json_records import acted_record
from fastq.inspector.progress import OnProgress
from fastq.terminal.interruption import Interrupted, Interruption
from fastq.text.human import number

T = TypeVar("T")

EXIT_SIGNAL: Final = 128

yes_option = click.option("--yes", "-y", is_flag=True, help="do not ask for confirmation")


def confirm(what: str, *, yes: bool) -> None:
    """Ask for confirmation; any answer except yes ends the command, and a closed input is a usage error."""
    if yes:
        return
    click.echo(f"{what} Go on? [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline() if sys.stdin else ""  # None if stdin was closed before the command started
    if not answer:
        click.echo(err=True)
        raise click.UsageError("there was no answer, so nothing was done; --yes skips the question")
    if answer.strip().lower() not in ("y", "yes"):
        say_failure("nothing was done")
        click.get_current_context().exit(1)


@contextmanager
def looking() -> Iterator[None]:
    """In a block that only reads, end the command at an interrupt with a message that nothing was done."""
    try:
        yield
    except KeyboardInterrupt:
        say_failure("interrupted: nothing was done")
        click.get_current_context().exit(EXIT_SIGNAL + signal.SIGINT)


def carry_out(session: Session, work: Callable[[OnProgress], T], done: str, total: int) -> T:
    """Do work on many tasks and show its progress; a signal ends the work and the command between two chunks. If Redis
    fails, the error also says how many tasks were done.
    """
    line, last = StatusLine(session.notes), Progress()

    def how_far() -> str:
        return f"{done} {number(last.done)} of {number(total)} tasks"

    with Interruption() as interruption:

        def note(now: Progress) -> None:
            nonlocal last
            last = now
            if now.done:
                line.show(how_far())
            if now.done < now.total:  # otherwise it is too late to stop the work
                interruption.check()

        try:
            return work(note)
        except Interrupted as interrupted:
            say_failure(f"interrupted: {how_far()}; the rest is unchanged")
            code = EXIT_SIGNAL + interrupted.signum
        except BrokerError as error:
            raise FastqError(f"{how_far()}, then: {error}") from error
        finally:
            line.clear()
    click.get_current_context().exit(code)


TO_PENDING: Final = "pending, and run as soon as servers get to them"


class Change(NamedTuple):
    """The texts about a change of many tasks: its report, its warning, and the tasks' state and queue."""

    done: str
    warning: str
    state: str
    where: str

    def tasks(self, count: int) -> str:
        """Return a text with the number, state and queue of the tasks."""
        return f"{number(count) if count else 'no'} {self.state} task{'' if count == 1 else 's'} of {self.where}"


def change_many(
    session: Session, change: Change, total: int, work: Callable[[OnProgress], int], *, yes: bool, as_json: bool
) -> None:
    """Ask, change the tasks, and print how many were changed; do not ask if there are none."""
    count = 0
    if total:
        confirm(f"{change.tasks(total)} will be {change.warning}.", yes=yes)
        count = carry_out(session, work, change.done, total)
    if as_json:
        emit(acted_record(count, {}))
    else:
        session.screen.say(f"{change.tasks(count)} {change.done}." if total else f"There are {change.tasks(0)}.")
