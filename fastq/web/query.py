"""Parses a search: words such as ``error:TimeoutError state:retry,archived payload.user.id:7 since:2h``."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, TypeAlias

from fastq.common.durations import parse_duration
from fastq.common.states import TaskState
from fastq.info import TaskInfo
from fastq.inspector.filters import DATED
from fastq.web.view import matches

FIELDS: Final = ("id", "type", "error", "payload", "queue", "state", "since", "until")
MOST_CHARACTERS: Final = 1_000
MOST_WORDS: Final = 20
MOST_TEXT_BYTES: Final = 1_000_000
"""Text is searched in this many bytes at the beginning of a payload."""
MOST_PARSED_BYTES: Final = 256_000
"""The values of a larger JSON payload are not searched, because parsing it would keep all pages waiting."""
# Most searches are for failed tasks.
ORDER: Final = (
    TaskState.RETRY,
    TaskState.ARCHIVED,
    TaskState.ACTIVE,
    TaskState.PENDING,
    TaskState.SCHEDULED,
    TaskState.AGGREGATING,
    TaskState.COMPLETED,
)
_WORD: Final = re.compile(r'(?:([a-z]+(?:\.[^\s":]+)?):)?("(?:[^"\\]|\\.)*"|\S+)')
_DAYS: Final = re.compile(r"(\d{1,4})d")


@dataclass
class Subject:
    """A task that is tested. Its data is decoded, parsed and case-folded only once for all tests."""

    info: TaskInfo
    _values: dict[tuple[str, ...], list[str]] = field(default_factory=dict)

    @cached_property
    def payload(self) -> str:
        """Return the text of the payload, in lower case."""
        return self.info.payload[:MOST_TEXT_BYTES].decode(errors="replace").casefold()

    @cached_property
    def error(self) -> str:
        """Return the last error, in lower case."""
        return self.info.last_err.casefold()

    @cached_property
    def _parsed(self) -> Any:
        if len(self.info.payload) > MOST_PARSED_BYTES:
            return None
        try:
            return json.loads(self.info.payload, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            return None

    def values(self, path: tuple[str, ...]) -> list[str]:
        """Return the values at a path of a JSON payload, as text in lower case."""
        if path not in self._values:
            self._values[path] = [text.casefold() for text in _values(self._parsed, path)]
        return self._values[path]


Test: TypeAlias = Callable[[Subject], bool]


@dataclass(frozen=True, slots=True)
class Query:
    """A search as it was typed, and its meaning: queues, states, and tests that a task has to pass. ``reads_payloads``
    says that some test reads payloads. A test reads only the first ``most_bytes`` of a payload.
    """

    text: str
    queues: tuple[str, ...]
    states: tuple[TaskState, ...]
    tests: tuple[Test, ...]
    reads_payloads: bool
    most_bytes: int

    @classmethod
    def of(cls, text: str) -> "Query":
        """Parse a search; ``ValueError`` names a bad word."""
        text = " ".join(text.split())
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"a search has at most {MOST_CHARACTERS} characters")
        queues: tuple[str, ...] = ()
        states: tuple[TaskState, ...] = ORDER
        tests, free, reads_payloads = [], [], False
        words = list(_words(text))
        if len(words) > MOST_WORDS:
            raise ValueError(f"a search has at most {MOST_WORDS} words, not {len(words)}")
        for name, value in words:
            match name:
                case "queue":
                    queues = tuple(value.split(","))
                case "state":
                    states = tuple(state for state in ORDER if state in _states(value))
                case "since" | "until":
                    tests.append(_time_test(name, value))
                    states = tuple(state for state in states if state in DATED)
                case "":
                    free.append(value)
                case _:
                    tests.append(_test(name, value))
                    reads_payloads |= name.startswith("payload")
        if free:
            tests.append(_free_test(" ".join(free)))
        most_bytes = MOST_PARSED_BYTES if any(name.startswith("payload.") for name, _ in words) else MOST_TEXT_BYTES
        return cls(text, queues or ("*",), states, tuple(tests), reads_payloads or bool(free), most_bytes)

    def wants(self, info: TaskInfo) -> bool:
        """Return whether a task passes all tests."""
        subject = Subject(info)
        return all(test(subject) for test in self.tests)

    def reaches(self, queue: str) -> bool:
        """Return whether the search includes a queue."""
        return matches(queue, self.queues)


def pattern_of(error: str) -> str:
    """Return the first line of an error as a pattern for ``error:``, with ``*`` in place of numbers."""
    line = error.partition("\n")[0][:160]
    return re.sub(r"\d[\d.,:]*|\b[0-9a-f]{8,}\b", "*", line)


def _words(text: str) -> Iterator[tuple[str, str]]:
    """Yield the field of each word, empty for none, and its value."""
    for match in _WORD.finditer(text):
        name, value = match[1] or "", match[2]
        if name not in FIELDS and not name.startswith("payload."):
            name, value = "", match[0]
        if value.startswith('"') and value.endswith('"') and len(value) > 1:
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        yield name, value


def _states(value: str) -> set[TaskState]:
    found = set()
    for name in value.split(","):
        try:
            found.add(TaskState(name))
        except ValueError:
            known = ", ".join(TaskState)
            raise ValueError(f"state:{value}: {name!r} is not a state; states are {known}") from None
    return found


def _time_test(name: str, value: str) -> Test:
    edge = _moment(name, value)

    def test(subject: Subject) -> bool:
        info = subject.info
        moment = info.completed_at if info.state is TaskState.COMPLETED else info.last_failed_at
        return moment is not None and (moment >= edge if name == "since" else moment < edge)

    return test


def _moment(name: str, value: str) -> datetime:
    try:
        if days := _DAYS.fullmatch(value):
            return datetime.now(UTC) - timedelta(days=int(days[1]))
        if value[:1].isdigit() and value[-1:].isalpha() and "T" not in value:
            return datetime.now(UTC) - timedelta(microseconds=parse_duration(value) / 1000)
        moment = datetime.fromisoformat(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{name}:{value}: write a time such as 2026-11-22T17:00, or 2h or 7d") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _test(name: str, value: str) -> Test:
    wanted = value.casefold()
    match name:
        case "id":
            return lambda subject: _is_like(subject.info.id, value)
        case "type":
            return lambda subject: _is_like(subject.info.type, value)
        case "error":
            return lambda subject: _has(subject.error, wanted)
        case "payload":
            return lambda subject: _has(subject.payload, wanted)
    path = tuple(name.split(".")[1:])
    return lambda subject: any(_is_like(text, wanted) for text in subject.values(path))


def _free_test(text: str) -> Test:
    wanted = text.casefold()

    def test(subject: Subject) -> bool:
        info = subject.info
        return (
            _has(info.id.casefold(), wanted)
            or _has(info.type.casefold(), wanted)
            or _has(subject.error, wanted)
            or _has(subject.payload, wanted)
        )

    return test


def _has(text: str, wanted: str) -> bool:
    """Return whether a text contains a pattern, in which ``*`` matches any characters."""
    at = 0
    for part in wanted.split("*"):
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def _is_like(text: str, pattern: str) -> bool:
    """Return whether all of a text matches a pattern.

    The time is proportional to the text, unlike a regular expression's.
    """
    first, *others = pattern.split("*")
    if not others:
        return text == first
    last = others.pop()
    rest = text.removeprefix(first) if text.startswith(first) else None
    if rest is None or not rest.endswith(last):
        return False
    at, end = 0, len(rest) - len(last)
    for part in others:
        at = rest.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def _values(found: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the values at a path of decoded JSON; in a list, the path continues in each item."""
    left = [(found, 0)]
    while left:
        value, depth = left.pop()
        if isinstance(value, list):
            left += [(each, depth) for each in value]
        elif depth < len(path):
            if isinstance(value, dict) and path[depth] in value:
                left.append((value[path[depth]], depth + 1))
        elif not isinstance(value, dict):
            yield value if isinstance(value, str) else json.dumps(value)
