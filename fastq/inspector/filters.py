"""The selection of tasks by type, by error, and by the time when they failed or were completed."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

from fastq.common.states import TaskState
from fastq.info import TaskInfo

DATED: Final = (TaskState.RETRY, TaskState.ARCHIVED, TaskState.COMPLETED)
"""The states that record when a task failed or was completed."""


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Tasks of a ``type`` (``*`` and ``?`` match as in file names), whose last error matches a regular expression.

    ``since`` selects tasks that failed or were completed since a time, or within a ``timedelta`` before now. ``test``
    is called with a task, and returns whether it matches. A field that is None matches any task.
    """

    type: str | None = None
    error: str | re.Pattern[str] | None = None
    since: datetime | timedelta | None = None
    test: Callable[[TaskInfo], bool] | None = None

    def __post_init__(self) -> None:
        _check_types(self.type, self.error, self.since)
        if isinstance(self.error, str):
            try:
                object.__setattr__(self, "error", re.compile(self.error))
            except re.error as flaw:
                raise ValueError(f"error: {self.error!r} is not a regular expression: {flaw}") from None
        if isinstance(self.since, timedelta):
            try:
                object.__setattr__(self, "since", datetime.now(UTC) - self.since)
            except OverflowError:
                raise ValueError(f"since: {self.since!r} is before the calendar begins") from None
        elif self.since is not None and self.since.utcoffset() is None:
            raise ValueError(f"since must have a time zone, for example datetime.now(UTC), not {self.since!r}")

    @property
    def is_needed(self) -> bool:
        """Whether the filter has any condition."""
        return (self.type, self.since, self.error, self.test) != (None, None, None, None)

    def check(self, states: Iterable[TaskState]) -> None:
        """Refuse ``since`` for states that record no time."""
        if self.since is not None and (undated := [state for state in states if state not in DATED]):
            raise ValueError(f"since goes with {', '.join(DATED)}; {undated[0]} tasks have no such time")

    def wants(self, info: TaskInfo) -> bool:
        """Return whether a task matches."""
        if self.type is not None and not fnmatchcase(info.type, self.type):
            return False
        if isinstance(self.error, re.Pattern) and not self.error.search(info.last_err):
            return False
        if self.test is not None and not self.test(info):
            return False
        if not isinstance(self.since, datetime):
            return True
        moment = info.completed_at if info.state is TaskState.COMPLETED else info.last_failed_at
        return moment is not None and moment >= self.since


def _check_types(type_: object, error: object, since: object) -> None:
    """Refuse values of other types: they would match every task, or fail only at the first task."""
    if not isinstance(type_, str | None):
        raise TypeError(f"type must be a str, not {type_!r}")
    if not isinstance(error.pattern if isinstance(error, re.Pattern) else error, str | None):
        raise TypeError(f"error must be a str or a compiled pattern of str, not {error!r}")
    if not isinstance(since, datetime | timedelta | None):
        raise TypeError(f"since must be a datetime or a timedelta, not {since!r}")
