"""InlineClient and AsyncInlineClient: clients without Redis that run enqueued tasks in this process."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Unpack

from fastq.broker.operations.ends import TaskKey
from fastq.broker.operations.finish import FATES, Disposition, RunOutcome
from fastq.client import AsyncClient, Client, limited
from fastq.common.encoding import PayloadCodec
from fastq.common.states import KeyOutcome, TaskState
from fastq.enqueueing.producer import compose, found_info
from fastq.enqueueing.results import EnqueueResults
from fastq.errors import DuplicateTaskError, FastqError, TaskIDConflictError, not_a_task
from fastq.hooks import Hooks
from fastq.info import TaskInfo
from fastq.mux import ServeMux
from fastq.options import NO_OPTIONS
from fastq.server.inflight.tasks import InFlightTask
from fastq.task import Task
from fastq.testing.inline_keys import InlineKeys
from fastq.testing.inline_waiter import AsyncInlineWaiter, InlineWaiter
from fastq.testing.runs import NO_HOOKS, MessageRunner, TaskRun
from fastq.wire.codec import decode_task_message, encode_task_message, view_task_message
from fastq.wire.inbox import EndKind, TaskEnd
from fastq.wire.limit import LimitParts
from fastq.wire.messages import CHECKPOINT_HEADER, UNTIL_HEADER, TaskMessage

_GONE: Final = TaskEnd(EndKind.GONE)


class _InlineResults:
    """The results of the tasks of one call, as a part of ``EnqueueResults``."""

    def __init__(self, results: Sequence[TaskInfo | DuplicateTaskError | TaskIDConflictError]) -> None:
        self._results = results

    def __len__(self) -> int:
        return len(self._results)

    @property
    def all_enqueued(self) -> bool:
        return all(isinstance(result, TaskInfo) for result in self._results)

    def task_id(self, index: int) -> str:
        result = self._results[index]
        return result.id if isinstance(result, TaskInfo) else result.task_id

    def queue(self, index: int) -> str:
        return self._results[index].queue

    def error(self, index: int) -> FastqError | None:
        result = self._results[index]
        return None if isinstance(result, TaskInfo) else result

    def info(self, index: int) -> TaskInfo:
        result = self._results[index]
        assert isinstance(result, TaskInfo)
        return result

    def without_tasks(self) -> "_InlineResults":
        return _InlineResults(
            [replace(each, payload=b"", headers={}) if isinstance(each, TaskInfo) else each for each in self._results]
        )


class _InlineTasks:
    """The tasks of an inline client: all enqueued tasks, the waiting tasks, and the runs."""

    def __init__(self, mux: ServeMux, hooks: Hooks, *, raise_errors: bool) -> None:
        self._runner = MessageRunner(mux, hooks)
        self._raise_errors = raise_errors
        self._backlog: deque[TaskMessage] = deque()
        self._is_running = False
        self._waiting: dict[tuple[str, str], TaskMessage] = {}
        self._kept: set[tuple[str, str]] = set()
        self._locks: dict[str, tuple[str, str]] = {}
        self._ends: dict[tuple[str, str], TaskEnd] = {}
        self._keys = InlineKeys(self._waiting)
        self.enqueued: list[TaskInfo] = []
        self.runs: list[TaskRun] = []

    @property
    def waiting(self) -> list[TaskMessage]:
        """Return the messages of the waiting tasks: scheduled, in a group, or waiting for their next attempt.

        If an exception ends a call, the tasks that it kept from running or ending are here, too.
        """
        return list(self._waiting.values())

    def _end_of(self, task: TaskKey) -> TaskEnd:
        """Return how a task has ended; ``TimeoutError`` if it is still waiting."""
        if task in self._waiting:
            raise TimeoutError(f"task {task[1]} of queue {task[0]!r} waits: it runs by run_waiting()")
        return self._ends.get(task, _GONE)

    def _drop(self, task: TaskKey) -> None:
        """Delete a waiting task."""
        if (message := self._waiting.pop(task, None)) is not None:
            self._kept.discard(task)
            self._locks.pop(message.unique_key, None)

    def _put(self, task: Task) -> TaskInfo:
        """Add a task to the backlog or to the waiting tasks; the errors are those of ``Client.enqueue``."""
        if not isinstance(task, Task):
            raise not_a_task(task)
        batch, info = compose(task, NO_OPTIONS, time.time_ns())
        message = decode_task_message(batch.tasks[0].message)
        key = (info.queue, info.id)
        lock = batch.tasks[0].lock
        if (terms := batch.tasks[0].terms) is not None:
            if (found := self._keys.find(key, (message, info.state), terms, self._backlog)) is not None:
                info = found_info(info, found)
                self.enqueued.append(info)
                return info
            self._kept.discard(key)
            info = replace(info, key_outcome=KeyOutcome.PUT)
        if key in self._kept:
            raise TaskIDConflictError(*key)
        if lock in self._locks:
            raise DuplicateTaskError(*key)
        self._kept.add(key)
        if lock:
            self._locks[lock] = key
        self.enqueued.append(info)
        # A task in a lane gets its turn at once, since nothing else runs.
        if info.state is TaskState.PENDING or (batch.in_lane and info.state is TaskState.AGGREGATING):
            self._backlog.append(message)
        else:
            self._waiting[key] = message
        return info

    @property
    def _waits_for_more(self) -> bool:
        """Return whether the last task in the backlog is for a batch handler, which should get the following tasks as
        well.
        """
        return bool(self._backlog) and self._runner.batch_of(self._backlog[-1].type)[1] > 1

    def _next_call(self) -> list[TaskMessage]:
        """Return the tasks of the next call: the first task, and the others that its handler gets together with it."""
        first = self._backlog[0]
        pattern, most = self._runner.batch_of(first.type)
        call = [first]
        if most > 1:
            call = [one for one in self._backlog if self._runner.batch_of(one.type)[0] == pattern][:most]
        self._keys.running = {(one.queue, one.id) for one in call}
        for one in call:
            if one.headers.get(UNTIL_HEADER) == "start":
                self._release(one)
        return call

    def _release(self, message: TaskMessage) -> None:
        """Release the unique lock of a task, if the task still holds it."""
        if self._locks.get(message.unique_key) == (message.queue, message.id):
            del self._locks[message.unique_key]

    def _settle_all(self, call: Sequence[TaskMessage], runs: Sequence[tuple[TaskRun, Disposition]]) -> None:
        """Record the runs of a call; raise the first handler's error if requested."""
        in_call = {id(message) for message in call}
        self._keys.running = set()
        self._backlog = deque(message for message in self._backlog if id(message) not in in_call)
        errors: list[BaseException] = []
        for message, (run, disposition) in zip(call, runs, strict=True):
            try:
                self._settle(message, run, disposition)
            except BaseException as error:  # noqa: BLE001 - it is raised once all are noted
                errors.append(error)
            self._put_again((message.queue, message.id))
        if errors:
            raise errors[0]

    def _put_again(self, key: TaskKey) -> None:
        """Add the task that was enqueued by key while the task with this key ran; a task with a time waits."""
        if (new := self._keys.again.pop(key, None)) is None:
            return
        message, state = new
        if key in self._waiting or state is TaskState.SCHEDULED:
            self._waiting[key] = message
        else:
            self._backlog.append(message)
        self._kept.add(key)

    def _put_each(self, tasks: Sequence[Task]) -> Iterator[TaskInfo | DuplicateTaskError | TaskIDConflictError]:
        """Add the tasks in turn, and yield each result; the caller runs a task before it takes the next result."""
        for task in tasks:
            try:
                yield self._put(task)
            except (DuplicateTaskError, TaskIDConflictError) as error:
                yield error

    def _wake_waiting(self) -> int:
        """Put all waiting tasks into the backlog; return the number of runs so far."""
        self._backlog.extend(self._waiting.values())
        self._waiting.clear()
        return len(self.runs)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Enclose a run of the backlog; after an exception, the remaining tasks wait again."""
        self._is_running = True
        try:
            yield
        except BaseException:
            self._waiting |= {(message.queue, message.id): message for message in self._backlog}
            self._backlog.clear()
            raise
        finally:
            self._is_running = False

    def _settle(self, message: TaskMessage, run: TaskRun, disposition: Disposition) -> None:
        """Record a run, and what becomes of its task; raise the handler's error if requested."""
        self.runs.append(run)
        key, fate = (message.queue, message.id), FATES[type(disposition)]
        self._ends.pop(key, None)
        if fate.told is None:
            message = message.replace(
                retried=message.retried + run.is_failure, error_msg=run.error_text, last_failed_at=int(time.time())
            )
            if run.checkpoint is not None:
                message.headers = {**message.headers, CHECKPOINT_HEADER: run.checkpoint.decode()}
            self._waiting[key] = message
        else:
            is_done = run.outcome is RunOutcome.DONE
            self._ends[key] = TaskEnd(EndKind.RESULT, result=run.result) if is_done else fate.told(disposition)
            if run.outcome is not RunOutcome.ARCHIVE or message.headers.get(UNTIL_HEADER) == "end":
                self._release(message)
            if not fate.stays:
                self._kept.discard(key)
        if self._raise_errors and run.error is not None and (fate.stays or fate.told is None):
            raise run.error


class InlineClient(_InlineTasks, Client):
    """A ``Client`` for tests of code that enqueues, without Redis: each task runs once, at once, through the mux.

    ``enqueued`` has the infos of all enqueued tasks, ``runs`` the results of those that ran. Tasks that a handler
    enqueues run after it, not within it. Scheduled, grouped and failed tasks wait: see ``waiting`` and ``run_waiting``.
    While a task waits or is kept, its id and unique lock refuse other tasks as in Redis. With ``raise_errors``, the
    ``enqueue`` that ran a handler raises the handler's error. A batch handler gets the tasks of one ``enqueue_many``
    together.

    >>> mux = ServeMux()
    >>> @mux.handler("greet")
    ... def greet(task):
    ...     return f"hello {task.json()}"
    >>> client = InlineClient(mux)
    >>> client.enqueue("greet", "world").state.value
    'pending'
    >>> client.runs[0].json()
    'hello world'
    """

    def __init__(
        self, mux: ServeMux, *, hooks: Hooks = NO_HOOKS, raise_errors: bool = False, codec: PayloadCodec | None = None
    ) -> None:
        # Client.__init__ is not called: there is no Redis to open.
        _InlineTasks.__init__(self, mux, hooks, raise_errors=raise_errors)
        self._codec = codec
        self._through = self._send
        self._waiter = InlineWaiter(self._end_of, self._drop)

    def _send(self, tasks: Sequence[Task]) -> EnqueueResults:
        """Put tasks, and run each unless it must wait."""
        results = []
        for result in self._put_each(tasks):
            results.append(result)
            if not self._waits_for_more:
                self._work()
        self._work()
        return EnqueueResults([_InlineResults(results)])

    def run_waiting(self) -> list[TaskRun]:
        """Run each waiting task once, whatever its time; return these runs and the runs of tasks that they enqueued."""
        before = self._wake_waiting()
        self._work()
        return self.runs[before:]

    def set_limit(self, queue: str, lane: str | None, **limit: Unpack[LimitParts]) -> None:
        """Only check the arguments: tasks run at once, one after the other."""
        limited(queue, lane, limit)

    def ping(self) -> None:
        """Do nothing: there is no Redis."""

    def close(self) -> None:
        """Do nothing."""

    def _work(self) -> None:
        """Run the backlog; do nothing if a handler of the backlog calls this, since the backlog runs already."""
        if self._is_running:
            return
        with self._working():
            while self._backlog:
                call = self._next_call()
                held = [_held(message) for message in call]
                runs = [self._runner.run(held[0])] if len(call) == 1 else self._runner.run_batch(held)
                self._settle_all(call, runs)


class AsyncInlineClient(_InlineTasks, AsyncClient):
    """An ``AsyncClient`` for tests of asyncio code that enqueues, without Redis; otherwise as ``InlineClient``.

    ``await client.enqueue(…)`` runs the task: an ``async def`` handler on the running loop, a plain one in a thread.
    One task runs at a time; tasks that other coroutines enqueue meanwhile run after it.

    >>> import asyncio
    >>> mux = ServeMux()
    >>> @mux.handler("greet")
    ... async def greet(task):
    ...     return f"hello {task.json()}"
    >>> async def test():
    ...     client = AsyncInlineClient(mux)
    ...     await client.enqueue("greet", "world")
    ...     return client.runs[0].json()
    >>> asyncio.run(test())
    'hello world'
    """

    def __init__(
        self, mux: ServeMux, *, hooks: Hooks = NO_HOOKS, raise_errors: bool = False, codec: PayloadCodec | None = None
    ) -> None:
        # AsyncClient.__init__ is not called: there is no Redis to open.
        _InlineTasks.__init__(self, mux, hooks, raise_errors=raise_errors)
        self._codec = codec
        self._through = self._send
        self._waiter = AsyncInlineWaiter(self._end_of, self._drop)

    async def _send(self, tasks: Sequence[Task]) -> EnqueueResults:
        """Put tasks, and run each unless it must wait."""
        results = []
        for result in self._put_each(tasks):
            results.append(result)
            if not self._waits_for_more:
                await self._work()
        await self._work()
        return EnqueueResults([_InlineResults(results)])

    async def run_waiting(self) -> list[TaskRun]:
        """Run each waiting task once, whatever its time; return these runs and the runs of tasks that they enqueued."""
        before = self._wake_waiting()
        await self._work()
        return self.runs[before:]

    async def set_limit(self, queue: str, lane: str | None, **limit: Unpack[LimitParts]) -> None:
        """Only check the arguments: tasks run at once, one after the other."""
        limited(queue, lane, limit)

    async def ping(self) -> None:
        """Do nothing: there is no Redis."""

    async def close(self) -> None:
        """Do nothing."""

    async def _work(self) -> None:
        """Run the backlog; do nothing if a handler of the backlog calls this, since the backlog runs already."""
        if self._is_running:
            return
        with self._working():
            while self._backlog:
                call = self._next_call()
                held = [_held(message) for message in call]
                is_one = len(call) == 1
                runs = [await self._runner.run_async(held[0])] if is_one else await self._runner.run_batch_async(held)
                self._settle_all(call, runs)


def _held(message: TaskMessage) -> InFlightTask:
    return InFlightTask(message.queue, view_task_message(encode_task_message(message)), 0.0, 1)
