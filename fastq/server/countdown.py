"""How much time is left for the end of a server: for running handlers, and for last words to Redis.

It is out ``LAST_WRITES_S`` after the time for running handlers, or after a second signal, if Redis does not answer.
Where it does, on a machine that is busy, it takes what it takes.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from fastq.server.end_task import end_task

__all__ = ["GOODBYE_S", "LAST_WRITES_S", "Countdown", "within"]

LAST_WRITES_S: Final = 1.0
TO_A_SILENT_REDIS_S: Final = 0.25
"""The least for which writes are tried where Redis does not answer."""
GOODBYE_S: Final = 0.1
"""For how long it is then asked to take the server's name off the list, which it does by itself in 10 s."""
INTERPRETER_S: Final = 0.15
"""What Python's own end takes."""


class Countdown:
    """A countdown from the moment of the shutdown."""

    def __init__(self, shutdown_timeout_s: float, hurry: asyncio.Event) -> None:
        self._now_s = asyncio.get_running_loop().time
        self._handlers_until_s = self._now_s() + shutdown_timeout_s
        self._until_s = self._handlers_until_s + LAST_WRITES_S - GOODBYE_S - INTERPRETER_S
        self._hurry = hurry

    async def wait(self, work: Coroutine[Any, Any, object], within_s: float | None = None) -> None:
        """Wait for something, for so many seconds or as long as handlers may run; a second signal ends it."""
        left_s = max(0.0, self._handlers_until_s - self._now_s())
        working = asyncio.ensure_future(work)
        hurrying = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait(
            {working, hurrying},
            timeout=left_s if within_s is None else within_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        await end_task(working)
        await end_task(hurrying)

    def last_writes_s(self, redis_answers: bool) -> float:
        """Return how long Redis may be asked from now on to take what is left."""
        least_s = LAST_WRITES_S if redis_answers else TO_A_SILENT_REDIS_S
        return max(least_s, 0.0 if self._hurry.is_set() else self._until_s - self._now_s())


async def within(seconds: float, work: Coroutine[Any, Any, object]) -> bool:
    """Do some work for so many seconds at most, and tell whether it came to its end."""
    working = asyncio.ensure_future(work)
    await asyncio.wait({working}, timeout=seconds)
    was_done = working.done()
    await end_task(working)
    return was_done
