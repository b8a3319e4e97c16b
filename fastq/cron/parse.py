"""Read a cron spec: an optional zone, then a descriptor or five fields."""

from datetime import UTC, tzinfo
from typing import Final

from fastq.common.durations import parse_duration
from fastq.common.go_space import GO_SPACE
from fastq.cron.fields import read_fields
from fastq.cron.schedule import CalendarSchedule, IntervalSchedule, Schedule
from fastq.cron.zone import load_zone
from fastq.errors import CronSpecError

__all__ = ["parse"]

_EVERY: Final = "@every "
_SECOND_NS: Final = 1_000_000_000
DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def parse(spec: str, tz: str | tzinfo = "UTC") -> Schedule:
    """Read a spec as asynq does: ``*/5 9-17 * * mon-fri``, ``@every 1h30m``, ``CRON_TZ=Asia/Tokyo @daily``.

    ``tz`` applies if the spec names no zone. ``CronSpecError`` has the position and the reason; an unknown ``tz``
    raises ``ValueError``.
    """
    if not isinstance(spec, str):
        raise TypeError(f"a cron spec must be a str, not {type(spec).__name__}: {spec!r}")
    zone = load_zone(tz)
    start, end = 0, len(spec)
    if spec.startswith(("TZ=", "CRON_TZ=")):
        zone, start = _read_zone(spec, zone)
        start = end - len(spec[start:].lstrip(GO_SPACE))
        end = max(start, len(spec.rstrip(GO_SPACE)))
    if spec.startswith("@", start):
        return _read_descriptor(spec, start, end, zone)
    if not spec:
        raise CronSpecError(spec, 0, "it is empty")
    return CalendarSchedule(spec, zone, read_fields(spec, start).expression())


def _read_zone(spec: str, default: tzinfo) -> tuple[tzinfo, int]:
    """Return the zone at the start of a spec, and its end; a space must follow, not just any white space."""
    start = spec.index("=") + 1
    end = spec.find(" ", start)
    if end < 0:
        raise CronSpecError(spec, len(spec), "after the time zone there must be a space and a schedule")
    name = spec[start:end]
    if name in ("", "Local"):
        return default if name else UTC, end
    try:
        return load_zone(name), end
    except ValueError as error:
        raise CronSpecError(spec, start, str(error)) from None


def _read_descriptor(spec: str, start: int, end: int, zone: tzinfo) -> Schedule:
    text = spec[start:end]
    if text in DESCRIPTORS:
        return CalendarSchedule(spec, zone, DESCRIPTORS[text])
    if not text.startswith(_EVERY):
        known = ", ".join([*DESCRIPTORS, "@every <duration>"])
        raise CronSpecError(spec, start, f"unknown descriptor {text!r}; known are {known}")
    try:
        every_ns = parse_duration(text.removeprefix(_EVERY))
    except ValueError as error:
        raise CronSpecError(spec, start + len(_EVERY), str(error)) from None
    return IntervalSchedule(spec, zone, max(every_ns // _SECOND_NS, 1))
