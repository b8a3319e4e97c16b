"""Charts of the runs that fastq's servers have counted, of one queue or of all queues that a user sees."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from heapq import nlargest
from operator import itemgetter
from typing import Final

from starlette.responses import Response

from fastq.errors import QueueNotFoundError
from fastq.inspector import Durations, RunStats
from fastq.inspector.runs import OTHERS, outcomes_of
from fastq.text.human import bound_text
from fastq.web.days import Day, days_of, last_days, note_on, plus, total_of, zone_of
from fastq.web.past import each_history
from fastq.web.render import page
from fastq.web.site import Call, Refusal, Route

HOUR: Final = timedelta(hours=1)
SPANS: Final = {"1h": (HOUR, 1), "8h": (8 * HOUR, 5), "24h": (24 * HOUR, 1), "14d": (336 * HOUR, 0)}
"""The periods that can be shown, each with its length and the number of minutes or hours in a bar (0: a day)."""
MOST_TYPES: Final = 200


@dataclass(frozen=True, slots=True)
class Bar:
    """The runs that ended in a period, and the heights of its bars, from 0 to 100; ``label`` names the period."""

    stats: RunStats
    end: datetime
    label: str
    is_day: bool
    done: float
    failed: float
    run: tuple[float, float]
    wait: tuple[float, float]


def bars_of(points: Sequence[RunStats], step: timedelta, width: int, zone: tzinfo = UTC) -> list[Bar]:
    """Return the bars of a chart, ``width`` points in each; durations are drawn on a logarithmic scale."""
    stats = [total_of(points[at : at + width]) for at in range(0, len(points), width)]
    ends = [each.start + step * width for each in stats]
    labels = [_label(each.start.astimezone(zone), end.astimezone(zone)) for each, end in zip(stats, ends, strict=True)]
    return _bars(stats, ends, labels, are_days=False)


def bars_of_days(days: Sequence[Day]) -> list[Bar]:
    """Return a bar for each day; the last day is today."""
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
    """Return the buckets, counted from 1, that contain the 50% and 95% quantiles; 0 if there are no durations."""
    found = []
    for share in (0.5, 0.95):
        passed, place = 0, 0
        while times.count and passed < share * times.count:
            passed += times.counts[place]
            place += 1
        found.append(place)
    return found[0], found[1]


async def history(call: Call) -> Response:
    """Show how runs ended, of one queue or of all."""
    params = call.request.query_params
    wanted, since, asked = params.get("queue", ""), params.get("since", "1h"), zone_of(call)
    if since not in SPANS:
        raise Refusal(400, f"since={since!r}: write one of {', '.join(SPANS)}")
    names = sorted(await call.view.queues())
    if wanted and wanted not in names:
        raise Refusal(404, str(QueueNotFoundError(wanted)))
    length, width = SPANS[since]
    zone = asked or UTC
    points, rows, types = await _read(call, [wanted] if wanted else names, length, None if width else zone)
    days = days_of(points, HOUR, zone) if not width else []
    step = points[1].start - points[0].start if points else HOUR
    return page(
        call,
        "history.jinja",
        title=f"History of {wanted}" if wanted else "History",
        section="history",
        queue=wanted,
        queues=names,
        left_out=max(0, len(types) - MOST_TYPES),
        since=since,
        spans=list(SPANS),
        zone=str(asked or ""),
        days=note_on(days, zone) if not width else "",
        bars=bars_of(points, step, width, zone) if width else bars_of_days(days),
        total=total_of(points) if points else None,
        rows=rows,
        others=list(OTHERS),
        types=sorted(nlargest(MOST_TYPES, types, key=lambda each: each[2].processed), key=itemgetter(0, 1)),
        by_type=length <= SPANS["8h"][0],
        quantile=lambda times, share: bound_text(times.quantile(share)),
    )


async def _read(
    call: Call, names: Sequence[str], length: timedelta, zone: tzinfo | None
) -> tuple[list[RunStats], list[tuple[str, RunStats]], list[tuple[str, str, RunStats]]]:
    """Return the sum of all queues' points, the total of each queue, and the totals of its types.

    With a ``zone`` the histories are reduced to the last days in this zone. Each queue's points are added to the sum at
    once, because the points of a thousand queues would not fit into memory.
    """
    points: dict[datetime, RunStats] = {}
    rows, types = [], []
    most = 0
    async for name, found in each_history(call.inspector, names, length, by_type=length <= SPANS["8h"][0]):
        history = found if zone is None else last_days(found, zone)
        most = max(most, len(history.points))
        for point in history.points:
            points[point.start] = plus(points[point.start], point) if point.start in points else point
        if any(outcomes_of(history.total).values()):
            rows.append((name, history.total))
            types += [(name, of, stats) for of, stats in history.types.items()]
    # If a minute began between two reads, there is one point too many at the beginning.
    return [points[start] for start in sorted(points)[-most:]] if most else [], rows, types


HISTORY: Final = [Route("GET", "/history", history, live_s=5)]
"""The page of the history."""
