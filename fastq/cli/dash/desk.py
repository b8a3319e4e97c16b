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
from fastq.inspector import AsyncInspector, QueueInfo
from fastq.inspector.checks import check_queue
from fastq.redis_url import is_cluster

__all__ = ["Desk", "Options"]

AT_ONCE: Final = 4
"""The number of queues that are read at once, each over its own connection."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options: the refresh interval in seconds, whether changes are forbidden, and the queue to start with."""

    url: str
    refresh_s: float = 8.0
    read_only: bool = False
    queue: str | None = None


class Desk:
    """The connections, and the last reading of all queues; ``queues`` is None before the first one."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.inspector = AsyncInspector(options.url)
        self.health = Health()
        self.tracks = Tracks()
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

    async def look(self) -> None:
        """Read all queues."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def describe(name: str) -> QueueInfo | None:
            with suppress(QueueNotFoundError):  # deleted since it was listed
                async with turns:
                    return await self.inspector.get_queue_info(name)
            return None

        names = _askable(await self.inspector.queues())
        found = await asyncio.gather(*map(describe, names))
        self.queues = [info for info in found if info is not None]
        self.tracks.note(self.queues)
        self.looked_at = datetime.now(UTC)

    async def close(self) -> None:
        """Close the connections."""
        await self.inspector.close()


def _askable(names: Sequence[str]) -> list[str]:
    """Leave out invalid names, which any program may list."""
    askable = []
    for name in names:
        with suppress(ValueError):
            askable.append(check_queue(name))
    return askable
