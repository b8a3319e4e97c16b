"""The five fields of a cron spec, as robfig's parser reads them, and their translation for croniter."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fastq.common.go_space import GO_SPACE
from fastq.errors import CronSpecError

_MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_LONGEST_MONTH: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MAX_DIGITS: Final = 18
_ITEM: Final = re.compile("[^,]+")
_WORD: Final = re.compile(f"[^{GO_SPACE}]+")


@dataclass(frozen=True, slots=True)
class _Kind:
    """The values that a field may have."""

    name: str
    low: int
    high: int
    names: Mapping[str, int]


_KINDS: Final = (
    _Kind("minute", 0, 59, {}),
    _Kind("hour", 0, 23, {}),
    _Kind("day of the month", 1, 31, {}),
    _Kind("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Kind("day of the week", 0, 6, {name: number for number, name in enumerate(_WEEKDAYS)}),
)


@dataclass(frozen=True, slots=True)
class _Field:
    """The values that a field matches; ``has_star`` says that one of its items is a bare ``*`` or ``?``."""

    kind: _Kind
    values: frozenset[int]
    has_star: bool

    @property
    def text(self) -> str:
        """Return the values in a form that every cron parser reads."""
        if len(self.values) > self.kind.high - self.kind.low:
            return "*"
        return ",".join(map(str, sorted(self.values)))


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a spec."""

    minute: _Field
    hour: _Field
    day: _Field
    month: _Field
    weekday: _Field

    def expression(self) -> str | None:
        """Return an expression that means the same to croniter, None if the spec can never be due.

        If both day fields are restricted, a match of either is enough, as in croniter. As in robfig, a field with a
        star is not restricted, but a field that lists all values is. So with such a list every day matches.
        """
        day = self.day.text
        if day != "*":
            # Leave out days that none of these months has: croniter would search all years for such days.
            days = frozenset(number for number in self.day.values if number <= self._longest_month())
            day = _Field(self.day.kind, days, has_star=False).text
        weekday = self.weekday.text
        if not (self.day.has_star or self.weekday.has_star):
            if "*" in (day, weekday):
                day = weekday = "*"
            elif not (day and weekday):
                day, weekday = (day or "*", weekday or "*") if day or weekday else ("", "")
        words = (self.minute.text, self.hour.text, day, self.month.text, weekday)
        return " ".join(words) if all(words) else None

    def _longest_month(self) -> int:
        return max((_LONGEST_MONTH[month - 1] for month in self.month.values), default=31)


def read_fields(spec: str, start: int) -> Fields:
    """Read the fields after ``start`` in a spec; ``CronSpecError`` has the reason and the position."""
    words = [(word.start(), word[0]) for word in _WORD.finditer(spec, start)]
    if len(words) != len(_KINDS):
        at = words[len(_KINDS)][0] if len(words) > len(_KINDS) else len(spec)
        raise CronSpecError(
            spec,
            at,
            f"there must be exactly 5 fields (minute, hour, day of the month, month, day of the week), "
            f"here are {len(words)}",
        )
    return Fields(
        *(_Reader(spec, kind).field(at, word) for kind, (at, word) in zip(_KINDS, words, strict=True)),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """A reader of one field."""

    spec: str
    kind: _Kind

    def field(self, start: int, word: str) -> _Field:
        values: set[int] = set()
        has_star = False
        for item in _ITEM.finditer(word):  # empty items are ignored, as in robfig
            found, is_star = self._item(start + item.start(), item[0])
            values |= set(found)
            has_star = has_star or is_star
        return _Field(self.kind, frozenset(values), has_star)

    def _item(self, at: int, text: str) -> tuple[range, bool]:
        """Return the values of one item: ``5``, ``mon-fri``, ``*/15``, ``10/5`` (from 10 to the end) or ``?``."""
        bounds, *steps = text.split("/")
        is_star, low, high = self._bounds(at, bounds)
        step = 1
        if len(steps) > 1:
            raise self._error(at, f"{text!r} has more than one '/'")
        if steps:
            step = self._step(at + len(bounds) + 1, steps[0])
            high = high if "-" in bounds else self.kind.high
        if not self.kind.low <= low <= self.kind.high or high > self.kind.high:
            raise self._error(at, f"{text!r} is outside {self.kind.low}-{self.kind.high}{self._hint(low, high)}")
        if low > high:
            raise self._error(at, f"the range {text!r} begins after its end")
        return range(low, high + 1, step), is_star and step == 1

    def _bounds(self, at: int, text: str) -> tuple[bool, int, int]:
        first, *rest = text.split("-")
        if first in ("*", "?"):
            return True, self.kind.low, self.kind.high  # anything after a hyphen is ignored, as in robfig
        low = self._number(at, first)
        if len(rest) > 1:
            raise self._error(at, f"{text!r} has more than one '-'")
        return False, low, self._number(at + len(first) + 1, rest[0]) if rest else low

    def _step(self, at: int, text: str) -> int:
        step = self._integer(at, text)
        if step < 1:
            raise self._error(at, f"the step {text!r} must be 1 or more")
        return step

    def _number(self, at: int, text: str) -> int:
        number = self.kind.names.get(text.lower())
        return self._integer(at, text) if number is None else number

    def _integer(self, at: int, text: str) -> int:
        if not text:
            raise self._error(at, "a number is missing")
        if not _INTEGER.fullmatch(text) or len(text.lstrip("+-0")) > _MAX_DIGITS:
            names = f" nor one of {', '.join(self.kind.names)}" if self.kind.names else ""
            raise self._error(at, f"{text!r} is not a whole number{names}")
        return int(text)

    def _hint(self, low: int, high: int) -> str:
        return "; Sunday is 0" if self.kind.high == 6 and 7 in (low, high) else ""

    def _error(self, at: int, reason: str) -> CronSpecError:
        return CronSpecError(self.spec, at, f"{self.kind.name}: {reason}")
