"""A cache of queues' histories, since an open page is rendered every two seconds."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import date, timedelta
from typing import Final

from fastq.errors import QueueNotFoundError
from fastq.inspector import AsyncInspector, DailyStats, QueueInfo, RunHistory

DAYS: Final = 14
DAYS_KEPT_S: Final = 600.0
LATELY_KEPT_S: Final = 10.0
LATELY: Final = timedelta(hours=1)
A_DAY: Final = timedelta(days=1)
AT_ONCE: Final = 8


class Past:
    """The last days and the last hour of queues, cached for a while after they were read."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._days: dict[str, tuple[float, date, Sequence[DailyStats]]] = {}
        self._lately: dict[str, tuple[float, RunHistory | None]] = {}

    async def days(self, inspector: AsyncInspector, infos: Sequence[QueueInfo]) -> dict[str, Sequence[DailyStats]]:
        """Return the last UTC days of queues, the oldest first; finished days are read only once."""
        now_s = self._clock_s()
        self._days = {queue: kept for queue, kept in self._days.items() if now_s < kept[0] + 2 * DAYS_KEPT_S}
        stale = [info.queue for info in infos if info.processed_total and not self._knows_days(info, now_s)]
        read = await inspector.histories(stale, DAYS) if stale else {}
        today = {info.queue: info.timestamp.date() for info in infos}
        for queue in stale:
            before = [day for day in reversed(read.get(queue, ())) if day.date < today[queue]]
            self._days[queue] = now_s, today[queue], before
        return {
            info.queue: (
                *(self._days[info.queue][2] if info.queue in self._days else ()),
                DailyStats(info.queue, info.processed, info.failed, today[info.queue]),
            )
            for info in infos
        }

    def _knows_days(self, info: QueueInfo, now_s: float) -> bool:
        kept = self._days.get(info.queue)
        return kept is not None and kept[1] == info.timestamp.date() and now_s < kept[0] + DAYS_KEPT_S

    async def lately(self, inspector: AsyncInspector, infos: Sequence[QueueInfo]) -> dict[str, RunHistory | None]:
        """Return the last hour of the queues with failed runs; None for a queue that no fastq server serves. Go's
        servers count only by day.
        """
        now_s = self._clock_s()
        self._lately = {queue: kept for queue, kept in self._lately.items() if now_s < kept[0] + 2 * LATELY_KEPT_S}
        names = [info.queue for info in infos if _has_failed(info)]
        stale = [name for name in names if name not in self._lately or now_s >= self._lately[name][0] + LATELY_KEPT_S]
        async for queue, history in each_history(inspector, stale, LATELY):
            self._lately[queue] = now_s, history
        idle = [name for name in stale if (kept := self._lately.get(name)) and kept[1] and not kept[1].total.processed]
        async for queue, history in each_history(inspector, idle, A_DAY):
            if not history.total.processed:
                self._lately[queue] = now_s, None
        return {name: self._lately[name][1] for name in names if name in self._lately}


def _has_failed(info: QueueInfo) -> bool:
    """Return whether runs have failed on this UTC day, or, in its first hour, on any earlier day."""
    return info.failed > 0 or (info.timestamp.hour == 0 and info.failed_total > 0)


async def each_history(
    inspector: AsyncInspector, names: Sequence[str], length: timedelta, *, by_type: bool = False
) -> AsyncIterator[tuple[str, RunHistory]]:
    """Yield the histories of queues, with a few reads at a time; a queue that is deleted meanwhile is left out."""

    async def read(name: str) -> RunHistory | None:
        with suppress(QueueNotFoundError):
            return await inspector.run_history(name, length, by_type=by_type)
        return None

    for at in range(0, len(names), AT_ONCE):
        some = names[at : at + AT_ONCE]
        for name, history in zip(some, await asyncio.gather(*map(read, some)), strict=True):
            if history is not None:
                yield name, history
