"""The session of a command: its Redis, its inspector and its output."""

import difflib
import functools
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar

import click

from fastq.cli.connection import redis_url
from fastq.cli.streams import say_failure
from fastq.common.states import TaskState
from fastq.errors import (
    BrokerError,
    FastqError,
    QueueNotEmptyError,
    QueueNotFoundError,
    QueuePausedError,
    TaskNotFoundError,
)
from fastq.inspector import Inspector
from fastq.inspector.checks import check_queue
from fastq.redis_url import is_cluster
from fastq.terminal.screen import Screen

Record: TypeAlias = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")


class Session:
    """One run of a command. ``screen`` writes to stdout, ``notes`` to stderr. Redis is contacted only when needed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.screen = Screen(sys.stdout)
        self.notes = Screen(sys.stderr)
        self.now = datetime.now(UTC)

    @property
    def is_cluster(self) -> bool:
        """Return whether the URL names a cluster."""
        return is_cluster(self.url)

    @functools.cached_property
    def inspector(self) -> Inspector:
        """Open the inspector on first use."""
        return Inspector(self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if "inspector" in self.__dict__:
            self.inspector.close()

    def fail(self, error: FastqError) -> None:
        """Print an error on one line, with advice; for an unknown queue the advice lists similar names."""
        say_failure(f"{error}{self._advice(error)}")

    def _advice(self, error: FastqError) -> str:
        match error:
            case QueueNotFoundError():
                return self._other_queues(error.queue)
            case QueuePausedError():
                return f"; fastq queue resume {error.queue} lets servers take them"
            case QueueNotEmptyError():
                if "moving" in error.sizes:
                    return "; a fastq queue move was interrupted; run it again to finish it"
                is_busy = TaskState.ACTIVE.value in error.sizes
                return (
                    "; wait until the active tasks are done, or cancel them"
                    if is_busy
                    else "; --force also deletes them"
                )
            case TaskNotFoundError():
                return (
                    f"; it may be done and deleted: fastq task ls --queue {error.queue} --state STATE lists the tasks"
                )
        return ""

    def _other_queues(self, queue: str) -> str:
        try:
            names = self.inspector.queues()
        except BrokerError:
            return ""
        if close := difflib.get_close_matches(queue, names, 1):
            return f"; did you mean {close[0]!r}?"
        return "; fastq queue ls lists the existing queues" if names else "; there are no queues here yet"


def pass_session(function: Callable[Concatenate[Session, P], int | None]) -> Callable[P, int]:
    """Give a command its session as the first argument; fastq's errors end it with code 1, a bad value with 2."""

    @functools.wraps(function)
    def run(*args: P.args, **named: P.kwargs) -> int:
        with Session(redis_url(click.get_current_context())) as session:
            try:
                return function(session, *args, **named) or 0
            except FastqError as error:
                session.fail(error)
                return 1
            except (ValueError, TypeError) as error:  # the inspector refused an argument
                raise click.UsageError(str(error)) from None

    return run


def askable(names: Sequence[str]) -> list[str]:
    """Return the queues with valid names, and print a note for others, which any program can add to the list."""
    known = []
    for name in names:
        try:
            known.append(check_queue(name))
        except ValueError as error:
            say_failure(f"skipped: {error}")
    return known


def each(
    session: Session, names: Sequence[str], act: Callable[[str], None], failed: dict[str, str] | None = None
) -> int:
    """Act on each item, and return the exit code. If an item fails, go on with the next, unless Redis is down.
    ``failed`` gets the error of each item that failed.
    """
    code = 0
    for name in dict.fromkeys(names):
        try:
            act(name)
        except BrokerError:
            raise
        except FastqError as error:
            session.fail(error)
            code = 1
            if failed is not None:
                failed[name] = str(error)
    return code


def tell_each(session: Session, names: Sequence[str], tell: Callable[[str], Record | None], *, as_json: bool) -> int:
    """Describe each item, and return the exit code; ``tell`` prints an item, or returns its record for JSON."""
    records: list[Record | None] = []
    code = each(session, names, lambda name: records.append(tell(name)))
    if as_json:
        emit(records)
    return code


def emit(data: Any) -> None:
    """Write a command's result as JSON."""
    click.echo(json.dumps(data, indent=2))
