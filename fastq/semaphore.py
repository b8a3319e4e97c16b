"""Semaphore: a limit on how many tasks use a resource at once, across all servers, also Go's (asynq's x/rate).

It limits concurrency, not the rate per time window. A token belongs to a task and expires at that task's deadline, so a
holder that dies does not keep the token longer.
"""

import asyncio
import functools
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from fastq.broker.operations.semaphore import Token, acquire_token, count_tokens, release_token
from fastq.broker.transport.open import BlockingRedis, open_broker
from fastq.common.callables import is_async
from fastq.common.clock import Clock, SystemClock
from fastq.errors import BrokerError, SemaphoreFullError
from fastq.options import check_text
from fastq.running import RunningTask, current_task

MOST_S: Final = 60.0
"""The upper limit of the shortest pause before another try."""
MOST_TIMES: Final = 3.0
"""The longest pause is this many times as long as the shortest."""

_log = logging.getLogger("fastq.semaphore")


class Semaphore:
    """At most ``max_tokens`` tasks hold a token of ``scope`` at once; all users of a scope must give the same number.

    Inside a handler, ``with semaphore:`` or ``async with semaphore:`` takes a token for the running task, or raises
    ``SemaphoreFullError``. As after ``Snooze``, the task then runs again: no attempt is counted, and no hook is called.
    It waits 1 to 3 s at first, and then longer, up to 3 minutes, while no token comes free.
    ``mux.use(semaphore.middleware)`` does the same around every handler, ``@semaphore.middleware`` around one.

    ``redis`` is as for ``Client``. Nothing is sent before the first use. A semaphore may be shared among threads and
    coroutines, and created at import, before children are forked. A blank scope, or less than one token, raises
    ``ValueError`` or ``TypeError``.
    """

    def __init__(self, scope: str, max_tokens: int, redis: str | BlockingRedis | None = None) -> None:
        self.scope = check_text(scope, "scope")
        self.max_tokens = _checked_tokens(max_tokens)
        self._broker = open_broker(redis)
        self._clock: Clock = SystemClock()
        self._full_s = 0.0
        self._refused_s = 0.0

    def acquire(self, task: RunningTask | None = None) -> bool:
        """Take a token for a task, by default the current one; return False if no token is free.

        The token expires when the task's time is up, unless it is released before. As in asynq, a task that asks again
        needs another free token, but still holds only one afterwards. Raises ``LookupError`` outside of handlers,
        ``ValueError`` for a task without a deadline, and ``BrokerError``.
        """
        holder = task or current_task()
        if holder.deadline is None:
            raise ValueError(
                f"task {holder.id} has neither timeout nor deadline, so that its token of semaphore {self.scope!r} "
                "would be lost forever if its process died; give it one"
            )
        token = Token(self.scope, holder.id, int(holder.deadline.timestamp()))
        try:
            return self._broker.drive(acquire_token(token, self.max_tokens, self._now_s()))
        except Exception:
            raise
        except BaseException:  # the task was canceled or its time is up, but it may have the token already
            self._give_back(holder)
            raise

    def release(self, task: RunningTask | None = None) -> bool:
        """Give back the token of a task, by default the current one; return False if the task has no token any more."""
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
            raise SemaphoreFullError(self.scope, self.max_tokens, after=self._delay_s())
        self._full_s = 0.0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        holder = current_task()
        try:
            self._give_back(holder)
        except BaseException:  # the task was canceled, or its time ran out, before the release was finished
            self._give_back(holder)
            raise

    async def __aenter__(self) -> Self:
        # In a thread, because the connection blocks; ``contextvars`` carry the current task into the thread.
        entering = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            return await asyncio.shield(entering)
        except BaseException:  # a signal may raise here, as well as a cancellation
            while not entering.done():
                with suppress(asyncio.CancelledError):  # another cancellation; the first is raised below
                    await asyncio.wait({entering})
            if not entering.cancelled() and entering.exception() is None:
                await self.__aexit__(None, None, None)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(asyncio.to_thread(self.__exit__, kind, error, trace))

    def _delay_s(self) -> float:
        """Return a random pause: 1 to 3 times an eighth of the time for which this process has found no token."""
        now_s = self._clock.monotonic_s()
        # Time beyond the longest pause does not count, since perhaps no task asked during it.
        self._full_s += min(now_s - self._refused_s, MOST_TIMES * self._least_s)
        self._refused_s = now_s
        # Random, so that not all tasks ask at once: a task that finds no token has occupied a child in vain.
        return self._least_s * random.uniform(1.0, MOST_TIMES)

    @property
    def _least_s(self) -> float:
        return min(max(self._full_s / 8, 1.0), MOST_S)

    def _give_back(self, holder: RunningTask) -> None:
        try:
            self.release(holder)
        except BrokerError as failure:
            # The work is done. It must not be repeated because of the token, which expires by itself.
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
