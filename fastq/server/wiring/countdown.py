"""The time left for the shutdown of a server: for running handlers, and for the last writes to Redis.

If Redis does not answer, the shutdown ends ``LAST_WRITES_S`` after the time for running handlers, or soon after a
second signal. If Redis answers, perhaps slowly on a busy machine, the last writes have at least ``LAST_WRITES_S`` for
themselves.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final

from fastq.broker.transport.end_task import end_task

LAST_WRITES_S: Final = 1.0
TO_A_SILENT_REDIS_S: Final = 0.25
"""The least time for which last writes are tried if Redis does not answer."""
GOODBYE_S: Final = 0.1
"""How long a silent Redis is asked to delete the server's published data, which expires within 10 s anyway."""
INTERPRETER_S: Final = 0.15
"""The time that Python's own exit takes."""


class Countdown:
    """A countdown from the moment of the shutdown."""

    def __init__(self, shutdown_timeout_s: float, hurry: asyncio.Event) -> None:
        self._now_s = asyncio.get_running_loop().time
        self._handlers_until_s = self._now_s() + shutdown_timeout_s
        self._until_s = self._handlers_until_s + LAST_WRITES_S - GOODBYE_S - INTERPRETER_S
        self._hurry = hurry

    async def wait(self, work: Awaitable[object], within_s: float | None = None) -> None:
        """Wait for ``work``, for ``within_s`` seconds or as long as handlers may run; a second signal ends the wait."""
        left_s = max(0.0, self._handlers_until_s - self._now_s())
        await within(left_s if within_s is None else within_s, work, unless=self._hurry)

    def last_writes_s(self, redis_answers: bool) -> float:
        """Return how long the last writes to Redis may take from now on."""
        least_s = LAST_WRITES_S if redis_answers else TO_A_SILENT_REDIS_S
        return max(least_s, 0.0 if self._hurry.is_set() else self._until_s - self._now_s())


async def within(seconds: float | None, work: Awaitable[object], *, unless: asyncio.Event | None = None) -> bool:
    """Do some work until it ends, ``seconds`` are over, or an event is set; return whether it ended."""
    working = asyncio.ensure_future(work)
    waits = {working} if unless is None else {working, asyncio.ensure_future(unless.wait())}
    await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    was_done = working.done()
    for one in waits:
        await end_task(one)
    return was_done
