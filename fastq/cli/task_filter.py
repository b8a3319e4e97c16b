"""The filters of ``fastq task ls``: by type, by error, by how long ago."""

import fnmatch
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self, TypeVar

import click

from fastq.cli.human import clean, stamp
from fastq.cli.times import read_duration, read_time
from fastq.info import TaskInfo
from fastq.states import TaskState

__all__ = ["Filter", "filter_options"]

F = TypeVar("F", bound=Callable[..., Any])

_DATED: Final = (TaskState.RETRY, TaskState.ARCHIVED, TaskState.COMPLETED)


def filter_options(command: F) -> F:
    """Give a command the filters."""
    for option in (
        click.option("--error", metavar="REGEX", help="those whose last error matches"),
        click.option(
            "--since",
            metavar="TIME",
            help="those that failed, or were completed, since then: 1h30m, or a time of RFC 3339",
        ),
        click.option("--type", metavar="PATTERN", help="those of this type; * and ? match as in file names"),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Filter:
    """Tell which tasks are wanted; None stands for any."""

    type: str | None
    since: datetime | None
    error: re.Pattern[str] | None

    @classmethod
    def of(cls, state: TaskState, now: datetime, *, type: str | None, since: str | None, error: str | None) -> Self:
        """Read the words; ``UsageError`` names what is wrong."""
        if since is not None and state not in _DATED:
            raise click.UsageError(f"--since goes with {', '.join(_DATED)}; of {state} tasks no time is known")
        try:
            pattern = None if error is None else re.compile(error)
        except re.error as flaw:
            raise click.UsageError(f"--error: {error!r} is no regular expression: {flaw}") from None
        return cls(type, None if since is None else _moment(since, now), pattern)

    @property
    def is_needed(self) -> bool:
        """Tell whether there is anything to look at."""
        return (self.type, self.since, self.error) != (None, None, None)

    def wants(self, info: TaskInfo) -> bool:
        """Tell whether a task is wanted."""
        if self.type is not None and not fnmatch.fnmatchcase(info.type, self.type):
            return False
        if self.error is not None and not self.error.search(info.last_err):
            return False
        if self.since is None:
            return True
        moment = info.completed_at if info.state is TaskState.COMPLETED else info.last_failed_at
        return moment is not None and moment >= self.since

    def page(self, infos: Iterable[TaskInfo], page: int, size: int) -> list[TaskInfo]:
        """Return one page of those that are wanted, each once, reading no further than needed.

        Of those on the pages before only the ids are kept.
        """
        start, end = (page - 1) * size, page * size
        seen: set[str] = set()
        found: list[TaskInfo] = []
        for info in infos:
            if info.id in seen or not self.wants(info):
                continue
            seen.add(info.id)
            if len(seen) > start:
                found.append(info)
            if len(seen) == end:
                break
        return found

    @property
    def text(self) -> str:
        """Say in words which tasks are wanted, to stand behind "tasks"; empty for any."""
        words = [
            f"of type {clean(self.type)}" if self.type is not None else "",
            f"whose error matches {clean(self.error.pattern)}" if self.error is not None else "",
            f"since {stamp(self.since)}" if self.since is not None else "",
        ]
        return " ".join(filter(None, words))


def _moment(text: str, now: datetime) -> datetime:
    try:
        return now - timedelta(seconds=read_duration(text))
    except ValueError:
        pass
    except OverflowError:
        raise click.UsageError(f"--since: {text!r} is before the calendar begins") from None
    try:
        return read_time(text)
    except ValueError:
        raise click.UsageError(
            f"--since: {text!r} is neither a duration such as 1h30m nor a time such as 2026-11-21T07:00:00Z"
        ) from None
