"""Choose which ticks of a schedule to enqueue, when some may have been missed. This module does no I/O.

All times are in UTC, because Python calculates with two times of the same zone as if its clocks never changed.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from fastq.cron.schedule import IntervalSchedule, Schedule

MAX_MADE_UP: Final = 1000
"""The largest number of missed ticks of an entry that are enqueued."""
MAX_LEFT_OUT: Final = 1000
"""The largest number of missed ticks of an entry that are counted at once, because counting steps through them."""
GIVE_UP_AFTER: Final = timedelta(seconds=60)
"""With ``Missed.SKIP``, for how long after the first failure fastq tries to enqueue a tick."""

_FIRST_SPAN: Final = timedelta(hours=1)
_MIN_TTL_S: Final = 3600
_MAX_TTL_S: Final = 90 * 86_400

SURELY_KNOWN: Final = timedelta(seconds=_MIN_TTL_S // 2)
"""For this long after a tick is due, Redis surely knows whether it was enqueued, even if clocks differ."""


class Missed(StrEnum):
    """The policies for ticks that were due while no scheduler ran, or while Redis did not answer."""

    SKIP = "skip"
    """Enqueue no missed tick. But a running scheduler that wakes late enqueues the latest one, as in asynq."""

    ONCE = "once"
    """Enqueue only the latest missed tick, late."""

    ALL = "all"
    """Enqueue each missed tick, the oldest first, but only the latest 1000."""


class Pick(NamedTuple):
    """The ticks to enqueue, oldest first; the latest tick that is due; and whether missed ticks are left out."""

    ticks: list[datetime]
    latest: datetime
    leaves_out: bool


def next_tick(schedule: Schedule, after: datetime) -> datetime | None:
    """Return the schedule's next tick in UTC."""
    tick = schedule.next(after)
    return None if tick is None else tick.astimezone(UTC)


def pick_ticks(schedule: Schedule, after: datetime, now: datetime, missed: Missed) -> Pick | None:
    """Choose among the ticks later than ``after`` and not later than ``now``; None if there are none."""
    most = MAX_MADE_UP if missed is Missed.ALL else 1
    due = _latest(schedule, after, now, most + 1)
    if not due:
        return None
    chosen = due[-most:]
    return Pick(chosen, due[-1], len(chosen) < len(due))


def count_left_out(schedule: Schedule, after: datetime, pick: Pick) -> int:
    """Return how many ticks after ``after`` a pick leaves out, ``MAX_LEFT_OUT`` at most."""
    kept = len(pick.ticks)
    return len(_latest(schedule, after, pick.latest, kept + MAX_LEFT_OUT)) - kept if pick.leaves_out else 0


def _latest(schedule: Schedule, after: datetime, now: datetime, count: int) -> list[datetime]:
    """Return the latest ``count`` ticks, without stepping through all ticks since ``after``."""
    span = _FIRST_SPAN
    while True:
        begin = max(after, _on_grid(schedule, after, now - span))
        ticks = list(_between(schedule, begin, now))
        if begin == after or len(ticks) >= count:
            return ticks[-count:]
        span *= 4


def _between(schedule: Schedule, after: datetime, now: datetime) -> Iterator[datetime]:
    tick = next_tick(schedule, after)
    while tick is not None and tick <= now:
        yield tick
        tick = next_tick(schedule, tick)


def _on_grid(schedule: Schedule, after: datetime, moment: datetime) -> datetime:
    """Return ``moment``, but for an interval the tick before it: the ticks of an interval count from ``after``."""
    if not isinstance(schedule, IntervalSchedule):
        return moment
    every = timedelta(seconds=schedule.every_s)
    return after + (moment - after) // every * every


def begin_at(schedule: Schedule, now: datetime, *, shared: bool) -> datetime:
    """Return the time from which ticks count for a scheduler that starts now.

    The ticks of a shared entry must be the same in each scheduler, so its intervals count from the Unix epoch.
    """
    now = now.replace(microsecond=0)
    if shared and isinstance(schedule, IntervalSchedule):
        return now - timedelta(seconds=int(now.timestamp()) % schedule.every_s)
    return now


def tick_ttl_s(schedule: Schedule, tick: datetime, missed: Missed) -> int:
    """Return how long Redis must remember that a tick was enqueued: about as long as another scheduler may still try
    it. This time is too short if later ticks are closer together than this tick and the next. So with ``Missed.ALL``, a
    late scheduler first asks Redis for the last tick that was enqueued.
    """
    following = next_tick(schedule, tick)
    gap_s = _MAX_TTL_S if following is None else int((following - tick).total_seconds())
    tried_s = gap_s * (MAX_MADE_UP if missed is Missed.ALL else 2)
    return min(max(tried_s, _MIN_TTL_S), _MAX_TTL_S)
