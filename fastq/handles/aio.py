"""How an ``AsyncClient`` waits.

In each event loop, one coroutine receives messages about ended tasks, and another looks in Redis for ends without a
message.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, closing, suppress
from functools import partial
from typing import Any, TypeVar

from fastq.broker.operations.cancel import cancel_task
from fastq.broker.operations.ends import (
    SubmitKey,
    TaskKey,
    look_at,
    parts_of,
    read_end,
    read_progress_of,
    read_rest,
    read_state,
    read_why,
)
from fastq.broker.transport.aio import AsyncBroker
from fastq.broker.transport.end_task import end_task
from fastq.broker.transport.subscription import listen
from fastq.common.states import TaskState
from fastq.errors import BrokerError, TaskGoneError
from fastq.handles.collecting import NEW_WITHIN_S, READ_AT_ONCE, Collection, Hear, collect, without_errors
from fastq.handles.handle import AsyncHandle, Outcome, Timeout, value_of
from fastq.handles.waits import (
    HEARD_WITHIN_S,
    LOOK_EVERY_S,
    OPEN_WITHIN_S,
    Deadline,
    Ends,
    Failures,
    Inbox,
    Waits,
    closed,
    describe,
    refuse_in_handler,
)
from fastq.wire import keys
from fastq.wire.inbox import TaskEnd, new_name
from fastq.wire.progress import TaskProgress

R = TypeVar("R")

_log = logging.getLogger("fastq")


class AsyncWaiter:
    """The part of an ``AsyncClient`` that waits for its tasks."""

    def __init__(self, broker: AsyncBroker, look_every_s: float = LOOK_EVERY_S) -> None:
        self._broker = broker
        self._look_every_s = look_every_s
        self._by_loop: dict[asyncio.AbstractEventLoop, _Listener] = {}

    async def open_inbox(self) -> Inbox:
        """Return the inbox for the headers of tasks that will be submitted; from now on, its messages are received."""
        listener = self._listener()
        return Inbox(listener.inbox, new_name(), await listener.listening(Deadline(None)))

    async def wait_for(self, handle: AsyncHandle[Any], timeout: Timeout) -> Outcome:
        """Return how a task has ended, as soon as it has."""
        if handle.end is None:
            refuse_in_handler()
            handle.end = await self._wait_for(handle.task, Deadline(timeout))
        return handle.end

    async def _wait_for(self, task: SubmitKey, deadline: Deadline) -> TaskEnd:
        # Many calls wait at once, so a wait consists of few objects, all of which the garbage collector visits in each
        # run.
        listener = self._listener()
        waits = await listener.listening(deadline)
        heard: asyncio.Future[Ends] = asyncio.get_running_loop().create_future()
        call = partial(_give, heard)
        waits.add((task,), call)
        try:
            listener.look_soon(task)
            if (left_s := deadline.left_s()) is None:
                await heard
            elif not (await asyncio.wait((heard,), timeout=left_s))[0]:
                found = await self._broker.drive(look_at(((task[0], [task[1:]]),)))
                waits.settle_gone(waits.settle(found))
                if not heard.done():
                    raise TimeoutError(f"{deadline.over(describe(task))}{await self._why(task, deadline)}")
        finally:
            waits.remove((task,), call)
        return (await self._broker.drive(read_rest(without_errors(dict(heard.result())))))[task]

    async def _why(self, task: SubmitKey, deadline: Deadline) -> str:
        """Return the reason why a task has not ended in time; "" if the reason is unknown."""
        try:
            return await self._broker.drive(read_why(*task[:2], int(time.time()))) if deadline.is_long else ""
        except BrokerError:  # the Redis user may lack the right to read the servers' notices
            return ""

    def as_completed(self, handles: Iterable[AsyncHandle[R]], timeout: Timeout) -> AsyncIterator[AsyncHandle[R]]:
        """Yield each handle when its task ends."""
        collection: Collection[AsyncHandle[R]] = Collection(handles, self)
        return self._collect(collection, Deadline(timeout))

    async def _collect(
        self, collection: Collection[AsyncHandle[R]], deadline: Deadline
    ) -> AsyncIterator[AsyncHandle[R]]:
        for handle in collection.ended:
            yield handle
        ended = _Ends()
        with closing(collect(collection, await self._listener().listening(deadline), ended.put, deadline)) as steps:
            reply: Any = None
            with suppress(StopIteration):
                while True:
                    step, reply = steps.send(reply), None
                    if not isinstance(step, list):
                        reply = await (ended.get(step.within_s) if isinstance(step, Hear) else self._broker.drive(step))
                        continue
                    for handle in step:
                        yield handle

    async def wait_for_any(self, task: TaskKey, timeout: Timeout) -> bytes | None:
        """Wait for a task that does not name this client's inbox, and return its result."""
        refuse_in_handler()
        deadline, listener = Deadline(timeout), self._listener()
        while not listener.is_over:
            end = await self._broker.drive(read_end((*task, "")))
            if end is not None:
                return value_of(task, end)
            await asyncio.sleep(deadline.next_pause_s(describe(task)))
        raise closed()

    async def state(self, task: SubmitKey) -> TaskState:
        """Return the state that a task is in."""
        state = await self._broker.run(read_state(*task))
        if state is None:
            raise TaskGoneError(*task[:2])
        return state

    async def progress(self, task: SubmitKey) -> TaskProgress | None:
        """Return how far a task has come."""
        return await self._broker.drive(read_progress_of(task))

    async def cancel(self, task: SubmitKey) -> None:
        """Delete a task, and stop it if it runs."""
        await self._broker.drive(cancel_task(task))

    async def close(self) -> None:
        """End the waits of the running loop; later waits begin anew."""
        listener = self._by_loop.pop(asyncio.get_running_loop(), None)
        if listener is not None:
            await listener.close()

    def _listener(self) -> "_Listener":
        loop = asyncio.get_running_loop()
        listener = self._by_loop.get(loop)
        if listener is None or listener.is_over:
            for other in [other for other in list(self._by_loop) if other.is_closed()]:
                self._by_loop.pop(other, None)  # another thread may have removed it already
            listener = self._by_loop[loop] = _Listener(self._broker, self._look_every_s)
        return listener


def _give(heard: asyncio.Future[Ends], ends: Ends) -> None:
    if not heard.done():  # the wait may have been canceled
        heard.set_result(ends)


class _Ends:
    """The ends that one wait has received and not taken yet."""

    __slots__ = ("_heard", "_waiting")

    def __init__(self) -> None:
        self._heard: list[tuple[SubmitKey, Outcome]] = []
        self._waiting: asyncio.Future[None] | None = None

    def put(self, ends: Iterable[tuple[SubmitKey, Outcome]]) -> None:
        """Add ends."""
        self._heard += ends
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def get(self, within_s: float | None) -> dict[SubmitKey, Outcome]:
        """Return some ends once there are any, or no ends if none come in time."""
        if not self._heard and within_s != 0:
            self._waiting = asyncio.get_running_loop().create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._waiting
        found, self._heard = self._heard[:READ_AT_ONCE], self._heard[READ_AT_ONCE:]
        return dict(found)


class _Listener:
    """The two coroutines of one event loop, for messages and for looks; they start with the first submitted task."""

    def __init__(self, broker: AsyncBroker, look_every_s: float) -> None:
        self.inbox = new_name()
        self._waits = Waits()
        self._broker = broker
        self._look_every_s = look_every_s
        self._is_ready = asyncio.Event()
        self._look_now = asyncio.Event()
        self._look_at_all_s = 0.0
        self._unseen: list[SubmitKey] = []
        self._failures = Failures()
        self._tasks: list[asyncio.Task[None]] = []
        self.is_over = False

    async def listening(self, deadline: Deadline) -> Waits:
        """Return the waits once the inbox is subscribed to, or the subscription has failed or takes too long."""
        if not self._tasks:
            works = self._hear, self._look
            self._tasks = [asyncio.create_task(self._guarded(work), name="fastq waits") for work in works]
        within_s = deadline.within_s(OPEN_WITHIN_S)
        try:
            async with asyncio.timeout(within_s):
                await self._is_ready.wait()
        except TimeoutError:
            if within_s == OPEN_WITHIN_S:
                self._is_ready.set()  # later calls do not wait for the subscription
        return self._waits

    async def close(self) -> None:
        """End all waits."""
        self._end(closed())
        await asyncio.gather(*map(end_task, self._tasks))

    def _end(self, error: Exception) -> None:
        self.is_over = True
        self._waits.end(error)
        self._is_ready.set()
        for task in self._tasks:
            task.cancel()

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - a defect; nobody may wait for ever because of it
            _log.exception("unexpected error: the client waits no longer")
            self._end(error)
        finally:
            self._end(closed())

    async def _hear(self) -> None:
        transport, channel = self._broker.transport, keys.inbox_channel(self.inbox)
        while True:
            try:
                async with aclosing(listen(transport.lender(), transport.where, channel)) as messages:  # type: ignore[type-var]  # a generator, though typed as an iterator
                    async for message in messages:
                        if self.is_over:
                            return  # redis-py may have swallowed the cancellation
                        if message is not None:
                            self._waits.take_message(message.text)
                            for task in self._waits.take_hinted():
                                self._look_at(task)
                            continue
                        self._failures.clear()
                        self._is_ready.set()
                        self._look_at_all_s = 0.0  # messages that came before the subscription are lost
                        self._look_now.set()
            except BrokerError as error:
                self._failures.add(error)
                self._is_ready.set()
            await asyncio.sleep(self._failures.pause_s)

    def look_soon(self, task: SubmitKey) -> None:
        """Look at a task whose wait begins now, together with others.

        A task that was just submitted gets a moment to end first.
        """
        if self._waits.is_new((task,)):
            asyncio.get_running_loop().call_later(NEW_WITHIN_S, self._look_at, task)
        else:
            self._look_at(task)

    def _look_at(self, task: SubmitKey) -> None:
        if self._waits.has(task):
            self._unseen.append(task)
            self._look_now.set()

    async def _look(self) -> None:
        now_s = asyncio.get_running_loop().time
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._look_at_all_s):
                    await self._look_now.wait()
            self._look_now.clear()
            unseen, self._unseen = self._unseen, []
            if now_s() < self._look_at_all_s:
                await self._look_through(unseen, unseen)
            else:
                self._look_at_all_s = now_s() + self._look_every_s
                await self._look_through(self._waits.tasks, unseen)

    async def _look_through(self, tasks: Iterable[SubmitKey], unseen: Sequence[SubmitKey]) -> None:
        """Look at tasks.

        If Redis does not answer, only the waits for ``unseen`` fail; after another error, all waits fail.
        """
        try:
            for part in parts_of(tasks):
                if gone := self._waits.settle(await self._broker.drive(look_at(part))):
                    asyncio.get_running_loop().call_later(HEARD_WITHIN_S, self._waits.settle_gone, gone)
        except BrokerError as error:
            self._waits.fail(error, unseen if error.transient else tasks)
