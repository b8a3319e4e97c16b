"""The options of a task: checked one by one where they are given, merged, and completed with asynq's defaults.

``check_options`` turns what the user wrote into exact values, or raises before anything is sent. Options given to
``Task`` come first, those given to ``enqueue`` after them; the last of a kind wins. ``process_at`` and ``process_in``
are of one kind, as in asynq.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from fastq.durations import nanoseconds_of
from fastq.wire.go_space import GO_SPACE

__all__ = ["DEFAULT_QUEUE", "NO_OPTIONS", "OPTION_NAMES", "TaskOptions", "check_options", "check_text", "complete"]

DEFAULT_QUEUE: Final = "default"
DEFAULT_MAX_RETRY: Final = 25
DEFAULT_TIMEOUT_S: Final = 1800
MAX_INT32: Final = 2**31 - 1
SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Hold the options of one task, complete: durations in seconds as on the wire, times in Unix seconds or ns.

    ``process_at_ns`` is None for "now"; ``unique_ttl_ns`` 0 for "not unique"; ``unique_key`` None for the payload's.
    """

    queue: str = DEFAULT_QUEUE
    task_id: str = ""
    max_retry: int = DEFAULT_MAX_RETRY
    timeout_s: int = DEFAULT_TIMEOUT_S
    deadline_s: int = 0
    unique_ttl_ns: int = 0
    unique_key: str | None = None
    process_at_ns: int | None = None
    retention_s: int = 0
    group: str = ""


NO_OPTIONS: Final[Mapping[str, Any]] = {}


def check_text(value: object, name: str) -> str:
    """Return ``value`` if it is text that can stand on the wire; blank and lone surrogates are refused."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}: {value!r}")
    if value.__class__ is not str:
        value = str.__str__(value)  # what the message holds: in a key, an enum would write its own name instead
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{name} must be valid Unicode text: {value!r}") from None
    if not value or (value[0] in GO_SPACE and not value.strip(GO_SPACE)):
        raise ValueError(f"{name} must contain one or more characters that are not blank: {value!r}")
    return value


def check_headers(value: object) -> dict[str, str]:
    """Return a copy of a mapping of text to text; empty keys and values are allowed, as in asynq."""
    if not isinstance(value, Mapping):
        raise TypeError(f"headers must be a mapping of str to str, not {type(value).__name__}: {value!r}")
    headers = dict(value)
    for key, content in headers.items():
        if not isinstance(key, str) or not isinstance(content, str):
            raise TypeError(f"headers must map str to str: {key!r}: {content!r}")
        try:
            (key + content).encode()
        except UnicodeEncodeError:
            raise ValueError(f"headers must be valid Unicode text: {key!r}: {content!r}") from None
    return headers


def check_options(options: Mapping[str, object]) -> dict[str, Any]:
    """Check options by name and value; ``None`` counts as not given. The result is for ``complete``."""
    checked: dict[str, Any] = {}
    for name, value in options.items():
        check = _CHECKS.get(name)
        if check is None:
            raise TypeError(_unknown(name))
        if value is None:
            continue
        kind, exact = check(value)
        # Taken out first, so that of process_at and process_in the one given last decides.
        checked.pop(kind, None)
        checked[kind] = exact
    return checked


def complete(checked: Mapping[str, Any], now_ns: int) -> TaskOptions:
    """Fill in asynq's defaults, and resolve ``process_in`` against ``now_ns``."""
    if not checked:
        return _DEFAULTS
    timeout_s = checked.get("timeout", 0)
    deadline_s = checked.get("deadline", 0)
    unique_ttl_ns = checked.get("unique", 0)
    unique_key = checked.get("unique_key")
    if unique_key is not None and not unique_ttl_ns:
        raise ValueError(f"unique_key={unique_key!r} needs unique=<how long the lock is held at most>")
    return TaskOptions(
        queue=checked.get("queue", DEFAULT_QUEUE),
        task_id=checked.get("task_id", ""),
        max_retry=checked.get("max_retry", DEFAULT_MAX_RETRY),
        timeout_s=DEFAULT_TIMEOUT_S if not timeout_s and not deadline_s else timeout_s,
        deadline_s=deadline_s,
        unique_ttl_ns=unique_ttl_ns,
        unique_key=unique_key,
        process_at_ns=_process_at_ns(checked.get("process"), now_ns),
        retention_s=checked.get("retention", 0),
        group=checked.get("group", ""),
    )


_DEFAULTS = TaskOptions()


def _process_at_ns(process: tuple[str, int] | None, now_ns: int) -> int | None:
    if process is None:
        return None
    kind, ns = process
    at_ns = ns if kind == "at" else now_ns + ns
    return at_ns if at_ns > now_ns else None


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, OPTION_NAMES, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"options are {', '.join(OPTION_NAMES)}"
    return f"unknown option {name!r}; {hint}"


def _queue(value: object) -> tuple[str, str]:
    queue = check_text(value, "queue")
    if "}" in queue:
        raise ValueError(f"queue must not contain '}}', which would break the hash tag of its keys: {queue!r}")
    return "queue", queue


def _max_retry(value: object) -> tuple[str, int]:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"max_retry must be an int, not {type(value).__name__}: {value!r}")
    if value > MAX_INT32:
        raise ValueError(f"max_retry must be at most {MAX_INT32} (32 bits on the wire): {value!r}")
    return "max_retry", max(value, 0)


def _timeout(value: object) -> tuple[str, int]:
    ns = nanoseconds_of(value, name="timeout")
    if value and ns < SECOND_NS:
        raise ValueError(f"timeout must be 0 (none) or at least 1 second: {value!r}")
    return "timeout", ns // SECOND_NS


def _deadline(value: object) -> tuple[str, int]:
    return "deadline", _unix_ns(value, "deadline") // SECOND_NS


def _unique(value: object) -> tuple[str, int]:
    ns = nanoseconds_of(value, name="unique")
    if ns < SECOND_NS:
        raise ValueError(f"unique must be at least 1 second: {value!r}")
    return "unique", ns


def _process_at(value: object) -> tuple[str, tuple[str, int]]:
    return "process", ("at", _unix_ns(value, "process_at"))


def _process_in(value: object) -> tuple[str, tuple[str, int]]:
    return "process", ("in", _not_negative(value, "process_in"))


def _retention(value: object) -> tuple[str, int]:
    return "retention", _not_negative(value, "retention") // SECOND_NS


def _not_negative(value: object, name: str) -> int:
    ns = nanoseconds_of(value, name=name)
    if ns < 0:
        raise ValueError(f"{name} must not be negative: {value!r}")
    return ns


def _unix_ns(value: object, name: str) -> int:
    if not isinstance(value, datetime):
        raise TypeError(f"{name} must be a datetime with a time zone, not {type(value).__name__}: {value!r}")
    if value.utcoffset() is None:
        raise ValueError(
            f"{name} must have a time zone, for example datetime.now(UTC) or .replace(tzinfo=...): {value!r}"
        )
    return (value - _EPOCH) // _MICROSECOND * 1000


_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MICROSECOND = timedelta(microseconds=1)

_CHECKS: Final[dict[str, Callable[[object], tuple[str, Any]]]] = {
    "queue": _queue,
    "task_id": lambda value: ("task_id", check_text(value, "task_id")),
    "max_retry": _max_retry,
    "timeout": _timeout,
    "deadline": _deadline,
    "unique": _unique,
    "unique_key": lambda value: ("unique_key", check_text(value, "unique_key")),
    "process_at": _process_at,
    "process_in": _process_in,
    "retention": _retention,
    "group": lambda value: ("group", check_text(value, "group")),
    "headers": lambda value: ("headers", check_headers(value)),
}

OPTION_NAMES: Final = tuple(_CHECKS)
