"""The app's hooks for a task: error_handler, is_failure, retry_delay; they run in the child that ran the task.

The order is asynq's. The error handler sees every error. Then, unless the task is revoked or will not be retried,
is_failure and retry_delay are called. If a hook raises, its error is logged and its default is used.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from fastq.common.callables import refuse_idle
from fastq.common.durations import nanoseconds_of
from fastq.errors import PayloadError, RateLimited, Retry, Snooze
from fastq.hooks import FailureRule, Hooks
from fastq.mux import ServeMux
from fastq.pool.shared.event_kind import DECISIONS
from fastq.running import RunningTask
from fastq.worker.shared.names import AppNameError, resolve
from fastq.worker.shared.report import FailureReport, describe_error

ChildHooks: TypeAlias = tuple[Sequence[Callable[[], object]], Sequence[Callable[[], object]]]

HOOK_ERRORS = (Exception, SystemExit)
"""Exceptions of a hook that do not affect its task; ``TaskTimeout`` does."""

DECIDED = tuple(DECISIONS)
_RUN_AGAIN: Final = (Retry, Snooze)
"""Exceptions with which a handler decides that its task runs again, whatever its rule says."""

_log = logging.getLogger("fastq.worker")


def hooks_named(**names: str | None) -> Hooks:
    """Import hooks by name; raise ``AppNameError`` if one is not callable."""
    found: dict[str, Any] = {hook: resolve_hook(hook, name) for hook, name in names.items() if name}
    return Hooks(**found)


def failure_report(hooks: Hooks, task: RunningTask, error: BaseException) -> FailureReport:
    """Describe a failure, and let the hooks decide what follows."""
    reason = _reason(error)
    text = describe_error(reason)
    if isinstance(error, Snooze):
        why = text.removeprefix(type(error).__name__) if reason is error else f": {text}"
        rests_lane = isinstance(error, RateLimited)
        return FailureReport(f"snoozed (not failed){why}", False, error.after_s, is_snoozed=True, rests_lane=rests_lane)
    _tell(hooks, task, error)
    limit, rule = task._limit, _rule_of(task, error)
    if (final := _why_final(rule, error)) or task.retried >= task.max_retry:
        return FailureReport(text, final=final, max_retry=limit)
    return FailureReport(text, _counts(hooks, error), _delay_s(hooks, task, error, rule), max_retry=limit)


def why_final(task: RunningTask, error: BaseException) -> str:
    """Return why a handler's exception ends its task; "" if it allows a retry, whether or not any retries are left."""
    return _why_final(_rule_of(task, error), error)


def _why_final(rule: FailureRule | None, error: BaseException) -> str:
    if caused_by(error, DECIDED):
        return "its payload does not fit" if isinstance(error, PayloadError) else "SkipRetry was raised"
    if rule is None or isinstance(error, _RUN_AGAIN) or rule.retries(error):
        return ""
    return f"{rule.names[isinstance(error, rule.dont_retry_on)]} of the task excludes this error"


def _rule_of(task: RunningTask, error: BaseException) -> FailureRule | None:
    """Return the failure rule of a task; None if the rule does not apply to such an error, for example a timeout."""
    rule: FailureRule | None = task._rule
    return rule if rule is not None and isinstance(error, rule.judges) else None


def _reason(error: BaseException) -> BaseException:
    """Return the error to report: the cause of ``Retry`` or ``Snooze`` if it has one, else the error itself."""
    return error.__cause__ or error if isinstance(error, _RUN_AGAIN) else error


def lost_report(hooks: Hooks, task: RunningTask, error: BaseException) -> FailureReport:
    """Describe a task that was lost with its server; it did not fail, so only ``retry_delay`` is called."""
    delay_s = _delay_s(hooks, task, error, _rule_of(task, error))
    return FailureReport(describe_error(error), is_failure=False, retry_in_s=delay_s)


def _tell(hooks: Hooks, task: RunningTask, error: BaseException) -> None:
    if hooks.error_handler is not None:
        try:
            hooks.error_handler(task, error)
        except HOOK_ERRORS:
            _log.exception("error_handler raised an exception for task %s", task.id)


def _counts(hooks: Hooks, error: BaseException) -> bool:
    if hooks.is_failure is None:
        return True
    try:
        return bool(hooks.is_failure(error))
    except HOOK_ERRORS:
        _log.exception("is_failure raised an exception; the error counts as a failure")
        return True


def _delay_s(hooks: Hooks, task: RunningTask, error: BaseException, rule: FailureRule | None) -> float | None:
    if isinstance(error, Retry) and error.after_s is not None:
        return error.after_s
    if hooks.retry_delay is None and (rule is None or rule.delay is None):
        return None
    try:
        if rule is not None and rule.delay is not None:
            delay = rule.delay(task.retried)
        else:
            assert hooks.retry_delay is not None
            delay = hooks.retry_delay(task.retried, error, task)
        return max(0.0, nanoseconds_of(delay, name="retry_delay") / 1e9)
    except HOOK_ERRORS:
        _log.exception("retry_delay failed; the default delay is used")
        return None


def caused_by(error: BaseException, kind: type[BaseException] | tuple[type[BaseException], ...]) -> bool:
    """Return whether an error or one of its causes is of a class."""
    if isinstance(error, kind):
        return True
    cause = error.__cause__
    if cause is None:
        return False
    seen = {id(error)}
    while cause is not None and id(cause) not in seen:  # "raise error from error" makes a circle of causes
        if isinstance(cause, kind):
            return True
        seen.add(id(cause))
        cause = cause.__cause__
    return False


def child_hooks_of(app: str | None) -> ChildHooks:
    """Return the functions of the app's mux for the start and the stop of a child, none without an app."""
    mux = resolve(app) if app else None
    return mux.child_hooks() if isinstance(mux, ServeMux) else ((), ())


def resolve_hook(hook: str, name: str) -> Callable[..., object]:
    """Import a hook by name; raise ``AppNameError`` if it is no plain function: nobody would await a coroutine."""
    found = resolve(name)
    if not callable(found):
        raise AppNameError(f"{hook}={name!r} is not callable: {found!r}")
    try:
        refuse_idle(found, f"{hook}={name!r}")
    except TypeError as error:
        raise AppNameError(str(error)) from None
    return found


def resolve_aggregator(name: str) -> Callable[..., Any]:
    """Import a group aggregator by name; raise ``AppNameError`` if it is no plain function."""
    return resolve_hook("group_aggregator", name)
