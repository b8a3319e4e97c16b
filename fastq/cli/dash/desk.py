"""The shared state of the dashboard's views: the connections, the last snapshot, and the health of Redis."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from fastq.cli.dash.health import Health
from fastq.cli.dash.tracks import Tracks
from fastq.errors import QueueNotFoundError
from fastq.inspector import AsyncInspector, QueueInfo, RunHistory
from fastq.inspector.checks import check_queue
from fastq.redis_url import is_cluster

AT_ONCE: Final = 4
"""The number of queues that are read at once, each over its own connection."""
HISTORY_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Options:
    """The options: the refresh interval in seconds, whether changes are forbidden, and the queue to start with."""

    url: str
    refresh_s: float = 8.0
    read_only: bool = False
    queue: str | None = None


class Desk:
    """The connections, and the last snapshot of all queues; ``queues`` is None before the first snapshot."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.inspector = AsyncInspector(options.url)
        self.health = Health()
        self.tracks = Tracks()
        self._histories: dict[str, RunHistory] = {}
        self.queues: Sequence[QueueInfo] | None = None
        self.looked_at: datetime | None = None
        self.said = ""

    @property
    def is_cluster(self) -> bool:
        """Return whether the URL names a cluster."""
        return is_cluster(self.options.url)

    def queue(self, name: str) -> QueueInfo | None:
        """Return the last snapshot of a queue."""
        return next((info for info in self.queues or () if info.queue == name), None)

    def lately(self, queue: str) -> Sequence[float | None]:
        """Return the recent runs of a queue by minute, without the current minute. If only Go serves the queue, return
        the rates that this dashboard has observed.
        """
        history = self._histories.get(queue)
        minutes = [point.processed for point in history.points[:-1]] if history is not None else []
        return minutes if any(minutes) else self.tracks.of(queue).processed

    async def look(self) -> None:
        """Read all queues."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def describe(name: str) -> tuple[QueueInfo, RunHistory] | None:
            with suppress(QueueNotFoundError):  # the queue was deleted after it was listed
                async with turns:
                    info = await self.inspector.get_queue_info(name)
                    return info, await self.inspector.run_history(name, HISTORY_S)
            return None

        names = _askable(await self.inspector.queues())
        found = [one for one in await asyncio.gather(*map(describe, names)) if one is not None]
        self.queues = [info for info, _ in found]
        self._histories = {history.queue: history for _, history in found}
        self.tracks.note(self.queues)
        self.looked_at = datetime.now(UTC)

    async def close(self) -> None:
        """Close the connections."""
        await self.inspector.close()


def _askable(names: Sequence[str]) -> list[str]:
    """Leave out invalid names, since any program can add names to the list of queues."""
    askable = []
    for name in names:
        with suppress(ValueError):
            askable.append(check_queue(name))
    return askable
