"""The filters of ``fastq task ls``: by type, by error, and by the time since a failure or completion."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from fastq.cli.parameters import type_option
from fastq.common.states import TaskState
from fastq.common.times import read_duration, read_time
from fastq.info import TaskInfo
from fastq.inspector.filters import TaskFilter
from fastq.text.human import clean, stamp

F = TypeVar("F", bound=Callable[..., Any])


def filter_options(command: F) -> F:
    """Give a command the filters."""
    since = "only tasks that failed or completed since: 1h30m ago, or an RFC 3339 time"
    command = click.option("--error", metavar="REGEX", help="only tasks whose last error matches")(command)
    return type_option(click.option("--since", metavar="TIME", help=since)(command))


def read_filter(
    states: Iterable[TaskState],
    now: datetime,
    *,
    type: str | None = None,
    since: str | None = None,
    error: str | None = None,
) -> TaskFilter:
    """Read the filter options; ``UsageError`` names a bad option."""
    try:
        where = TaskFilter(type, error, None if since is None else _moment(since, now))
        where.check(states)
    except ValueError as flaw:
        raise click.UsageError(f"--{flaw}") from None
    return where


def page_of(infos: Iterable[TaskInfo], page: int, size: int) -> list[TaskInfo]:
    """Return one page of tasks, each task once; no more tasks than needed are read. Of earlier pages, only the ids are
    kept in memory.
    """
    start, end = (page - 1) * size, page * size
    seen: set[str] = set()
    found: list[TaskInfo] = []
    for info in infos:
        if info.id in seen:
            continue
        seen.add(info.id)
        if len(seen) > start:
            found.append(info)
        if len(seen) == end:
            break
    return found


def filter_text(where: TaskFilter) -> str:
    """Return a description of the filter that follows the word "tasks"; empty if the filter selects all tasks."""
    words = [
        f"of type {clean(where.type)}" if where.type is not None else "",
        f"whose error matches {clean(where.error.pattern)}" if isinstance(where.error, re.Pattern) else "",
        f"since {stamp(where.since)}" if isinstance(where.since, datetime) else "",
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
