"""Schedules: the next due time after a moment.

croniter steps a calendar schedule on the wall clock of its zone, one stretch of constant UTC offset after the other; in
each stretch the wall clock runs evenly. So a time that a clock change skips is not due that day, and a time that a
clock change repeats is due twice, as with robfig.
"""

from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta, timezone, tzinfo

SECOND = timedelta(seconds=1)
PROBE = timedelta(days=1)
"""No zone changes its offset twice within a day."""
MAX_YEARS = 5
"""A schedule that is not due until the end of the fifth year from now is never due, as with robfig."""


class Schedule(ABC):
    """A parsed spec, as ``parse`` returns it."""

    def __init__(self, spec: str, zone: tzinfo) -> None:
        self.spec = spec
        self.zone = zone

    def next(self, after: datetime) -> datetime | None:
        """Return the first due time later than ``after``, None if there is none in 5 years.

        The result is in whole seconds, at the UTC offset that the schedule's zone has then. ``after`` must have a time
        zone; otherwise this raises ``ValueError``.
        """
        if not isinstance(after, datetime):
            raise TypeError(f"after must be a datetime with a time zone, not {after!r}")
        if after.utcoffset() is None:
            raise ValueError(f"after must have a time zone, for example datetime.now(UTC): {after!r}")
        try:
            due = self._next(after.astimezone(UTC).replace(microsecond=0))
            return None if due is None else self._local(due)
        except OverflowError:
            return None  # beyond the year 9999

    @abstractmethod
    def _next(self, after: datetime) -> datetime | None:
        """Return the first due time later than ``after``, both in UTC and whole seconds."""

    def _local(self, moment: datetime) -> datetime:
        """Convert a moment to the zone's time, with a fixed offset as its zone.

        In a zone with clock changes, Python would find a repeated time unequal to the same time in any other zone.
        """
        local = moment.astimezone(self.zone)
        offset, name = local.utcoffset(), local.tzname()
        if isinstance(self.zone, timezone) or offset is None:
            return local
        return local.replace(tzinfo=timezone(offset, name) if name else timezone(offset), fold=0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec!r}, {str(self.zone)!r})"


class IntervalSchedule(Schedule):
    """A schedule with a fixed interval, counted from the given time; the wall clock does not matter."""

    def __init__(self, spec: str, zone: tzinfo, every_s: int) -> None:
        super().__init__(spec, zone)
        self.every_s = every_s

    def _next(self, after: datetime) -> datetime:
        return after + timedelta(seconds=self.every_s)


class CalendarSchedule(Schedule):
    """A schedule on the wall clock of its zone, by a croniter expression; with None it is never due."""

    def __init__(self, spec: str, zone: tzinfo, expression: str | None) -> None:
        super().__init__(spec, zone)
        self._expression = expression

    def _next(self, after: datetime) -> datetime | None:
        if self._expression is None:
            return None
        last_year = (after + SECOND).astimezone(self.zone).year + MAX_YEARS
        horizon = datetime(min(last_year + 1, datetime.max.year), 1, 2, tzinfo=UTC)
        offset = self._offset(after)
        wall = _wall(after, offset)
        while True:
            match = _step(self._expression, wall)
            if match is not None and match.year > last_year:
                match = None
            due = None if match is None else match.replace(tzinfo=UTC) - offset
            change = self._first_change(after, due or horizon, offset)
            if change is None:
                return due
            after, offset = change, self._offset(change)
            wall = _wall(change, offset) - SECOND  # the first moment after the change may be due

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self.zone).utcoffset() or timedelta(0)

    def _first_change(self, start: datetime, end: datetime, offset: timedelta) -> datetime | None:
        """Return the first second after ``start``, up to ``end``, with another offset."""
        if isinstance(self.zone, timezone):
            return None
        while start < end:
            probe = min(start + PROBE, end)
            if self._offset(probe) != offset:
                return self._bisect(start, probe, offset)
            start = probe
        return None

    def _bisect(self, start: datetime, end: datetime, offset: timedelta) -> datetime:
        """Return the first second with another offset; ``start`` has ``offset``, and ``end`` has another one."""
        while end - start > SECOND:
            middle = start + (end - start) // 2
            middle = middle.replace(microsecond=0)
            if self._offset(middle) == offset:
                start = middle
            else:
                end = middle
        return end


def _wall(moment: datetime, offset: timedelta) -> datetime:
    return (moment + offset).replace(tzinfo=None)


def _step(expression: str, wall: datetime) -> datetime | None:
    # Imported here because few programs need croniter, and an import above would cost memory and time in every child.
    from croniter import CroniterBadDateError, croniter

    try:
        match: datetime = croniter(
            expression, wall, ret_type=datetime, max_years_between_matches=MAX_YEARS + 1
        ).get_next()
    except CroniterBadDateError:
        return None
    return match
