"""The series on asynqmon's page of metrics as charts, read from Prometheus: of one queue, or of all visible queues."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

import msgspec
from starlette.responses import Response

from fastq.errors import QueueNotFoundError
from fastq.text.human import number, size, span
from fastq.web.access import Role
from fastq.web.prometheus import Times, ask, selector_of, without_password
from fastq.web.render import page
from fastq.web.site import Call, Refusal, Route
from fastq.web.work import Work

HOUR_S: Final = 3_600
SPANS: Final = {"1h": HOUR_S, "6h": 6 * HOUR_S, "24h": 24 * HOUR_S, "8d": 192 * HOUR_S, "30d": 720 * HOUR_S}
POINTS: Final = 180
MOST_QUEUES: Final = 60
MOST_LINES: Final = 8
SETTLE_S: Final = 3.0
KEPT_S: Final = 10.0
"""How long replies are shown before Prometheus is asked again."""
LONGEST_ERROR: Final = 300
LOOKBACK_S: Final = 300
"""How far back Prometheus takes the last value of a series, and the time over which asynqmon computes a rate."""


@dataclass(frozen=True, slots=True)
class _Series:
    """What a chart shows: a gauge, the rate of a counter, or the quotient of two rates; ``form`` formats a value."""

    title: str
    about: str
    form: Callable[[float], str]
    gauge: str = ""
    counters: tuple[str, ...] = ()

    def query_of(self, queues: Sequence[str], step_s: int) -> str:
        """Return the query.

        A rate is computed over the step, but over at least ``LOOKBACK_S``. For a gauge, a point is the last value, or
        the highest value in the step if the step is longer than ``LOOKBACK_S``. If several exporters report a queue,
        the highest value counts.
        """
        selector = selector_of(queues)
        if self.counters:
            window_s = max(LOOKBACK_S, step_s)
            text = " / ".join(f"rate({name}{{{selector}}}[{window_s}s])" for name in self.counters)
        else:
            text = f"{self.gauge}{selector}}}"
            text = f"max_over_time({text}[{step_s}s])" if step_s > LOOKBACK_S else text
        return f"max by (queue) ({text})"


def _rate(value: float) -> str:
    return f"{value:,.0f}/s" if value >= 100 else f"{value:.3g}/s"


def _share(value: float) -> str:
    return f"{value:.2%}"


def _count(value: float) -> str:
    return number(round(value))


def _size(value: float) -> str:
    return size(round(value))


def _span(value: float) -> str:
    return span(timedelta(seconds=value))


_PROCESSED: Final = "asynq_tasks_processed_total"
_FAILED: Final = "asynq_tasks_failed_total"
_ALL: Final = (
    _Series("Runs", "ended, a second", _rate, counters=(_PROCESSED,)),
    _Series("Failed runs", "a second", _rate, counters=(_FAILED,)),
    _Series("Errors", "share of runs that failed", _share, counters=(_FAILED, _PROCESSED)),
    _Series("Tasks", "in all states", _count, "asynq_queue_size{"),
    _Series("Latency", "age of the oldest pending task", _span, "asynq_queue_latency_seconds{"),
    _Series("Memory", "estimated", _size, "asynq_queue_memory_usage_approx_bytes{"),
    *(
        _Series(title, "tasks", _count, f'asynq_tasks_enqueued_total{{state="{title.lower()}",')
        for title in ("Pending", "Retry", "Archived")
    ),
)
"""In asynqmon's order."""


@dataclass(frozen=True, slots=True)
class Line:
    """A queue's line in a chart: its last value, and its points in an area of 1000 by 100, with gaps for missing
    values.
    """

    queue: str
    last: str
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """The lines of a chart; ``most`` is the value at its top."""

    title: str
    about: str
    most: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class _Told:
    """The charts of the last reply; ``trouble`` says why there is no newer reply."""

    charts: Sequence[Chart] = ()
    colours: Mapping[str, int] = field(default_factory=dict)
    start: datetime | None = None
    end: datetime | None = None
    left_out: int = 0
    trouble: str = ""


async def charts(call: Call) -> Response:
    """Show the charts; while somebody has the page open, Prometheus is queried again and again."""
    asked = call.request.query_params
    wanted, since = asked.get("queue", ""), asked.get("since", "1h")
    if since not in SPANS:
        raise Refusal(400, f"since={since!r}: write one of {', '.join(SPANS)}")
    names = sorted(await call.view.queues())
    if wanted and wanted not in names:
        raise Refusal(404, str(QueueNotFoundError(wanted)))
    now_s = int(time.time())
    until = call.number("until", now_s, now_s) if asked.get("until") else None
    work = _look(call, [wanted] if wanted else names[:MOST_QUEUES], since, until) if call.site.prometheus else None
    if work is not None:
        await work.settle(0.0 if call.is_live else SETTLE_S)
    end_s = until or now_s
    return page(
        call,
        "charts.jinja",
        title=f"Prometheus: {wanted}" if wanted else "Prometheus",
        section="history",
        queue=wanted,
        queues=names,
        more=0 if wanted else max(0, len(names) - MOST_QUEUES),
        since=since,
        spans=list(SPANS),
        until=until,
        earlier=end_s - SPANS[since],
        later=None if until is None or until + SPANS[since] >= now_s else until + SPANS[since],
        told=work and work.result,
        is_asking=work is not None and work.is_running,
        server=without_password(call.site.prometheus) if call.user.role is Role.ADMIN and call.view.is_of_all else "",
        refreshes=work is not None and work.result is None,
    )


def _look(call: Call, names: Sequence[str], since: str, until: int | None) -> Work:
    """Return the background work that queries Prometheus; it keeps the last reply until the next one arrives."""
    board, key = call.site.board, repr(("charts", since, until, names))
    known = board.lookup(key)
    if known is not None and (known.is_running or time.monotonic() - known.ended_s < KEPT_S):
        return known

    async def do(work: Work) -> str:
        end_s = until or int(time.time())
        step_s = SPANS[since] // POINTS
        times = Times(end_s - POINTS * step_s, end_s, step_s)
        try:
            work.result = await _read(call.site.prometheus, names, times)
        except (OSError, ValueError, OverflowError) as error:  # also a bad host name, or times beyond the calendar
            work.result = replace(work.result or _Told(), trouble=str(error))
        return ""

    work = Work("Charts", call.user.name, result=known and known.result, owner=call.owner)
    return board.look_up(key, work, do)


async def _read(server: str, names: Sequence[str], times: Times) -> _Told:
    if not names:
        return _Told()
    queries = [each.query_of(names, times.step) for each in _ALL]
    replies = await ask(server, queries, times, partial(_values, times=times))
    weights: dict[str, float] = {}
    for values in replies:
        most = _most(values)
        for queue, line in values.items():
            if queue not in names:  # a reply may name any queue
                continue
            weights[queue] = weights.get(queue, 0.0) + (_most({queue: line}) / most if most else 0.0)
    chosen = sorted(weights, key=lambda queue: (-weights[queue], queue))[:MOST_LINES]
    return _Told(
        tuple(_chart(each, values, chosen, times) for each, values in zip(_ALL, replies, strict=True)),
        {queue: at for at, queue in enumerate(chosen)},
        datetime.fromtimestamp(times.start, UTC),
        datetime.fromtimestamp(times.end, UTC),
        len(weights) - len(chosen),
    )


_Values: TypeAlias = dict[str, list[tuple[float, float]]]
"""The times and values of each queue."""


class _Row(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Data(msgspec.Struct):
    result: list[_Row] = []


class _Reply(msgspec.Struct):
    """A reply to a range query."""

    status: str
    data: _Data = msgspec.field(default_factory=_Data)
    error: str = ""


def _values(body: bytes, times: Times) -> _Values:
    """Read a reply; ``OSError`` says what Prometheus objects to."""
    reply = msgspec.json.decode(body, type=_Reply)
    if reply.status != "success":
        raise OSError((reply.error or reply.status)[:LONGEST_ERROR])
    found: _Values = {}
    for row in reply.data.result:
        try:
            points = [(at, float(text)) for at, text in row.values]
        except ValueError as error:
            raise msgspec.DecodeError(str(error)) from None
        # Without runs, the share of failed runs is not a number.
        found[row.metric.get("queue", "")] = [each for each in points if math.isfinite(each[1])]
    return {queue: points for queue, points in found.items() if points}


def _most(values: _Values) -> float:
    return max((value for points in values.values() for _, value in points), default=0.0)


def _chart(series: _Series, values: _Values, queues: Sequence[str], times: Times) -> Chart:
    drawn = {queue: values[queue] for queue in queues if queue in values}
    most = _most(drawn)
    lines = [Line(queue, series.form(points[-1][1]), _pieces(points, most, times)) for queue, points in drawn.items()]
    return Chart(series.title, series.about, series.form(most), tuple(lines))


def _pieces(points: Sequence[tuple[float, float]], most: float, times: Times) -> tuple[str, ...]:
    pieces: list[list[str]] = []
    last = -math.inf
    for at, value in points:
        if at - last > 1.5 * times.step:
            pieces.append([])
        place = 1000 * (at - times.start) / (times.end - times.start)
        pieces[-1].append(f"{place:g},{100 - 100 * max(0.0, value) / (most or 1):.4g}")
        last = at
    return tuple(" ".join(piece * 2 if len(piece) == 1 else piece) for piece in pieces)  # a single point: a dot


CHARTS: Final = [Route("GET", "/history/prometheus", charts, live_s=5)]
"""The page of the charts."""
