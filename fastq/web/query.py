"""What a search looks for: words such as ``error:TimeoutError state:retry,archived payload.user.id:7 since:2h``."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from fastq.durations import parse_duration
from fastq.info import TaskInfo
from fastq.inspector.filters import DATED
from fastq.states import TaskState
from fastq.web.view import matches

__all__ = ["Query", "Test", "pattern_of"]

FIELDS: Final = ("id", "type", "error", "payload", "queue", "state", "since", "until")
MOST_CHARACTERS: Final = 1_000
# What is looked for has most often failed.
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

Test: TypeAlias = Callable[[TaskInfo], bool]


@dataclass(frozen=True, slots=True)
class Query:
    """A search as it was typed, and what it means: queues, states, and tests that a task has to pass.

    ``reads_payloads`` if a test looks at the payload.
    """

    text: str
    queues: tuple[str, ...]
    states: tuple[TaskState, ...]
    tests: tuple[Test, ...]
    reads_payloads: bool

    @classmethod
    def of(cls, text: str) -> "Query":
        """Read a search; ``ValueError`` says which word makes no sense."""
        text = " ".join(text.split())
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"a search has at most {MOST_CHARACTERS} characters")
        queues: tuple[str, ...] = ()
        states: tuple[TaskState, ...] = ORDER
        tests, free, reads_payloads = [], [], False
        for name, value in _words(text):
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
        return cls(text, queues or ("*",), states, tuple(tests), reads_payloads or bool(free))

    def wants(self, info: TaskInfo) -> bool:
        """Return whether a task, with what may be shown of it, passes all tests."""
        return all(test(info) for test in self.tests)

    def reaches(self, queue: str) -> bool:
        """Return whether tasks of a queue are looked at."""
        return matches(queue, self.queues)


def pattern_of(error: str) -> str:
    """Return the first line of an error with ``*`` for its numbers, which ``error:`` finds."""
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

    def test(info: TaskInfo) -> bool:
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
            return lambda info: _is_like(info.id, value)
        case "type":
            return lambda info: _is_like(info.type, value)
        case "error":
            return lambda info: _has(info.last_err, wanted)
        case "payload":
            return lambda info: _has(info.payload.decode(errors="replace"), wanted)
    path = name.split(".")[1:]
    return lambda info: any(_is_like(text.casefold(), wanted) for text in _values(info.payload, path))


def _free_test(text: str) -> Test:
    wanted = text.casefold()
    return lambda info: any(
        _has(each, wanted) for each in (info.id, info.type, info.last_err, info.payload.decode(errors="replace"))
    )


def _has(text: str, wanted: str) -> bool:
    """Return whether a text contains a pattern in lower case, in which ``*`` stands for any characters."""
    text, at = text.casefold(), 0
    for part in wanted.split("*"):
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def _is_like(text: str, pattern: str) -> bool:
    """Return whether all of a text matches a pattern; unlike a regular expression, it takes no longer than the text."""
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


def _values(payload: bytes, path: list[str]) -> Iterator[str]:
    """Yield the value at a path of a JSON payload as it is written; a list stands for each of its items."""
    try:
        found: Any = json.loads(payload, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return
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
