"""The hook child: a process that runs the app's hooks where there is no child that ran the task.

The main process runs no user code. The child is started when first needed; a call takes 5 s at most, and where it fails
the default stands. It exists only for an app that defines such a hook.
"""

import asyncio
import logging
from typing import Final

import orjson

from fastq.errors import BrokerError
from fastq.pool.pool import PoolConfig, ProcessPool
from fastq.pool.protocol import Event, Kind, PoolCallbacks, PoolStartError, Submission
from fastq.server.config import ServerConfig
from fastq.worker.hook_runner import health_request, judge_request
from fastq.worker.report import FailureReport

__all__ = ["HookChild"]

LIMIT_S: Final = 5.0

_log = logging.getLogger("fastq.hooks")


class HookChild:
    """Ask the app's hooks; ``judges`` tells whether any of them decides on failures."""

    def __init__(self, config: ServerConfig) -> None:
        hooks = {name: getattr(config, name) for name in ("error_handler", "is_failure", "retry_delay")}
        self.judges = any(hooks.values())
        self.checks_health = config.health_check is not None
        argument = orjson.dumps({**hooks, "health_check": config.health_check}).decode()
        self._config = PoolConfig(
            runner="fastq.worker.hook_runner:load",
            argument=argument,
            start_method=config.start_method,
            timeout_grace=0.0,
        )
        self._pool: ProcessPool | None = None
        self._starting = asyncio.Lock()
        self._answers: dict[int, asyncio.Future[Event]] = {}
        self._asked = 0

    async def judge(self, error: str, text: str, message: bytes, *, tell: bool) -> FailureReport | None:
        """Return what the hooks say of a task's failure, None where the defaults are to stand."""
        if not self.judges:
            return None
        event = await self._ask(judge_request(error, text, message, tell=tell))
        return FailureReport.decode(event.data) if event is not None and event.kind is Kind.RESULT else None

    async def check_health(self, error: BrokerError | None) -> None:
        """Run the health check with None or the error."""
        await self._ask(health_request(None if error is None else str(error)))

    async def stop(self) -> None:
        """End the child, if there is one."""
        if self._pool is not None:
            await self._pool.stop()

    async def _ask(self, data: bytes) -> Event | None:
        try:
            pool = await self._running_pool()
        except PoolStartError as error:
            _log.error("the hooks cannot be run: %s", error)
            return None
        self._asked += 1
        number = self._asked
        answer: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        pool.submit([Submission(number, data, timeout=LIMIT_S)])
        try:
            # The pool ends a hook at its limit; the second is for a child that has to be replaced first.
            event = await asyncio.wait_for(answer, 2 * LIMIT_S)
        except TimeoutError:
            _log.error("a hook did not answer within %.0f s; the default stands", 2 * LIMIT_S)
            return None
        finally:
            del self._answers[number]
        if event.kind not in (Kind.DONE, Kind.RESULT):
            _log.error("a hook failed (%s): %s", event.kind.name.lower(), event.data.decode(errors="replace"))
        return event

    async def _running_pool(self) -> ProcessPool:
        async with self._starting:
            if self._pool is None:
                pool = ProcessPool(self._config, PoolCallbacks(self._on_events, _ignore, _log.warning))
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


def _ignore(error: PoolStartError) -> None:
    """Leave it: whoever asks next is told."""
    del error
