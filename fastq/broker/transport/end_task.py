"""The end of an asyncio task, waited for."""

import asyncio
from typing import Any, Final

__all__ = ["end_task"]

CANCEL_AGAIN_S: Final = 0.1


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end; its error, if any, is dropped.

    More than once if need be: a cancellation that meets the end of a wait is swallowed by ``wait_for`` (before Python
    3.12) and in places of redis-py, and the task would go on.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_AGAIN_S)
    if not task.cancelled():
        task.exception()
