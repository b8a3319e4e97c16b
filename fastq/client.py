"""Client and AsyncClient: what producers use to put tasks into queues.

Both are thin: the work is a flow of broker operations, written once in ``Producer``; the clients drive it with
blocking sockets or on an asyncio loop.
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, Unpack

from fastq.broker.operations.health import ping
from fastq.broker.transport.open import AsyncRedis, BlockingRedis, open_async_broker, open_broker
from fastq.bulk import enqueue_many
from fastq.clock import SystemClock
from fastq.info import TaskInfo
from fastq.options import EnqueueOptions
from fastq.producer import Producer
from fastq.results import EnqueueResults
from fastq.task import Task

__all__ = ["AsyncClient", "Client"]


class Client:
    """A client that enqueues tasks.

    ``redis`` is a URL, a redis-py client (which is used and never closed), or None for ``$FASTQ_REDIS_URL``, else
    ``redis://127.0.0.1:6379/0``. Connects when first used. Safe to share among threads, and to use after a fork.
    """

    def __init__(self, redis: str | BlockingRedis | None = None) -> None:
        self._broker = open_broker(redis)
        self._producer = Producer(SystemClock())

    def enqueue(self, task: Task | str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> TaskInfo:
        """Put one task into its queue, at once or not at all.

        The options, ``EnqueueOptions``, win over those of the Task.
        Raises ``DuplicateTaskError``, ``TaskIDConflictError``, ``BrokerError``; ``ValueError`` or ``TypeError`` for
        bad input, before anything is sent.
        """
        return self._broker.drive(self._producer.enqueue(task, payload, options))

    def enqueue_many(self, tasks: Iterable[Task], **options: Unpack[EnqueueOptions]) -> EnqueueResults:
        """Put many tasks into their queues, a few hundred a round trip, and tell what became of each.

        Takes any iterable, also one that does not fit into memory. Each task is put at once or not at all; together
        they are not atomic. A duplicate or id conflict is that task's result and stops nothing. When Redis fails, the
        ``BrokerError`` is raised with the results so far as its ``results``.
        """
        return self._broker.drive(enqueue_many(self._producer, tasks, options))

    def ping(self) -> None:
        """Ask Redis for a sign of life; raise ``BrokerError`` if there is none."""
        self._broker.run(ping())

    def close(self) -> None:
        """Close the connections, unless they were given; may be called twice."""
        self._broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient:
    """A client that enqueues tasks from an asyncio program; as ``Client``, with every method awaitable.

    ``redis`` is a URL, a ``redis.asyncio`` client (which is used and never closed), or None as for ``Client``. With a
    URL it may be used in any number of event loops; each has connections of its own.
    """

    def __init__(self, redis: str | AsyncRedis | None = None) -> None:
        self._broker = open_async_broker(redis, gather=True)
        self._producer = Producer(SystemClock())

    async def enqueue(self, task: Task | str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> TaskInfo:
        """Put one task into its queue, at once or not at all; see ``Client.enqueue``.

        If the call is canceled while Redis is asked, the task may or may not have been enqueued.
        """
        return await self._broker.drive(self._producer.enqueue(task, payload, options))

    async def enqueue_many(self, tasks: Iterable[Task], **options: Unpack[EnqueueOptions]) -> EnqueueResults:
        """Put many tasks into their queues and tell what became of each; see ``Client.enqueue_many``."""
        return await self._broker.drive(enqueue_many(self._producer, tasks, options))

    async def ping(self) -> None:
        """Ask Redis for a sign of life; raise ``BrokerError`` if there is none."""
        await self._broker.run(ping())

    async def close(self) -> None:
        """Close the connections of the running loop, unless they were given; may be called twice."""
        await self._broker.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
