"""The app's hooks that belong to a task: what a server asks about a task that failed."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from fastq.running import RunningTask

__all__ = ["ErrorHandler", "Hooks", "IsFailure", "RetryDelay"]

ErrorHandler: TypeAlias = Callable[[RunningTask, BaseException], object]
IsFailure: TypeAlias = Callable[[BaseException], bool]
RetryDelay: TypeAlias = Callable[[int, BaseException, RunningTask], float | timedelta]


@dataclass(frozen=True, slots=True)
class Hooks:
    """The app's hooks, as ``ServerConfig`` names them for a server; None stands for the default.

    ``error_handler(task, error)`` is called for every error. ``is_failure(error)`` says whether an error counts as an
    attempt. ``retry_delay(retried, error, task)`` returns the seconds until the next attempt.
    """

    error_handler: ErrorHandler | None = None
    is_failure: IsFailure | None = None
    retry_delay: RetryDelay | None = None
