"""The app's hooks for failed tasks."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from fastq.running import RunningTask

ErrorHandler: TypeAlias = Callable[[RunningTask, BaseException], object]
IsFailure: TypeAlias = Callable[[BaseException], bool]
RetryDelay: TypeAlias = Callable[[int, BaseException, RunningTask], float | timedelta]


@dataclass(frozen=True, slots=True)
class Hooks:
    """The app's hooks, as ``ServerConfig`` names them for a server; None means the default.

    ``error_handler(task, error)`` is called for every error. ``is_failure(error)`` says whether an error counts as an
    attempt. ``retry_delay(retried, error, task)`` returns the seconds until the next attempt.
    """

    error_handler: ErrorHandler | None = None
    is_failure: IsFailure | None = None
    retry_delay: RetryDelay | None = None


class FailureRule(NamedTuple):
    """A typed task's rule for its failures; ``delay`` is called instead of the ``retry_delay`` hook.

    The rule decides about errors of the classes in ``judges``; other errors are retried. ``names`` are the names by
    which users know ``retry_on`` and ``dont_retry_on``.
    """

    retry_on: tuple[type[BaseException], ...]
    dont_retry_on: tuple[type[BaseException], ...]
    delay: Callable[[int], float | timedelta] | None
    judges: tuple[type[BaseException], ...] = (Exception,)
    names: tuple[str, str] = ("retry_on", "dont_retry_on")

    def retries(self, error: BaseException) -> bool:
        """Return whether the rule allows another attempt after this error."""
        return isinstance(error, self.retry_on) and not isinstance(error, self.dont_retry_on)
