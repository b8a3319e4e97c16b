"""The rules of a typed task for its failures: which errors are retried, and after what delay."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from fastq.common.durations import nanoseconds_of
from fastq.hooks import FailureRule

Delay: TypeAlias = float | timedelta
Backoff: TypeAlias = Delay | Sequence[Delay] | Callable[[int], Delay]
"""Delays before the next attempt: one for all, one for each attempt (the last also for all later attempts), or a
function of the number of retries.
"""
Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]


def failure_rule(
    retry_on: Errors | None = None, dont_retry_on: Errors | None = None, backoff: Backoff | None = None
) -> FailureRule | None:
    """Return the rule of these settings, None if none is given; ``TypeError`` or ``ValueError`` for bad settings."""
    if retry_on is None and dont_retry_on is None and backoff is None:
        return None
    return FailureRule(
        (BaseException,) if retry_on is None else _errors(retry_on, "retry_on"),
        () if dont_retry_on is None else _errors(dont_retry_on, "dont_retry_on"),
        None if backoff is None else _delay(backoff),
    )


def _errors(given: Any, name: str) -> tuple[type[BaseException], ...]:
    errors = given if isinstance(given, tuple) else (given,)
    for error in errors:
        if not isinstance(error, type) or not issubclass(error, BaseException):
            raise TypeError(f"{name} takes classes of exceptions, not {error!r}")
    return errors


def _delay(backoff: Any) -> Callable[[int], Delay]:
    if callable(backoff):
        delay_of: Callable[[int], Delay] = backoff
        return delay_of
    delays = [*backoff] if isinstance(backoff, Sequence) and not isinstance(backoff, str) else [backoff]
    for delay in delays:
        if nanoseconds_of(delay, name="backoff") < 0:
            raise ValueError(f"backoff must not be negative: {delay!r}")
    if not delays:
        raise ValueError("backoff must name a delay: it is an empty sequence")
    return lambda retried: delays[min(retried, len(delays) - 1)]
