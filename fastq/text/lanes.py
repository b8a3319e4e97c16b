"""Facts on lanes as text for people: names, limits, places taken, and why tasks wait."""

from datetime import UTC

from fastq.inspector.records import LaneInfo, LaneState
from fastq.text.human import clean, number


def lane_name(info: LaneInfo) -> str:
    """Return the name of a lane, or "(the queue)" for the entry of the queue as a whole."""
    return clean(info.lane) or "(the queue)"


def limit_text(info: LaneInfo) -> str:
    """Write the limit that applies to a lane, in parentheses if it comes from "*"."""
    if info.limit is None:
        return "-"
    return str(info.limit) if info.has_own_limit else f"({info.limit})"


def places_text(info: LaneInfo) -> str:
    """Write how many places are taken, and how many there are."""
    if info.running is None or info.limit is None or info.lane == "*":
        return "-"
    return f"{number(info.running)}/{number(info.limit.concurrency or 0)}"


def why(info: LaneInfo, *, names: bool = True) -> str:
    """Return why the tasks of a lane wait, "-" if none waits; ``names`` adds the ids of tasks that have the places."""
    match info.state:
        case LaneState.IDLE:
            return "-"
        case LaneState.RATE:
            return f"{_of(info)}rate until {_moment(info)}"
        case LaneState.FULL:
            return f"{_of(info)}full{_holders(info) if names else ''}"
        case state:
            return f"{_of(info)}{state}" if state is LaneState.PAUSED else state.value


def _of(info: LaneInfo) -> str:
    if info.by == info.lane:
        return ""
    return f"{clean(info.by)} " if info.by else "queue "


def _moment(info: LaneInfo) -> str:
    if info.until is None:
        return "-"
    until = info.until.astimezone(UTC)
    # With hundredths of a second, since at a rate of 5/s five starts share a second.
    return f"{until:%H:%M:%S}.{until.microsecond // 10_000:02}"


def _holders(info: LaneInfo) -> str:
    if not info.holders:
        return ""
    what = dict.fromkeys(info.lost_holders, " (lost with its server)")
    what |= dict.fromkeys(info.retried_holders, " (to be tried again)")
    names = [f"{clean(one)}{what.get(one, '')}" for one in info.holders]
    more = (info.running or 0) - len(names) if info.by == info.lane else 0
    return f": {', '.join(names)}{f' and {number(more)} more' if more > 0 else ''}"
