"""The app's hooks that belong to a task: error_handler, is_failure, retry_delay; run in the child that ran the task.

The order is asynq's: the error handler sees every error; a revoked task asks no more; one that will not be retried
asks nothing either; else is_failure, then retry_delay. A hook that raises is logged and stands for its default.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from fastq.durations import nanoseconds_of
from fastq.errors import RevokeTask, SkipRetry
from fastq.mux import ServeMux
from fastq.worker.names import AppNameError, resolve
from fastq.worker.report import FailureReport, describe_error
from fastq.worker.running import RunningTask

__all__ = ["ChildHooks", "Hooks", "caused_by", "child_hooks_of", "resolve_hook"]

ErrorHandler: TypeAlias = Callable[[RunningTask, BaseException], object]
IsFailure: TypeAlias = Callable[[BaseException], bool]
ChildHooks: TypeAlias = tuple[Sequence[Callable[[], object]], Sequence[Callable[[], object]]]
RetryDelay: TypeAlias = Callable[[int, BaseException, RunningTask], float | timedelta]

HOOK_ERRORS = (Exception, SystemExit)
"""What a hook may raise without harm to its task; the end of the task's time is none of it."""

_log = logging.getLogger("fastq.worker")


@dataclass(frozen=True, slots=True)
class Hooks:
    """Hold the app's hooks; None for the default."""

    error_handler: ErrorHandler | None = None
    is_failure: IsFailure | None = None
    retry_delay: RetryDelay | None = None

    @classmethod
    def named(cls, **names: str | None) -> "Hooks":
        """Import hooks by name; ``AppNameError`` for what is not callable."""
        return cls(**{hook: resolve_hook(hook, name) for hook, name in names.items() if name})  # type: ignore[arg-type]  # what it takes shows when it is called

    def report(self, task: RunningTask, error: BaseException) -> FailureReport:
        """Describe a failure, and let the hooks decide what follows from it."""
        text = describe_error(error)
        self._tell(task, error)
        will_not_retry = task.retried >= task.max_retry or caused_by(error, SkipRetry)
        if caused_by(error, RevokeTask) or will_not_retry:
            return FailureReport(text)
        return FailureReport(text, self._counts(error), self._delay_s(task, error))

    def report_lost(self, task: RunningTask, error: BaseException) -> FailureReport:
        """Describe a task that was lost with its server: no failure of its own, so only its delay is asked for."""
        return FailureReport(describe_error(error), is_failure=False, retry_in_s=self._delay_s(task, error))

    def _tell(self, task: RunningTask, error: BaseException) -> None:
        if self.error_handler is not None:
            try:
                self.error_handler(task, error)
            except HOOK_ERRORS:
                _log.exception("error_handler raised; task %s", task.id)

    def _counts(self, error: BaseException) -> bool:
        if self.is_failure is None:
            return True
        try:
            return bool(self.is_failure(error))
        except HOOK_ERRORS:
            _log.exception("is_failure raised; the error counts as a failure")
            return True

    def _delay_s(self, task: RunningTask, error: BaseException) -> float | None:
        if self.retry_delay is None:
            return None
        try:
            delay = self.retry_delay(task.retried, error, task)
            return max(0.0, nanoseconds_of(delay, name="retry_delay") / 1e9)
        except HOOK_ERRORS:
            _log.exception("retry_delay failed; the default delay is used")
            return None


def caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    """Tell whether an error is of a kind, or was raised from one that is."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:  # "raise error from error" makes a circle
        if isinstance(cause, kind):
            return True
        seen.add(id(cause))
        cause = cause.__cause__
    return False


def child_hooks_of(app: str | None) -> ChildHooks:
    """Return what the app's mux has for the start and the end of a child; nothing without an app."""
    mux = resolve(app) if app else None
    return mux.child_hooks() if isinstance(mux, ServeMux) else ((), ())


def resolve_hook(hook: str, name: str) -> Callable[..., object]:
    """Import a hook by name; ``AppNameError`` when it is not callable."""
    found = resolve(name)
    if not callable(found):
        raise AppNameError(f"{hook}={name!r} is not callable: {found!r}")
    return found
