"""A spare child: a process beside the pool, started on first use, that runs the app's code for the main process.

A call ends at its time limit, if necessary together with the child. A child that cannot be started is given up, and the
next call tries a new one. After ``stop`` no child is started.
"""

import asyncio
import logging

from fastq.broker.transport.end_task import end_task
from fastq.log.setup import log_text
from fastq.pool.main.pool import ForkServer, PoolConfig, ProcessPool
from fastq.pool.main.protocol import Event, PoolListener, PoolStartError, Submission

_log = logging.getLogger("fastq.hooks")


class SpareChild(PoolListener):
    """A child with a runner of its own, forked by ``forks``; log lines name it by its configuration's name."""

    def __init__(self, config: PoolConfig, forks: ForkServer | None = None) -> None:
        self._config = config
        self._forks = forks
        self._pool: ProcessPool | None = None
        self._starting: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[Event | None]] = {}
        self._asked = 0
        self._burials: set[asyncio.Task[None]] = set()
        self.is_stopped = False

    async def start(self) -> bool:
        """Start the child unless it runs; return False after ``stop``, or if the start fails, which is logged."""
        return await self._running_pool() is not None

    async def ask(self, data: bytes, limit_s: float, patience_s: float) -> Event | None:
        """Run ``data`` in the child for at most ``limit_s``, and return its event; None if none came, which is logged.

        The event is awaited for ``patience_s``, which is longer: a child may have to be replaced first.
        """
        pool = await self._running_pool()
        if pool is None:
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
            _log.error("%s did not answer within %.0f s", self._config.name, patience_s)
            pool.cancel(submission)
            return None
        finally:
            del self._answers[number]

    async def stop(self) -> None:
        """End the child for good, also a child that is about to start; open calls get their event, or None."""
        self.is_stopped = True
        if self._starting is not None:
            await end_task(self._starting)
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.stop()
        self._leave_unanswered()
        await asyncio.gather(*self._burials)

    async def _running_pool(self) -> ProcessPool | None:
        if self._pool is None and not self.is_stopped:
            if self._starting is None or self._starting.done():
                # A coroutine of its own: the caller may be canceled while others wait for the same child.
                self._starting = asyncio.create_task(self._start_pool(), name=f"fastq start of {self._config.name}")
            starting = self._starting
            await asyncio.wait({starting})
            if not self.is_stopped:
                starting.result()
        return None if self.is_stopped else self._pool

    async def _start_pool(self) -> None:
        pool = ProcessPool(self._config, self._forks)
        try:
            await pool.start(self)
            self._pool = pool
        except PoolStartError as error:
            log_text(_log, logging.ERROR, f"{self._config.name} cannot be run: {error}")
        finally:
            if self._pool is not pool:
                # Shielded: the pool is stopped even if this is canceled, and ``stop`` waits for that.
                await asyncio.shield(self._bury(pool))

    def on_events(self, events: list[Event]) -> None:
        """Pass each event to the ``ask`` that waits for it."""
        for event in events:
            answer = self._answers.get(event.submission.key)  # type: ignore[call-overload]  # the key is our number
            if answer is not None and not answer.done():
                answer.set_result(event)

    def on_notice(self, text: str) -> None:
        """Log a problem of the child with the hooks' logger."""
        log_text(_log, logging.WARNING, text)

    def on_info(self, text: str) -> None:
        """Do not log the text: it is about this one child, not about those that run tasks."""

    def on_failed(self, error: PoolStartError) -> None:
        """Give the pool up: it starts no more children."""
        pool, self._pool = self._pool, None
        if pool is not None:
            log_text(_log, logging.ERROR, f"{self._config.name} cannot be run: {error}")
            self._bury(pool)
            self._leave_unanswered()

    def _bury(self, pool: ProcessPool) -> asyncio.Task[None]:
        burial = asyncio.get_running_loop().create_task(pool.stop())
        self._burials.add(burial)
        burial.add_done_callback(self._burials.discard)
        return burial

    def _leave_unanswered(self) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(None)
