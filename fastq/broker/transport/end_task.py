"""Cancels an asyncio task and waits for its end."""

import asyncio
from typing import Any, Final

CANCEL_AGAIN_S: Final = 0.1


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel an asyncio task and wait for its end; its error, if any, is dropped.

    It is canceled again if necessary. ``wait_for`` (before Python 3.12) and parts of redis-py swallow a cancellation
    that coincides with the end of a wait, and the coroutine would go on.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_AGAIN_S)
    if not task.cancelled():
        task.exception()
