"""The descriptions of queues. Tasks in very many groups are counted now and then, all else each time."""

import asyncio
import time
from typing import Final

from fastq.errors import QueueNotFoundError
from fastq.inspector import AsyncInspector, QueueInfo
from fastq.web.view import View

__all__ = ["QueueInfos", "queue_infos"]

AT_ONCE: Final = 8
MANY_GROUPS: Final = 1_000
COUNTED_EVERY_S: Final = 30.0


class QueueInfos:
    """The descriptions of queues, and of those with very many groups when and how many tasks were counted in them."""

    def __init__(self, inspector: AsyncInspector) -> None:
        self._inspector = inspector
        self._counted: dict[str, tuple[float, int]] = {}

    async def get(self, queue: str) -> QueueInfo:
        """Describe a queue; ``QueueNotFoundError`` if there is none."""
        counted_s, count = self._counted.get(queue, (0.0, None))
        now_s = time.monotonic()
        if count is not None and now_s - counted_s < COUNTED_EVERY_S:
            info = await self._inspector.get_queue_info(queue, aggregating=count)
            if info.groups > MANY_GROUPS:
                return info
        elif count is not None:
            self._counted[queue] = now_s, count  # while this one counts, others take the old number
        info = await self._inspector.get_queue_info(queue)
        if info.groups > MANY_GROUPS:
            self._counted[queue] = time.monotonic(), info.aggregating
        else:
            self._counted.pop(queue, None)
        return info


async def queue_infos(view: View, infos: QueueInfos) -> list[QueueInfo]:
    """Describe all queues, by name; one that is deleted meanwhile is left out."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def describe(name: str) -> QueueInfo | None:
        async with turn:
            try:
                return await infos.get(name)
            except QueueNotFoundError:
                return None

    found = await asyncio.gather(*map(describe, sorted(await view.queues())))
    return [info for info in found if info is not None]
