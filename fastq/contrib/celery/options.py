"""Celery's options of tasks and calls, checked and turned into fastq's options."""

import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fastq.app.failure_rule import failure_rule
from fastq.contrib.celery.result import DEFAULT_QUEUE
from fastq.contrib.celery.uses import OF_CALL, OF_DECORATOR, unknown_option
from fastq.contrib.celery.values import encode
from fastq.errors import TaskTimeout
from fastq.hooks import FailureRule
from fastq.mux import Terms
from fastq.task import Task as Message
from fastq.wire.limit import Limit

NO_LIMIT: Final = 2**31 - 1
"""The ``max_retry`` on the wire for a task without ``max_retries``."""
CALL_OPTIONS: Final = frozenset(
    {"countdown", "eta", "expires", "headers", "ignore_result", "queue", "soft_time_limit", "task_id", "time_limit"}
)
_RATE: Final = re.compile(r"(\d{1,7}(?:\.\d{1,7})?)(?:/([smh]))?", re.ASCII)
_ALWAYS_SO: Final[Mapping[str, object]] = {
    "acks_late": True,
    "serializer": "json",
    "track_started": True,
}
"""Options of Celery, each with the only value that fastq supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of ``@shared_task`` and ``@app.task``, with Celery's defaults."""

    bind: bool = False
    max_retries: int | None = 3
    default_retry_delay: float = 180
    autoretry_for: tuple[type[BaseException], ...] = ()
    dont_autoretry_for: tuple[type[BaseException], ...] = ()
    retry_kwargs: Mapping[str, Any] = field(default_factory=dict)
    retry_backoff: bool | int = False
    retry_backoff_max: int = 600
    retry_jitter: bool = True
    acks_late: bool = False
    reject_on_worker_lost: bool = False
    queue: str = DEFAULT_QUEUE
    expires: float | datetime | None = None
    ignore_result: bool = False
    soft_time_limit: float | None = None
    time_limit: float | None = None
    rate_limit: str | float | None = None

    @property
    def limit(self) -> Limit | None:
        """Return the limit of the task's lane; ``ValueError`` if ``rate_limit`` cannot be read."""
        interval_us = _interval_us(self.rate_limit)
        return Limit(rate=f"1/{interval_us}us") if interval_us else None

    @property
    def max_retry(self) -> int:
        """Return how often a task is retried at most."""
        limit = self.retry_kwargs.get("max_retries", self.max_retries)
        return NO_LIMIT if limit is None else int(limit)

    @property
    def terms(self) -> Terms:
        """Return the terms under which the server runs the task: as in Celery, it is by default not rerun if its
        process died.
        """
        limit_s = _first(self.soft_time_limit, self.time_limit)
        return Terms(None if limit_s is None else math.ceil(limit_s), not self.reject_on_worker_lost, may_be_late=True)

    def rule(self) -> FailureRule:
        """Return the rule for failures: as in Celery, only errors in ``autoretry_for`` are retried.

        A soft time limit is an ``Exception`` in Celery. A hard one is never retried.
        """
        named = tuple(self.autoretry_for)
        if any(issubclass(Exception, each) for each in named) and (self.soft_time_limit or not self.time_limit):
            named += (TaskTimeout,)
        rule = failure_rule(named, tuple(self.dont_autoretry_for), self._delay())
        assert rule is not None
        return rule._replace(judges=_JUDGED, names=("autoretry_for", "dont_autoretry_for"))

    def _delay(self) -> Callable[[int], float]:
        fixed = float(self.retry_kwargs.get("countdown", self.default_retry_delay))
        if not self.retry_backoff:
            return lambda retried: fixed
        factor, longest, has_jitter = max(1, int(self.retry_backoff)), self.retry_backoff_max, self.retry_jitter

        def grow(retried: int) -> float:
            delay = min(longest, factor * 2 ** min(retried, 32))
            return random.randrange(delay + 1) if has_jitter else delay

        return grow


_JUDGED: Final = (Exception, KeyboardInterrupt, SystemExit, TaskTimeout)
_SETTINGS: Final = frozenset(each.name for each in fields(Settings))


def settings_of(name: str, given: Mapping[str, Any]) -> Settings:
    """Return the settings of a task; ``TypeError`` names an option that is not supported."""
    known = _of_fastq(f"task {name!r}", given, _SETTINGS, OF_DECORATOR)
    if unknown := dict(known.get("retry_kwargs", {})).keys() - {"max_retries", "countdown"}:
        raise TypeError(f"task {name!r}: retry_kwargs takes max_retries and countdown, not {sorted(unknown)[0]!r}")
    settings = Settings(**known)
    try:
        settings.limit  # noqa: B018 - raises if it cannot be read
    except ValueError as error:
        raise ValueError(f"task {name!r}: {error}") from None
    return settings


def message_of(
    name: str, settings: Settings, call: Mapping[str, Any], given: Mapping[str, Any], retention_s: float
) -> Message:
    """Return the task of a call: ``call`` is its payload, and ``given`` are the options of ``apply_async``."""
    options = _of_fastq(f"a call of task {name!r}", given, CALL_OPTIONS, OF_CALL)
    queue = options.get("queue", settings.queue)
    if isinstance(queue, str) and ":" in queue:
        raise ValueError(f"queue must not contain ':', by which ids of results name their queue: {queue!r}")
    payload = dict(call)
    if (expires := options.get("expires", settings.expires)) is not None:
        payload["expires"] = _unix_s(expires)
    timeout = _first(options.get("soft_time_limit"), options.get("time_limit")) or _first(
        settings.soft_time_limit, settings.time_limit
    )
    return Message(
        name,
        encode(payload, f"an argument of task {name!r}"),
        queue=queue,
        task_id=options.get("task_id"),
        lane=name if settings.limit else None,
        max_retry=settings.max_retry,
        retention=0 if options.get("ignore_result", settings.ignore_result) else retention_s,
        timeout=timeout,
        process_in=None if options.get("countdown") is None else max(0, options["countdown"]),
        process_at=None if options.get("countdown") is not None else _aware(options.get("eta")),
        headers=options.get("headers"),
    )


def due_after_s(eta: datetime) -> float:
    """Return the seconds until a time, 0 if it is past."""
    return max(0.0, _unix_s(eta) - datetime.now(UTC).timestamp())


def _of_fastq(what: str, given: Mapping[str, Any], known: frozenset[str], uses: Mapping[str, Any]) -> dict[str, Any]:
    """Return fastq's options; options of Celery whose only supported value is what fastq does anyway are dropped."""
    found = {}
    for name, value in given.items():
        if name not in known | _ALWAYS_SO.keys() or (name in _ALWAYS_SO and value != _ALWAYS_SO[name]):
            raise TypeError(unknown_option(what, name, value, uses))
        if name in known:
            found[name] = value
    return found


def _interval_us(rate_limit: object) -> int:
    """Return the microseconds from one start to the next, as Celery reads ``rate_limit``; 0 for no limit."""
    if rate_limit is None:
        return 0
    found = _RATE.fullmatch(str(rate_limit)) if isinstance(rate_limit, str | int | float) else None
    if found is None or isinstance(rate_limit, bool):
        raise ValueError(f"rate_limit must be a number a second, or such as '10/m', not {rate_limit!r}")
    count = float(found[1])
    return math.ceil({"s": 1e6, "m": 60e6, "h": 3600e6}[found[2] or "s"] / count) if count else 0


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _aware(moment: datetime | None) -> datetime | None:
    """Return a time with its zone: as in Celery, a time without a zone is in UTC."""
    if isinstance(moment, datetime) and moment.utcoffset() is None:
        return moment.replace(tzinfo=UTC)
    return moment


def _unix_s(moment: Any) -> float:
    """Return a time in seconds since 1970; a number is that many seconds from now."""
    if isinstance(moment, datetime):
        aware = _aware(moment)
        assert aware is not None
        return aware.timestamp()
    if isinstance(moment, timedelta):
        moment = moment.total_seconds()
    if not isinstance(moment, int | float) or isinstance(moment, bool):
        raise TypeError(f"expires must be seconds or a datetime, not {moment!r}")
    return datetime.now(UTC).timestamp() + moment
