"""A schedule in words: ``every weekday at 06:00``."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from fastq.common.durations import format_duration
from fastq.cron.fields import Fields, read_fields
from fastq.cron.parse import DESCRIPTORS, parse
from fastq.cron.schedule import IntervalSchedule, Schedule
from fastq.errors import CronSpecError

_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
MOST_TIMES: Final = 4


def words_of(spec: str, tick: datetime | None = None) -> str:
    """Return a spec in words; "" if that takes too many words, or if the text is not a spec.

    A spec without a zone is taken as UTC, as fastq's schedulers publish it. Go's schedulers never publish their zone.
    So if ``tick`` is not a tick of the spec in UTC, the spec's zone is unknown.
    """
    try:
        schedule = parse(spec)
    except (CronSpecError, ValueError):
        return ""
    if isinstance(schedule, IntervalSchedule):
        return f"every {format_duration(schedule.every_s * 1_000_000_000)}"
    is_utc = tick is None or is_tick(schedule, tick)
    zone, spec = " UTC" if is_utc else " in the scheduler's time zone", spec.strip()
    if spec.startswith(("TZ=", "CRON_TZ=")):
        head, _, spec = spec.partition(" ")
        zone = f" in {head.partition('=')[2]}"
    fields = read_fields(DESCRIPTORS.get(spec.strip(), spec), 0)
    times, days = _times(fields), _days(fields)
    if not times or days is None:
        return ""
    if times.startswith("at "):
        return f"{days or 'every day'} {times}{zone}"
    if zone == " UTC":  # the zone does not matter for a task that runs every few minutes of all hours
        zone = " in UTC" if days or " from " in times else ""
    return f"{times}{f', {days}' if days else ''}{zone}"


def is_tick(schedule: Schedule, moment: datetime) -> bool:
    """Return whether a schedule has a tick at a moment."""
    return schedule.next(moment - timedelta(seconds=1)) == moment


def _times(fields: Fields) -> str:
    minutes, hours = sorted(fields.minute.values), sorted(fields.hour.values)
    all_hours = len(hours) == 24
    if len(minutes) == 60:
        return _within(hours, "every minute")
    if len(minutes) * len(hours) <= MOST_TIMES:
        return f"at {_listed(f'{hour:02}:{minute:02}' for hour in hours for minute in minutes)}"
    if step := _step(minutes, 60):
        return _within(hours, f"every {step} minutes")
    if all_hours:
        return "every hour" if minutes == [0] else f"every hour at minute {_listed(map(str, minutes))}"
    if minutes == [0] and (step := _step(hours, 24)):
        return f"every {step} hours"
    return ""


def _within(hours: list[int], text: str) -> str:
    if len(hours) == 24:
        return text
    if hours == list(range(hours[0], hours[-1] + 1)):
        return f"{text} from {hours[0]:02}:00 to {hours[-1]:02}:59"
    return ""


def _step(values: list[int], size: int) -> int:
    """Return the distance between values that are evenly spread over the whole range, 0 if they are not."""
    step = values[1] - values[0] if len(values) > 1 else 0
    return step if step > 1 and size % step == 0 and values == list(range(0, size, step)) else 0


def _days(fields: Fields) -> str | None:
    """Return the days in words, empty for all days, None if the words would be too many."""
    days, weekdays = sorted(fields.day.values), sorted(fields.weekday.values)
    all_days, all_weekdays, all_months = len(days) == 31, len(weekdays) == 7, len(fields.month.values) == 12
    months = "" if all_months else f" of {_listed(_MONTHS[number - 1] for number in sorted(fields.month.values))}"
    if all_weekdays and all_days:
        return "" if all_months else f"every day{months}"
    if all_weekdays and len(days) <= MOST_TIMES:
        return f"on the {_listed(map(_nth, days))}{months or ' of every month'}"
    if all_days and all_months:
        if weekdays == [1, 2, 3, 4, 5]:
            return "every weekday"
        return f"every {_listed(_DAYS[number] for number in weekdays)}"
    return None


def _nth(number: int) -> str:
    return f"{number}{'th' if number in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
