"""The history of runs as charts: what fastq's servers counted, of one queue or of all that a user sees."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import add
from typing import Final

from starlette.responses import Response

from fastq.cli.human import bound_text
from fastq.errors import QueueNotFoundError
from fastq.inspector import Durations, RunHistory, RunStats
from fastq.web.render import page
from fastq.web.site import Call, Refusal, Route

__all__ = ["HISTORY", "Bar", "bars_of"]

HOUR: Final = timedelta(hours=1)
SPANS: Final = {"1h": (HOUR, 1), "8h": (8 * HOUR, 5), "24h": (24 * HOUR, 1), "14d": (336 * HOUR, 4)}
"""The times that are shown, each with how many minutes or hours a bar has."""
MOST_QUEUES: Final = 60
AT_ONCE: Final = 8
_COUNTS: Final = ("done", "failed", "retried", "archived", "lost")


@dataclass(frozen=True, slots=True)
class Bar:
    """What ended in a time, and the heights of it in a chart, from 0 to 100."""

    stats: RunStats
    end: datetime
    done: float
    failed: float
    run: tuple[float, float]
    wait: tuple[float, float]


def bars_of(points: Sequence[RunStats], step: timedelta, width: int) -> list[Bar]:
    """Return the bars of a chart, ``width`` points in each; times stand at the logarithm of their bounds."""
    stats = [_sum(some) for some in _batches(points, width)]
    most = max((each.processed for each in stats), default=0) or 1
    slowest = max((place for each in stats for times in (each.run, each.wait) for place in _places(times)), default=0)

    def heights(times: Durations) -> tuple[float, float]:
        half, nearly_all = (round(100 * place / (slowest or 1), 2) for place in _places(times))
        return half, nearly_all

    return [
        Bar(
            each,
            each.start + step * width,
            round(100 * each.done / most, 2),
            round(100 * each.failed / most, 2),
            heights(each.run),
            heights(each.wait),
        )
        for each in stats
    ]


def _batches(points: Sequence[RunStats], width: int) -> Iterable[Sequence[RunStats]]:
    return (points[at : at + width] for at in range(0, len(points), width))


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


def _sum(some: Iterable[RunStats]) -> RunStats:
    return reduce(_plus, some)


def _plus(one: RunStats, other: RunStats) -> RunStats:
    counts = {name: getattr(one, name) + getattr(other, name) for name in _COUNTS}
    run, wait = (
        Durations(tuple(map(add, left.counts, right.counts)))
        for left, right in ((one.run, other.run), (one.wait, other.wait))
    )
    return RunStats(min(one.start, other.start), **counts, run=run, wait=wait)


async def history(call: Call) -> Response:
    """Show what became of runs, of one queue or of all."""
    params = call.request.query_params
    wanted, since = params.get("queue", ""), params.get("since", "1h")
    if since not in SPANS:
        raise Refusal(400, f"since={since!r}: write one of {', '.join(SPANS)}")
    names = sorted(await call.view.queues())
    if wanted and wanted not in names:
        raise Refusal(404, str(QueueNotFoundError(wanted)))
    length, width = SPANS[since]
    found = await _read(call, [wanted] if wanted else names[:MOST_QUEUES], length)
    points = [_sum(some) for some in zip(*(each.points for each in found), strict=True)] if found else []
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
        bars=bars_of(points, found[0].step, width) if found else [],
        total=_sum(points) if points else None,
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
    return any(getattr(total, name) for name in _COUNTS)


HISTORY: Final = [Route("GET", "/history", history, live_s=5)]
"""The page of the history."""
