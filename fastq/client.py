"""Client and AsyncClient: what producers use to put tasks into queues.

Both are thin. The work is a flow of broker operations, written once in ``Producer``. The clients drive it with blocking
sockets or on an asyncio loop.
"""

from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from fastq.broker.operations.health import ping
from fastq.broker.operations.limits import set_limit
from fastq.broker.transport.confirm import Confirm, confirm_of
from fastq.broker.transport.open import AsyncRedis, BlockingRedis, open_async_broker, open_broker
from fastq.common.clock import SystemClock
from fastq.common.durations import nanoseconds_of
from fastq.common.encoding import PayloadCodec
from fastq.enqueueing.backlog import calling_with, max_pending_of
from fastq.enqueueing.bulk import enqueue_many, put_part
from fastq.enqueueing.producer import Producer, as_task
from fastq.enqueueing.results import EnqueueResults
from fastq.handles.aio import AsyncWaiter
from fastq.handles.blocking import BlockingWaiter
from fastq.handles.handle import AsyncHandle, Handle
from fastq.handles.submitting import awaited, awaited_together, decoder_of
from fastq.info import TaskInfo
from fastq.middleware import ClientMiddleware, Sender, SentChunks, chained, only_info
from fastq.options import EnqueueOptions, check_options, check_queue_name, check_text
from fastq.task import Task, TaskCall, with_options
from fastq.wire.limit import Limit, LimitParts, check_limited

R = TypeVar("R")


def limited(queue: str, lane: str | None, parts: LimitParts) -> tuple[str, str, Limit]:
    """Check a limit and its lane; return the queue, the field under which the limit is stored, and the limit."""
    limit = Limit(**parts)
    return check_queue_name(queue, "queue"), check_limited(lane, limit), limit


def _limits(
    timeout: float | timedelta | None, wait_replicas: int, wait_timeout: float | timedelta
) -> tuple[float | None, Confirm | None]:
    """Return how many seconds a call may take, and how replicas must confirm it; refuse bad values."""
    confirm = confirm_of(wait_replicas, nanoseconds_of(wait_timeout, name="wait_timeout") / 1e9)
    if timeout is None:
        return None, confirm
    if (ns := nanoseconds_of(timeout, name="timeout")) <= 0:
        raise ValueError(f"timeout must be more than 0, not {timeout!r}")
    if confirm is not None and confirm.timeout_s >= ns / 1e9:
        raise ValueError(f"wait_timeout must be less than timeout ({timeout!r}), not {wait_timeout!r}")
    return ns / 1e9, confirm


class Client:
    """A client that enqueues tasks.

    ``redis`` is a URL, a redis-py client (which is used and never closed), or None for ``$FASTQ_REDIS_URL``, else
    ``redis://127.0.0.1:6379/0``. Connects when first used. Safe to share among threads, and to use after a fork.
    ``codec`` encodes the payload that ``enqueue`` gets with a type name; a ``Task`` has its payload already.

    A call that would take longer than ``timeout`` (seconds or a timedelta) raises ``BrokerTimeoutError``; its
    ``maybe_applied`` says whether the task may have been enqueued. In ``enqueue_many``, ``timeout`` is for each few
    hundred tasks. If ``timeout`` is None, a reply may take 3 s, a connection 5 s, and the recovery of an ``enqueue``
    from a fault 3 s more.

    With ``wait_replicas``, a call waits until that many replicas have the task. If they have not confirmed this within
    ``wait_timeout`` (seconds or a timedelta), ``BrokerNotConfirmedError`` is raised: the task is enqueued, but a
    failover may lose it.

    With ``max_pending``, a call waits while a queue has that many pending tasks. It waits for ``full_timeout`` at most
    (seconds or a timedelta; None: for ever, 0: not at all), and then raises ``QueueFullError``. The client asks Redis
    for the length of a queue at most once a second, and adds the tasks that it sends itself in between. So choose a
    number larger than what servers take in a second. ``timeout`` does not include the wait. Scheduled and grouped tasks
    do not count.
    """

    _middleware: tuple[ClientMiddleware, ...] = ()
    _full_timeout: float | timedelta | None = None
    _through: Sender | None = None  # the middleware around ``_send``, if there is any

    def __init__(
        self,
        redis: str | BlockingRedis | None = None,
        codec: PayloadCodec | None = None,
        *,
        timeout: float | timedelta | None = None,
        wait_replicas: int = 0,
        wait_timeout: float | timedelta = 1.0,
        max_pending: int | None = None,
        full_timeout: float | timedelta | None = None,
    ) -> None:
        self._codec = codec
        timeout_s, confirm = _limits(timeout, wait_replicas, wait_timeout)
        self._broker = open_broker(redis, timeout_s=timeout_s, confirm=confirm)
        self._full_timeout = full_timeout
        self._producer = Producer(SystemClock(), max_pending_of(max_pending, full_timeout))
        self._waiter = BlockingWaiter(self._broker, SystemClock())

    def enqueue(self, task: Task | str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> TaskInfo:
        """Put one task into its queue, completely or not at all.

        The options, ``EnqueueOptions``, take precedence over those of the Task. Raises ``DuplicateTaskError``,
        ``TaskIDConflictError`` or ``BrokerError``. Bad input raises ``ValueError`` or ``TypeError`` before anything is
        sent.
        """
        task = as_task(task, payload, self._codec)
        if self._through is None:
            return self._broker.drive(self._producer.enqueue(task, options))
        return only_info(self._through((with_options(task, check_options(options)),)))

    def enqueue_many(
        self, tasks: Iterable[Task], *, max_pending: int | None = None, **options: Unpack[EnqueueOptions]
    ) -> EnqueueResults:
        """Put many tasks into their queues, a few hundred per round trip; return a result for each.

        Takes any iterable, even one that does not fit into memory. Each task is put completely or not at all, but the
        tasks together are not atomic. A duplicate or an id conflict is the result of that task and does not stop the
        others. When Redis fails, the ``BrokerError`` has the results so far in its ``results``.

        ``max_pending`` replaces the client's limit for this call; with a limit, any number of tasks streams through a
        small Redis.
        """
        if max_pending is not None:
            with calling_with(max_pending_of(max_pending, self._full_timeout)):
                return self.enqueue_many(tasks, **options)
        if self._through is None:
            return self._broker.drive(enqueue_many(self._producer, tasks, options))
        with SentChunks(tasks, options) as chunks:
            for chunk in chunks:
                chunks.add(self._through(chunk))
        return chunks.results()

    @overload
    def submit(self, task: TaskCall[R], **options: Unpack[EnqueueOptions]) -> Handle[R]: ...
    @overload
    def submit(self, task: Task | str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> Handle[Any]: ...

    def submit(self, task: Task | str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> Handle[Any]:
        """Enqueue one task as ``enqueue`` does, and return a handle to wait for its result.

        The task is kept for an hour once it is completed, unless it has another ``retention``. The result of a typed
        task is what its function returned. The result of any other task is the bytes that are stored.
        """
        inbox = self._waiter.open_inbox()
        task = awaited(as_task(task, payload, self._codec), check_options(options), inbox)
        return Handle(self._waiter, inbox.submitted(self.enqueue(task)), decoder_of(task))

    @overload
    def submit_many(self, tasks: Iterable[TaskCall[R]], **options: Unpack[EnqueueOptions]) -> list[Handle[R]]: ...
    @overload
    def submit_many(self, tasks: Iterable[Task], **options: Unpack[EnqueueOptions]) -> list[Handle[Any]]: ...

    def submit_many(self, tasks: Iterable[Task], **options: Unpack[EnqueueOptions]) -> list[Handle[Any]]:
        """Enqueue many tasks as ``enqueue_many`` does, and return a handle for each.

        The handle of a task that was not enqueued, for example a duplicate, raises the error of that task.
        """
        inbox = self._waiter.open_inbox()
        submitted, common = awaited_together(tasks, options, inbox)
        results = self.enqueue_many(submitted, **common)
        return [
            Handle(self._waiter, (*place, inbox.submit), decoder_of(task), error)
            for task, (place, error) in zip(submitted, results.places(), strict=True)
        ]

    def as_completed(
        self, handles: Iterable[Handle[R]], timeout: float | timedelta | None = None
    ) -> Iterator[Handle[R]]:
        """Yield each handle once its task has ended, in the order in which they end; ``result`` then returns at once.

        Raises ``TimeoutError`` if not all tasks have ended within ``timeout`` (seconds or a timedelta; None: any time).
        """
        return self._waiter.as_completed(handles, timeout)

    def gather(self, handles: Iterable[Handle[R]], timeout: float | timedelta | None = None) -> list[R]:
        """Wait until all tasks have ended, and return their results in the order of the handles.

        If a task fails, its error is raised as soon as the client knows it, and the other tasks go on.
        """
        listed = list(handles)
        for handle in self.as_completed(listed, timeout):
            handle.result()
        return [handle.result() for handle in listed]

    def wait(self, queue: str, task_id: str, timeout: float | timedelta | None = None) -> bytes | None:
        """Wait until a task that anybody enqueued has ended, and return its stored result, undecoded.

        The result of a typed task is JSON. None means that no result is stored.

        Such a task does not announce its end to this client, so the client asks Redis for it: at once, after 50 ms, and
        later once a second. Raises the errors of ``Handle.result``.
        """
        task = check_queue_name(queue, "queue"), check_text(task_id, "task_id")
        return self._waiter.wait_for_any(task, timeout)

    def use(self, *middleware: ClientMiddleware) -> None:
        """Wrap all enqueueing of this client: ``middleware(next) -> sender``, the first outermost.

        A sender takes the tasks of a call, each with all its options, and may replace them; it returns what the next
        sender returns. The tasks of an ``enqueue_many`` come to a sender up to 500 at a time.
        """
        self._through = chained(self._send, (*self._middleware, *middleware))
        self._middleware += middleware

    def _send(self, tasks: Sequence[Task]) -> EnqueueResults:
        return self._broker.drive(put_part(self._producer, tasks))

    def set_limit(self, queue: str, lane: str | None, **limit: Unpack[LimitParts]) -> None:
        """Set the limit of a lane of a queue, from now on and on all servers; see ``Limit``.

        ``lane`` is the name of a lane, "*" for each lane without a limit of its own, or "openai:*" for a pool: all
        lanes that begin with "openai:" share its limit. None means the queue as a whole, whose limit has a
        ``concurrency`` only. Without further arguments the lane has no limit, whatever "*" says. ``order`` is "strict"
        for a sequence that survives retries, "lifo" for the newest first, "deadline" for the earliest deadline first.
        ``Inspector.set_limit`` removes limits. Tasks that run already do not count. This needs the rights of an admin's
        or a worker's Redis user, not of a producer's.
        """
        self._broker.drive(set_limit(*limited(queue, lane, limit)))

    def ping(self) -> None:
        """Ask Redis for a sign of life; raise ``BrokerError`` if there is none."""
        self._broker.run(ping())

    def close(self) -> None:
        """End all waits, and close the connections unless they were given; may be called twice."""
        self._waiter.close()
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
    URL it may be used in any number of event loops; each has connections of its own. ``codec``, ``timeout``,
    ``wait_replicas``, ``wait_timeout``, ``max_pending`` and ``full_timeout`` are as for ``Client``.
    """

    _middleware: tuple[ClientMiddleware[Awaitable[EnqueueResults]], ...] = ()
    _full_timeout: float | timedelta | None = None
    _through: Sender[Awaitable[EnqueueResults]] | None = None  # the middleware around ``_send``, if there is any

    def __init__(
        self,
        redis: str | AsyncRedis | None = None,
        codec: PayloadCodec | None = None,
        *,
        timeout: float | timedelta | None = None,
        wait_replicas: int = 0,
        wait_timeout: float | timedelta = 1.0,
        max_pending: int | None = None,
        full_timeout: float | timedelta | None = None,
    ) -> None:
        self._codec = codec
        timeout_s, confirm = _limits(timeout, wait_replicas, wait_timeout)
        self._broker = open_async_broker(redis, gather=True, timeout_s=timeout_s, confirm=confirm)
        self._full_timeout = full_timeout
        self._producer = Producer(SystemClock(), max_pending_of(max_pending, full_timeout))
        self._waiter = AsyncWaiter(self._broker)

    async def enqueue(self, task: Task | str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> TaskInfo:
        """Put one task into its queue, completely or not at all; see ``Client.enqueue``.

        If the call is canceled after its request was sent, the task may or may not have been enqueued.
        """
        task = as_task(task, payload, self._codec)
        if self._through is None:
            return await self._broker.drive(self._producer.enqueue(task, options))
        return only_info(await self._through((with_options(task, check_options(options)),)))

    async def enqueue_many(
        self, tasks: Iterable[Task], *, max_pending: int | None = None, **options: Unpack[EnqueueOptions]
    ) -> EnqueueResults:
        """Put many tasks into their queues; return a result for each. See ``Client.enqueue_many``."""
        if max_pending is not None:
            with calling_with(max_pending_of(max_pending, self._full_timeout)):
                return await self.enqueue_many(tasks, **options)
        if self._through is None:
            return await self._broker.drive(enqueue_many(self._producer, tasks, options))
        with SentChunks(tasks, options) as chunks:
            for chunk in chunks:
                chunks.add(await self._through(chunk))
        return chunks.results()

    @overload
    async def submit(self, task: TaskCall[R], **options: Unpack[EnqueueOptions]) -> AsyncHandle[R]: ...
    @overload
    async def submit(
        self, task: Task | str, payload: Any = None, **options: Unpack[EnqueueOptions]
    ) -> AsyncHandle[Any]: ...

    async def submit(
        self, task: Task | str, payload: Any = None, **options: Unpack[EnqueueOptions]
    ) -> AsyncHandle[Any]:
        """Enqueue one task, and return a handle to await its result; see ``Client.submit``."""
        inbox = await self._waiter.open_inbox()
        task = awaited(as_task(task, payload, self._codec), check_options(options), inbox)
        return AsyncHandle(self._waiter, inbox.submitted(await self.enqueue(task)), decoder_of(task))

    @overload
    async def submit_many(
        self, tasks: Iterable[TaskCall[R]], **options: Unpack[EnqueueOptions]
    ) -> list[AsyncHandle[R]]: ...
    @overload
    async def submit_many(self, tasks: Iterable[Task], **options: Unpack[EnqueueOptions]) -> list[AsyncHandle[Any]]: ...

    async def submit_many(self, tasks: Iterable[Task], **options: Unpack[EnqueueOptions]) -> list[AsyncHandle[Any]]:
        """Enqueue many tasks, and return a handle for each; see ``Client.submit_many``."""
        inbox = await self._waiter.open_inbox()
        submitted, common = awaited_together(tasks, options, inbox)
        results = await self.enqueue_many(submitted, **common)
        return [
            AsyncHandle(self._waiter, (*place, inbox.submit), decoder_of(task), error)
            for task, (place, error) in zip(submitted, results.places(), strict=True)
        ]

    def as_completed(
        self, handles: Iterable[AsyncHandle[R]], timeout: float | timedelta | None = None
    ) -> AsyncIterator[AsyncHandle[R]]:
        """Yield each handle once its task has ended; see ``Client.as_completed``."""
        return self._waiter.as_completed(handles, timeout)

    async def gather(self, handles: Iterable[AsyncHandle[R]], timeout: float | timedelta | None = None) -> list[R]:
        """Wait until all tasks have ended, and return their results; see ``Client.gather``."""
        listed = list(handles)
        async for handle in self.as_completed(listed, timeout):
            await handle.result()
        return [await handle.result() for handle in listed]

    async def wait(self, queue: str, task_id: str, timeout: float | timedelta | None = None) -> bytes | None:
        """Wait until a task that anybody enqueued has ended; see ``Client.wait``."""
        task = check_queue_name(queue, "queue"), check_text(task_id, "task_id")
        return await self._waiter.wait_for_any(task, timeout)

    def use(self, *middleware: ClientMiddleware[Awaitable[EnqueueResults]]) -> None:
        """Wrap all enqueueing of this client; see ``Client.use``. Senders may be ``async``, and are awaited."""
        self._through = chained(self._send, (*self._middleware, *middleware), takes_async=True)
        self._middleware += middleware

    async def _send(self, tasks: Sequence[Task]) -> EnqueueResults:
        return await self._broker.drive(put_part(self._producer, tasks))

    async def set_limit(self, queue: str, lane: str | None, **limit: Unpack[LimitParts]) -> None:
        """Limit a lane of a queue, from now on and on all servers; see ``Client.set_limit``."""
        await self._broker.drive(set_limit(*limited(queue, lane, limit)))

    async def ping(self) -> None:
        """Ask Redis for a sign of life; raise ``BrokerError`` if there is none."""
        await self._broker.run(ping())

    async def close(self) -> None:
        """End the waits and close the connections of the running loop; given connections stay open.

        Calls under way end with a ``BrokerConnectionError``; its ``maybe_applied`` says whether their requests were
        sent.
        """
        await self._waiter.close()
        await self._broker.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
