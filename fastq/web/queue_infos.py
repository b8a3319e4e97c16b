"""The description of all queues, some at a time."""

import asyncio
from typing import Final

from fastq.errors import QueueNotFoundError
from fastq.inspector import AsyncInspector, QueueInfo

__all__ = ["queue_infos"]

AT_ONCE: Final = 8


async def queue_infos(inspector: AsyncInspector) -> list[QueueInfo]:
    """Describe all queues, by name; one that is deleted meanwhile is left out."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def describe(name: str) -> QueueInfo | None:
        async with turn:
            try:
                return await inspector.get_queue_info(name)
            except QueueNotFoundError:
                return None

    found = await asyncio.gather(*map(describe, sorted(await inspector.queues())))
    return [info for info in found if info is not None]
