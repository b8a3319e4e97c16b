"""The history of runs as charts: what fastq's servers counted, of one queue or of all that a user sees."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from starlette.responses import Response

from fastq.cli.human import bound_text
from fastq.errors import QueueNotFoundError
from fastq.inspector import Durations, RunHistory, RunStats
from fastq.web.days import COUNTS, Day, days_of, last_days, note_on, total_of, zone_of
from fastq.web.render import page
from fastq.web.site import Call, Refusal, Route

__all__ = ["HISTORY", "Bar", "bars_of"]

HOUR: Final = timedelta(hours=1)
SPANS: Final = {"1h": (HOUR, 1), "8h": (8 * HOUR, 5), "24h": (24 * HOUR, 1), "14d": (336 * HOUR, 0)}
"""The times that are shown, each with how many minutes or hours a bar has; 0 for the days of the viewer."""
MOST_QUEUES: Final = 60
AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Bar:
    """What ended in a time, and the heights of it in a chart, from 0 to 100; ``label`` names the time."""

    stats: RunStats
    end: datetime
    label: str
    is_day: bool
    done: float
    failed: float
    run: tuple[float, float]
    wait: tuple[float, float]


def bars_of(points: Sequence[RunStats], step: timedelta, width: int, zone: tzinfo = UTC) -> list[Bar]:
    """Return the bars of a chart, ``width`` points in each; times stand at the logarithm of their bounds."""
    stats = [total_of(points[at : at + width]) for at in range(0, len(points), width)]
    ends = [each.start + step * width for each in stats]
    labels = [_label(each.start.astimezone(zone), end.astimezone(zone)) for each, end in zip(stats, ends, strict=True)]
    return _bars(stats, ends, labels, are_days=False)


def bars_of_days(days: Sequence[Day]) -> list[Bar]:
    """Return a bar for each day, the last of which is today."""
    labels = [f"{day.date:%a} {day.date}{', until now' if day is days[-1] else _length(day)}" for day in days]
    return _bars([day.stats for day in days], [day.end for day in days], labels, are_days=True)


def _length(day: Day) -> str:
    return f", {day.hours:g} hours" if day.hours != 24 else ""


def _label(start: datetime, end: datetime) -> str:
    return f"{start:%m-%d %H:%M}\u2013{end:%H:%M %Z}"


def _bars(stats: Sequence[RunStats], ends: Sequence[datetime], labels: Sequence[str], *, are_days: bool) -> list[Bar]:
    most = max((each.processed for each in stats), default=0) or 1
    slowest = max((place for each in stats for times in (each.run, each.wait) for place in _places(times)), default=0)

    def heights(times: Durations) -> tuple[float, float]:
        half, nearly_all = (round(100 * place / (slowest or 1), 2) for place in _places(times))
        return half, nearly_all

    return [
        Bar(
            each,
            end,
            label,
            are_days,
            round(100 * each.done / most, 2),
            round(100 * each.failed / most, 2),
            heights(each.run),
            heights(each.wait),
        )
        for each, end, label in zip(stats, ends, labels, strict=True)
    ]


def _places(times: Durations) -> tuple[int, int]:
    """Return the buckets, from 1, in which half of the durations end, and 95% of them; 0 if there are none."""
    found = []
    for share in (0.5, 0.95):
        passed, place = 0, 0
        while times.count and passed < share * times.count:
            passed += times.counts[place]
            place += 1
        found.append(place)
    return found[0], found[1]


async def history(call: Call) -> Response:
    """Show what became of runs, of one queue or of all."""
    params = call.request.query_params
    wanted, since, asked = params.get("queue", ""), params.get("since", "1h"), zone_of(call)
    if since not in SPANS:
        raise Refusal(400, f"since={since!r}: write one of {', '.join(SPANS)}")
    names = sorted(await call.view.queues())
    if wanted and wanted not in names:
        raise Refusal(404, str(QueueNotFoundError(wanted)))
    length, width = SPANS[since]
    zone = asked or UTC
    found = await _read(call, [wanted] if wanted else names[:MOST_QUEUES], length)
    if not width:
        found = [last_days(each, zone) for each in found]
    points = [total_of(some) for some in zip(*(each.points for each in found), strict=True)]
    days = days_of(points, HOUR, zone) if not width else []
    return page(
        call,
        "history.jinja",
        title=f"History of {wanted}" if wanted else "History",
        section="history",
        queue=wanted,
        queues=names,
        left_out=0 if wanted else max(0, len(names) - MOST_QUEUES),
        since=since,
        spans=list(SPANS),
        zone=str(asked or ""),
        days=note_on(days, zone) if not width else "",
        bars=bars_of(points, found[0].step, width, zone) if found and width else bars_of_days(days),
        total=total_of(points) if points else None,
        rows=[(each.queue, each.total) for each in found if _is_any(each.total)],
        types=[(each.queue, name, of_type) for each in found for name, of_type in each.types.items()],
        by_type=length <= SPANS["8h"][0],
        quantile=lambda times, share: bound_text(times.quantile(share)),
    )


async def _read(call: Call, names: Sequence[str], length: timedelta) -> list[RunHistory]:
    """Read the histories of queues; one that is deleted meanwhile is left out."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def read(name: str) -> RunHistory | None:
        async with turn:
            try:
                return await call.inspector.run_history(name, length, by_type=length <= SPANS["8h"][0])
            except QueueNotFoundError:
                return None

    found = [each for each in await asyncio.gather(*map(read, names)) if each is not None]
    # A minute may have begun between two reads; their last points are one apart then.
    last = max((each.points[-1].start for each in found), default=None)
    return [each for each in found if each.points[-1].start == last]


def _is_any(total: RunStats) -> bool:
    return any(getattr(total, name) for name in COUNTS)


HISTORY: Final = [Route("GET", "/history", history, live_s=5)]
"""The page of the history."""
