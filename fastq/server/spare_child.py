"""A spare child: a process beside the pool, started when first asked, that runs the app's code for the main process.

A call ends at its limit, and the child with it if need be. One that cannot be started any more is given up, and a new
one is tried for at the next question.
"""

import asyncio
import logging

from fastq.pool.pool import PoolConfig, ProcessPool
from fastq.pool.protocol import Event, PoolCallbacks, PoolStartError, Submission

__all__ = ["SpareChild"]

_log = logging.getLogger("fastq.hooks")


class SpareChild:
    """Ask a runner in a child of its own; ``what`` names it in the log."""

    def __init__(self, config: PoolConfig, what: str) -> None:
        self._config = config
        self._what = what
        self._pool: ProcessPool | None = None
        self._starting = asyncio.Lock()
        self._answers: dict[int, asyncio.Future[Event | None]] = {}
        self._asked = 0
        self._burials: set[asyncio.Task[None]] = set()

    async def start(self) -> bool:
        """Start the child unless it runs; False, and a line in the log, if that fails."""
        try:
            await self._running_pool()
        except PoolStartError as error:
            _log.error("%s cannot be run: %s", self._what, error)
            return False
        return True

    async def ask(self, data: bytes, limit_s: float, patience_s: float) -> Event | None:
        """Return what came of ``data``, which may run for ``limit_s``; None, and a line in the log, if nothing did.

        ``patience_s`` is how long the answer is waited for, which is longer: a child may have to be replaced first.
        """
        try:
            pool = await self._running_pool()
        except PoolStartError as error:
            _log.error("%s cannot be run: %s", self._what, error)
            return None
        self._asked += 1
        number = self._asked
        answer: asyncio.Future[Event | None] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        submission = Submission(number, data, timeout=limit_s)
        try:
            pool.submit([submission])
            await asyncio.wait({answer}, timeout=patience_s)
            if answer.done():
                return answer.result()
            _log.error("%s did not answer within %.0f s", self._what, patience_s)
            pool.cancel(submission)
            return None
        finally:
            del self._answers[number]

    async def stop(self) -> None:
        """End the child, if there is one; whoever waits for an answer gets what its end makes of it."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.stop()
        self._leave_unanswered()
        await asyncio.gather(*self._burials)

    async def _running_pool(self) -> ProcessPool:
        async with self._starting:
            if self._pool is None:
                pool = ProcessPool(self._config, PoolCallbacks(self._on_events, self._on_failed, _log.warning))
                try:
                    await pool.start()
                except PoolStartError:
                    await pool.stop()
                    raise
                self._pool = pool
            return self._pool

    def _on_events(self, events: list[Event]) -> None:
        for event in events:
            answer = self._answers.get(event.submission.key)  # type: ignore[call-overload]  # the key is our number
            if answer is not None and not answer.done():
                answer.set_result(event)

    def _on_failed(self, error: PoolStartError) -> None:
        """Give the pool up: it starts no more children."""
        pool, self._pool = self._pool, None
        if pool is not None:
            _log.error("%s cannot be run: %s", self._what, error)
            burial = asyncio.get_running_loop().create_task(pool.stop())
            self._burials.add(burial)
            burial.add_done_callback(self._burials.discard)
            self._leave_unanswered()

    def _leave_unanswered(self) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(None)
