"""The description of all queues, some at a time."""

import asyncio
from typing import Final

from fastq.errors import QueueNotFoundError
from fastq.inspector import QueueInfo
from fastq.web.view import View

__all__ = ["queue_infos"]

AT_ONCE: Final = 8


async def queue_infos(view: View) -> list[QueueInfo]:
    """Describe all queues, by name; one that is deleted meanwhile is left out."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def describe(name: str) -> QueueInfo | None:
        async with turn:
            try:
                return await view.inspector.get_queue_info(name)
            except QueueNotFoundError:
                return None

    found = await asyncio.gather(*map(describe, sorted(await view.queues())))
    return [info for info in found if info is not None]
