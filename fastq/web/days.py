"""Days in the time zone of a viewer, summed from a history that is kept by hours of UTC."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import reduce
from itertools import groupby
from operator import add
from typing import Final

from fastq.cron.zone import load_zone
from fastq.inspector import Durations, RunHistory, RunStats
from fastq.inspector.runs import outcomes_of
from fastq.web.site import Call, Refusal

DAYS: Final = 14
_RENAMED: Final = {
    "Africa/Asmera": "Africa/Asmara",
    "America/Buenos_Aires": "America/Argentina/Buenos_Aires",
    "America/Catamarca": "America/Argentina/Catamarca",
    "America/Coral_Harbour": "America/Atikokan",
    "America/Cordoba": "America/Argentina/Cordoba",
    "America/Godthab": "America/Nuuk",
    "America/Indianapolis": "America/Indiana/Indianapolis",
    "America/Jujuy": "America/Argentina/Jujuy",
    "America/Louisville": "America/Kentucky/Louisville",
    "America/Mendoza": "America/Argentina/Mendoza",
    "Asia/Calcutta": "Asia/Kolkata",
    "Asia/Katmandu": "Asia/Kathmandu",
    "Asia/Rangoon": "Asia/Yangon",
    "Asia/Saigon": "Asia/Ho_Chi_Minh",
    "Atlantic/Faeroe": "Atlantic/Faroe",
    "Europe/Kiev": "Europe/Kyiv",
    "Pacific/Enderbury": "Pacific/Kanton",
    "Pacific/Ponape": "Pacific/Pohnpei",
    "Pacific/Truk": "Pacific/Chuuk",
}
"""Old names of zones, which browsers still send, and which Debian 13 and Ubuntu 24.04 have only in tzdata-legacy."""


@dataclass(frozen=True, slots=True)
class Day:
    """The sums of a day in a time zone, and the end of its last hour."""

    date: date
    stats: RunStats
    end: datetime

    @property
    def hours(self) -> float:
        """The number of hours that the sums cover: 23 or 25 on days on which the clocks change."""
        return (self.end - self.stats.start) / timedelta(hours=1)


def zone_of(call: Call) -> tzinfo | None:
    """Return the time zone that a request asks for by its IANA name, or None."""
    name = call.request.query_params.get("zone", "")
    try:
        return load_zone(_RENAMED.get(name, name)) if name else None
    except ValueError as error:
        raise Refusal(400, f"zone: {error}") from None


def days_of(points: Sequence[RunStats], step: timedelta, zone: tzinfo) -> list[Day]:
    """Sum up points by day; a point counts for the day that contains its middle."""
    grouped = ((day, list(some)) for day, some in groupby(points, _dating(step, zone)))
    return [Day(day, total_of(some), some[-1].start + step) for day, some in grouped]


def last_days(history: RunHistory, zone: tzinfo) -> RunHistory:
    """Reduce a history and its total to the last 14 days, including today."""
    date_of = _dating(history.step, zone)
    first = date_of(history.points[-1]) - timedelta(days=DAYS - 1)
    points = [point for point in history.points if date_of(point) >= first]
    return replace(history, points=points, total=total_of(points))


def _dating(step: timedelta, zone: tzinfo) -> Callable[[RunStats], date]:
    return lambda point: (point.start + step / 2).astimezone(zone).date()


def note_on(days: Sequence[Day], zone: tzinfo) -> str:
    """Return a sentence that says when these days begin."""
    begins = {day.stats.start.astimezone(zone) for day in days}
    odd = sorted({f"{begin:%H:%M}" for begin in begins if begin.minute})
    if odd:
        return f"Runs are counted by the hours of UTC, so days in {zone} are taken to begin at {' or '.join(odd)}."
    return f"Days begin at midnight in {zone}." if zone is not UTC else "Days begin at midnight UTC."


def total_of(some: Iterable[RunStats]) -> RunStats:
    """Sum up the counts of one or more periods."""
    return reduce(plus, some)


def plus(one: RunStats, other: RunStats) -> RunStats:
    """Add up the counts of two queues, or of two periods."""
    counts = {name: count + getattr(other, name) for name, count in outcomes_of(one).items()}
    run, wait = (
        Durations(tuple(map(add, left.counts, right.counts)))
        for left, right in ((one.run, other.run), (one.wait, other.wait))
    )
    return RunStats(min(one.start, other.start), **counts, run=run, wait=wait)
