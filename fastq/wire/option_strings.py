"""The options of a task as asynq writes them into scheduler entries, ``Queue("low")`` or ``Timeout(20s)``, and back.

Durations are integers of nanoseconds here, the precision that the text has. asynq cuts an argument at its first ``)``,
takes every zone but UTC for one at offset 0, and reads neither ``TaskID`` nor ``Group``. What is written here it reads
rightly all the same, those two apart: ``)`` is written as an escape, a time in UTC. Reading here has no such limits.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from fastq.durations import format_duration, parse_duration
from fastq.wire.go_quote import quote, unquote

__all__ = ["Option", "OptionType", "OptionValue", "format_option", "parse_option"]

OptionValue: TypeAlias = int | str | datetime | tuple[str, str]
"""``int`` is a number of retries or of nanoseconds, a tuple the key and value of a header."""


class OptionType(IntEnum):
    """The options, numbered as in asynq."""

    MAX_RETRY = 0
    QUEUE = 1
    TIMEOUT = 2
    DEADLINE = 3
    UNIQUE = 4
    PROCESS_AT = 5
    PROCESS_IN = 6
    TASK_ID = 7
    RETENTION = 8
    GROUP = 9
    HEADER = 10


class Option(NamedTuple):
    """A parsed option."""

    type: OptionType
    value: OptionValue


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_UNIX_DATE = re.compile(
    rf"(?:{'|'.join(_DAYS)}) +(?P<month>{'|'.join(_MONTHS)}) +(?P<day>[0-9]{{1,2}}) +"
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2}) +"
    r"(?P<zone>[A-Z]{3,5}|[+-][0-9]{2}(?:[0-9]{2})?) +(?P<year>[0-9]{4})"
)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_JSON_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&)\u2028\u2029"})


def format_option(kind: OptionType, value: OptionValue) -> str:
    """Return an option as asynq's ``Option.String`` does; ``TypeError`` where the value is not of its kind."""
    form = _FORMS[kind]
    if isinstance(value, bool) or not isinstance(value, form.type):
        raise TypeError(f"{form.name} must be {form.type.__name__}, not {value!r}")
    return f"{form.name}({form.write(value)})"


def parse_option(text: str) -> Option:
    """Read what ``format_option``, or asynq, wrote; ``ValueError`` where it is malformed or of no known kind."""
    name, opened, rest = text.rstrip().partition("(")
    argument, closed, after = rest.rpartition(")")
    if not opened or not closed or after:
        raise ValueError(f"not an option: {text!r}; one looks like Name(value)")
    if name not in _KINDS:
        raise ValueError(f"unknown option {name!r} in {text!r}; known are {', '.join(_KINDS)}")
    kind = _KINDS[name]
    try:
        return Option(kind, _FORMS[kind].read(argument))
    except ValueError as error:
        raise ValueError(f"malformed option {text!r}: {error}") from error


def _write_max_retry(value: int) -> str:
    return str(max(value, 0))


def _read_max_retry(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text!r} is no whole number")
    return max(int(text), 0)


def _write_text(text: str) -> str:
    return quote(text).replace(")", "\\x29")


def _write_time(moment: datetime) -> str:
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError(f"a time needs a timezone, and {moment!r} has none")
    zone = moment.tzname() or ""
    if offset or not re.fullmatch("[A-Z]{3}", zone):
        moment, zone = moment.astimezone(UTC), "UTC"
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    return f"{day} {month} {moment.day:2} {moment:%H:%M:%S} {zone} {moment.year:04}"


def _read_time(text: str) -> datetime:
    match = _UNIX_DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time such as 'Sun Nov  2 03:04:05 UTC 2025'")
    month = _MONTHS.index(match["month"]) + 1
    year, day, hour, minute, second = (int(match[name]) for name in ("year", "day", "hour", "minute", "second"))
    return datetime(year, month, day, hour, minute, second, tzinfo=_zone(match["zone"]))


def _zone(text: str) -> timezone:
    if text == "UTC":
        return UTC
    if text[0] not in "+-":
        return timezone(timedelta(0), text)  # as Go does: the offset of an abbreviation cannot be known
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[3:] or 0))
    return timezone(-offset if text[0] == "-" else offset)


def _write_header(header: tuple[str, str]) -> str:
    pair = [part.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for part in header]
    return json.dumps(pair, ensure_ascii=False, separators=(",", ":")).translate(_JSON_ESCAPES)


def _read_header(text: str) -> tuple[str, str]:
    try:
        pair = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    match pair:
        case [str(key), str(value), *_]:
            return key, value
        case _:
            raise ValueError(f"{text} is not a list of a key and a value")


class _Form(NamedTuple):
    """How one kind of option is written and read."""

    name: str
    type: type
    write: Callable[..., str]
    read: Callable[[str], OptionValue]


def _duration(name: str) -> _Form:
    return _Form(name, int, format_duration, parse_duration)


def _text(name: str) -> _Form:
    return _Form(name, str, _write_text, unquote)


def _time(name: str) -> _Form:
    return _Form(name, datetime, _write_time, _read_time)


_FORMS: Mapping[OptionType, _Form] = {
    OptionType.MAX_RETRY: _Form("MaxRetry", int, _write_max_retry, _read_max_retry),
    OptionType.QUEUE: _text("Queue"),
    OptionType.TIMEOUT: _duration("Timeout"),
    OptionType.DEADLINE: _time("Deadline"),
    OptionType.UNIQUE: _duration("Unique"),
    OptionType.PROCESS_AT: _time("ProcessAt"),
    OptionType.PROCESS_IN: _duration("ProcessIn"),
    OptionType.TASK_ID: _text("TaskID"),
    OptionType.RETENTION: _duration("Retention"),
    OptionType.GROUP: _text("Group"),
    OptionType.HEADER: _Form("Header", tuple, _write_header, _read_header),
}
_KINDS: Mapping[str, OptionType] = {form.name: kind for kind, form in _FORMS.items()}
