"""Time zones by the names that Go knows: those of the IANA database, in their exact spelling."""

from datetime import UTC, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, available_timezones


def load_zone(name: str | tzinfo) -> tzinfo:
    """Return the zone with a name, or a ``tzinfo`` unchanged; ``ValueError`` for unknown names, ``TypeError``
    otherwise.
    """
    if isinstance(name, tzinfo):
        return name
    if not isinstance(name, str):
        raise TypeError(f"a time zone must be a name such as 'Europe/Paris', or a tzinfo, not {name!r}")
    if name == "UTC":
        return UTC
    # Look the name up in the list: ``ZoneInfo`` would accept more names on a case-insensitive file system.
    if name not in _names():
        raise ValueError(f"unknown time zone {name!r}{_hint(name)}")
    return ZoneInfo(name)


@cache
def _names() -> frozenset[str]:
    return frozenset(available_timezones())


def _hint(name: str) -> str:
    if not _names():
        return "; this machine has no time zone data: install the package tzdata"
    folded = name.casefold()
    close = next((known for known in sorted(_names()) if known.casefold() == folded), None)
    return f"; did you mean {close!r}?" if close else ", names are like 'Europe/Paris'"
