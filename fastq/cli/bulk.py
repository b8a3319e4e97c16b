"""What destructive commands share: they ask, show how far they are, and stop without harm when they are interrupted.

A signal is noted, and acted on between two pieces of work: each piece is done wholly or not at all.
"""

import sys
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import click

from fastq.broker.inspect_bulk import Taken
from fastq.broker.operation import Flow, Operation, Step
from fastq.cli.human import number
from fastq.cli.progress import StatusLine
from fastq.cli.session import Session, say_failure
from fastq.demo.interruption import Interrupted, Interruption
from fastq.errors import BrokerError, FastqError

__all__ = ["EXIT_SIGNAL", "Progress", "carry_out", "confirm", "yes_option"]

T = TypeVar("T")

EXIT_SIGNAL: Final = 128
PIECES: Final = frozenset({"delete_tasks", "run_tasks", "archive_tasks", "run_chosen", "sweep_queue"})
"""The operations before which work may end: whatever the last one left to be done has been done then."""

yes_option = click.option("--yes", "-y", is_flag=True, help="do not ask")


def confirm(what: str, *, yes: bool) -> None:
    """Say what will be done, and end the command unless the answer is yes; where nobody answers it is misuse."""
    if yes:
        return
    click.echo(f"{what} Go on? [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer:
        click.echo(err=True)
        raise click.UsageError("nobody answered, so nothing was done; --yes does it without asking")
    if answer.strip().lower() not in ("y", "yes"):
        say_failure("nothing was done")
        click.get_current_context().exit(1)


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
        for taken in result if isinstance(result, Sequence) and not isinstance(result, Taken) else (result,):
            if isinstance(taken, Taken):
                self._count += taken.tasks
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
            return session.broker.drive(_watched(flow, progress, interruption))
        except Interrupted as signal:
            say_failure(f"interrupted: {progress}; the rest is as it was")
            code = EXIT_SIGNAL + signal.signum
        except BrokerError as error:
            raise FastqError(f"{progress}, then: {error}") from error
        finally:
            progress.clear()
    click.get_current_context().exit(code)


def _watched(flow: Flow[T], progress: Progress, interruption: Interruption) -> Flow[T]:
    """Be the flow, but stop between two pieces of work once a signal came."""
    try:
        step: Step = next(flow)
        while True:
            if _is_piece(step):
                interruption.check()
            try:
                result = yield step
            except BrokerError as error:
                step = flow.throw(error)
            else:
                progress.note(result)
                step = flow.send(result)
    except StopIteration as end:
        found: T = end.value
        return found


def _is_piece(step: Step) -> bool:
    operations = step if isinstance(step, tuple) else (step,)
    return any(isinstance(operation, Operation) and operation.name in PIECES for operation in operations)
