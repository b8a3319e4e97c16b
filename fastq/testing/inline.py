"""InlineClient: a client without Redis that runs what is enqueued, in this process."""

import time
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple, Self

from fastq._ids import new_task_id
from fastq.compose import message_of, starting_state
from fastq.errors import DuplicateTaskError, FastqError, TaskIDConflictError
from fastq.info import TaskInfo
from fastq.mux import ServeMux
from fastq.options import TaskOptions, check_options, complete
from fastq.results import enqueued_info
from fastq.server.inflight.held import HeldTask
from fastq.states import TaskState
from fastq.task import Task
from fastq.testing.runs import NO_HOOKS, MessageRunner, RunOutcome, TaskRun, as_task
from fastq.wire.codec import encode_task_message, view_task_message
from fastq.wire.messages import TaskMessage
from fastq.worker.hooks import Hooks

__all__ = ["InlineClient"]


class _Waiting(NamedTuple):
    message: TaskMessage
    keeps: bool


class InlineClient:
    """Be a ``Client`` in tests of code that enqueues: each task runs once, at once, through the mux.

    ``enqueued`` has the infos of all tasks that were put, ``runs`` what came of those that ran. What a handler enqueues
    runs after it, not within it. Scheduled and grouped tasks, and those that failed, wait: see ``waiting`` and
    ``run_waiting``. Ids and unique locks conflict as in Redis while a task waits or is kept. With ``raise_errors`` the
    error of a handler is raised by the ``enqueue`` that ran it.

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

    def __init__(self, mux: ServeMux, *, hooks: Hooks = NO_HOOKS, raise_errors: bool = False) -> None:
        self._runner = MessageRunner(mux, hooks)
        self._raise_errors = raise_errors
        self._backlog: deque[TaskMessage] = deque()
        self._is_running = False
        self._waiting: dict[tuple[str, str], TaskMessage] = {}
        self._kept: set[tuple[str, str]] = set()
        self._locks: dict[str, tuple[str, str]] = {}
        self.enqueued: list[TaskInfo] = []
        self.runs: list[TaskRun] = []

    def enqueue(self, task: Task | str, payload: Any = None, **options: Any) -> TaskInfo:
        """Put one task, and run it unless it is to wait; options and errors are those of ``Client.enqueue``."""
        task = as_task(task, payload)
        info, message = self._put(task, check_options(options))
        if info.state is TaskState.PENDING:
            self._backlog.append(message)
            self._work()
        else:
            self._waiting[info.queue, info.id] = message
        return info

    def enqueue_many(self, tasks: Iterable[Task], **options: Any) -> list[TaskInfo | FastqError]:
        """Put many tasks, one after the other; a duplicate or conflict is that task's result."""
        results: list[TaskInfo | FastqError] = []
        for task in tasks:
            if not isinstance(task, Task):
                raise TypeError(f"enqueue_many takes Task objects, not {type(task).__name__}: {task!r}")
            try:
                results.append(self.enqueue(task, **options))
            except (DuplicateTaskError, TaskIDConflictError) as error:
                results.append(error)
        return results

    @property
    def waiting(self) -> list[TaskMessage]:
        """Return the messages of the tasks that wait: scheduled, in a group, or for their next attempt."""
        return list(self._waiting.values())

    def run_waiting(self) -> list[TaskRun]:
        """Run all that waits now, once each, whatever its time; return these runs and those of what they enqueued."""
        before = len(self.runs)
        self._backlog.extend(self._waiting.values())
        self._waiting.clear()
        self._work()
        return self.runs[before:]

    def ping(self) -> None:
        """Do nothing: there is no Redis."""

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _put(self, task: Task, call: dict[str, Any]) -> tuple[TaskInfo, TaskMessage]:
        now_ns = time.time_ns()
        options: TaskOptions = complete({**task.options, **call}, now_ns)
        message = message_of(
            task, options, {**task.headers, **call.get("headers", {})}, options.task_id or new_task_id()
        )
        key = (options.queue, message.id)
        if key in self._kept:
            raise TaskIDConflictError(*key)
        if message.unique_key in self._locks:
            raise DuplicateTaskError(*key)
        info = enqueued_info(message, options, now_ns)
        assert info.state is starting_state(options)
        self._kept.add(key)
        if message.unique_key:
            self._locks[message.unique_key] = key
        self.enqueued.append(info)
        return info, message

    def _work(self) -> None:
        """Run the backlog, unless a handler that is part of it has called."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._backlog:
                self._run(self._backlog.popleft())
        finally:
            self._is_running = False

    def _run(self, message: TaskMessage) -> None:
        view = view_task_message(encode_task_message(message))
        run, _ = self._runner.run(HeldTask(message.queue, view, 0.0, 1))
        self.runs.append(run)
        self._settle(message, run)
        if self._raise_errors and run.error is not None and run.outcome is not RunOutcome.REVOKE:
            raise run.error

    def _settle(self, message: TaskMessage, run: TaskRun) -> None:
        key = (message.queue, message.id)
        if run.outcome is RunOutcome.RETRY:
            self._waiting[key] = message.replace(
                retried=message.retried + run.is_failure, error_msg=run.error_text, last_failed_at=int(time.time())
            )
        elif run.outcome in (RunOutcome.DONE, RunOutcome.REVOKE):
            if self._locks.get(message.unique_key) == key:
                del self._locks[message.unique_key]
            if run.outcome is RunOutcome.REVOKE or message.retention <= 0:
                self._kept.discard(key)
