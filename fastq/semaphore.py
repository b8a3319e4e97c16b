"""Semaphore: how many tasks may do something at once, on all servers together, Go's too (asynq's x/rate).

It counts; it knows no time window. A token belongs to a task and ends with that task's deadline, so that a holder
that dies without a word keeps it no longer.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from fastq.broker.operations.semaphore import Token, acquire_token, count_tokens, release_token
from fastq.broker.transport.open import BlockingRedis, open_broker
from fastq.clock import Clock, SystemClock
from fastq.errors import BrokerError, SemaphoreFullError
from fastq.mux import is_async
from fastq.options import check_text
from fastq.running import RunningTask, current_task

__all__ = ["Semaphore"]

_log = logging.getLogger("fastq.semaphore")


class Semaphore:
    """At most ``max_tokens`` tasks hold a token of ``scope`` at once; all who share a scope give the same number.

    Inside a handler ``with semaphore:`` or ``async with semaphore:`` holds a token of the task that runs, or raises
    ``SemaphoreFullError``, upon which the task is tried again; ``is_failure`` can say that this does not count.
    ``mux.use(semaphore.middleware)`` does so around every handler, ``@semaphore.middleware`` around one. ``redis`` is
    as for ``Client``. Nothing is sent before the first use. Safe to share among threads and coroutines, and to make at
    import, before children are forked.

    ``ValueError`` or ``TypeError`` for a blank scope and for less than one token.
    """

    def __init__(self, scope: str, max_tokens: int, redis: str | BlockingRedis | None = None) -> None:
        self.scope = check_text(scope, "scope")
        self.max_tokens = _checked_tokens(max_tokens)
        self._broker = open_broker(redis)
        self._clock: Clock = SystemClock()

    def acquire(self, task: RunningTask | None = None) -> bool:
        """Take a token for a task, the current one unless given; False if none is free.

        It ends when the task's time is up, if ``release`` does not come first. As in asynq a task that asks again needs
        another free token, and has one after that. ``LookupError`` outside of handlers, ``ValueError`` for a task
        without a deadline, ``BrokerError``.
        """
        holder = task or current_task()
        if holder.deadline is None:
            raise ValueError(
                f"task {holder.id} has neither timeout nor deadline, so that its token of semaphore {self.scope!r} "
                "would be lost for ever if its process died; give it one"
            )
        token = Token(self.scope, holder.id, int(holder.deadline.timestamp()))
        try:
            return self._broker.drive(acquire_token(token, self.max_tokens, self._now_s()))
        except Exception:
            raise
        except BaseException:  # the task is canceled or its time is up, and it may have the token by now
            self._give_back(holder)
            raise

    def release(self, task: RunningTask | None = None) -> bool:
        """Give the token of a task back, the current one unless given; False if it has none, or its time was up."""
        holder = task or current_task()
        return self._broker.run(release_token(self.scope, holder.id))

    def held(self) -> int:
        """Return how many tokens are held now."""
        return self._broker.run(count_tokens(self.scope, self._now_s()))

    def middleware(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a handler, async if the given one is, that holds a token while it runs."""
        if is_async(handler):

            @functools.wraps(handler)
            async def limited_async(task: Any) -> Any:
                async with self:
                    return await handler(task)

            return limited_async

        @functools.wraps(handler)
        def limited(task: Any) -> Any:
            with self:
                return handler(task)

        return limited

    def close(self) -> None:
        """Close the connections, unless they were given; may be called twice."""
        self._broker.close()

    def __enter__(self) -> Self:
        if not self.acquire():
            raise SemaphoreFullError(self.scope, self.max_tokens)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        holder = current_task()
        try:
            self._give_back(holder)
        except BaseException:  # the task was canceled, or its time ran out, before it was through
            self._give_back(holder)
            raise

    async def __aenter__(self) -> Self:
        # In a thread, since the connection blocks; the current task goes with the context.
        entering = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(entering)
        except BaseException:  # what a signal raises may show here as well as a cancellation
            while not entering.done():
                with suppress(asyncio.CancelledError):  # once more; the first is raised below
                    await asyncio.wait({entering})
            if not entering.cancelled() and entering.exception() is None:
                await self.__aexit__(None, None, None)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self.__exit__, kind, error, trace))

    def _give_back(self, holder: RunningTask) -> None:
        try:
            self.release(holder)
        except BrokerError as failure:
            # The work is done: it must not be done again for the token, which ends by itself.
            _log.warning(
                "could not release a token of semaphore %r; it stays taken until its task's deadline: %s",
                self.scope,
                failure,
            )

    def _now_s(self) -> int:
        return self._clock.unix_ns() // 1_000_000_000


def _checked_tokens(max_tokens: object) -> int:
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool):
        raise TypeError(f"max_tokens must be an int, not {type(max_tokens).__name__}: {max_tokens!r}")
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1: {max_tokens!r}")
    return max_tokens
