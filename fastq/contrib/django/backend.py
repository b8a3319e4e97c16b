"""``FastqBackend``: the backend of Django's tasks that keeps them in Redis, for fastq's workers."""

import functools
import inspect
import logging
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, ParamSpec, TypedDict, TypeVar, Unpack, overload

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.utils import timezone

from fastq.app.template import TEMPLATES, Template
from fastq.client import Client
from fastq.common.callables import refuse_generator
from fastq.common.states import KeyOutcome, TaskState
from fastq.contrib.django.framework import (
    DEFAULT_TASK_BACKEND_ALIAS,
    DEFAULT_TASK_PRIORITY,
    DEFAULT_TASK_QUEUE_NAME,
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from fastq.contrib.django.results import ENQUEUED_AT, place_of, result_id_of, result_of
from fastq.errors import DuplicateTaskError, FastqError, QueueNotFoundError, TaskNotFoundError
from fastq.info import TaskInfo
from fastq.inspector.inspectors import Inspector
from fastq.inspector.records import FailedAttempt
from fastq.options import IfThere, Until, check_options, complete
from fastq.task import Task as Message

P = ParamSpec("P")
R = TypeVar("R")

KNOWN_TASKS: Final[dict[str, "FastqTask"]] = {}
"""The tasks that this process has imported, by the path of their function."""

_log = logging.getLogger("fastq.django")
_DEFAULTS: Final[Mapping[str, Any]] = {"retention": timedelta(days=1)}
_OPTIONS: Final = (
    "max_retry",
    "timeout",
    "retention",
    "unique",
    "unique_key",
    "until",
    "key",
    "if_there",
    "latest",
    "lane",
)
"""The options of ``FastqTask``."""
_OF_DECORATOR: Final[Mapping[str, Any]] = {
    "priority": DEFAULT_TASK_PRIORITY,
    "queue_name": DEFAULT_TASK_QUEUE_NAME,
    "backend": DEFAULT_TASK_BACKEND_ALIAS,
    "takes_context": False,
}


class TaskSettings(TypedDict, total=False):
    """The arguments of ``task``: Django's own, and the options of ``FastqTask``."""

    priority: int
    queue_name: str
    backend: str
    takes_context: bool
    max_retry: int
    timeout: float | timedelta
    retention: float | timedelta
    unique: float | timedelta
    unique_key: str
    until: Until
    key: str
    if_there: IfThere
    latest: float | timedelta
    lane: str


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> "Task[P, R]": ...
@overload
def task(function: Callable[P, R], /) -> "Task[P, R]": ...
@overload
def task(**settings: Unpack[TaskSettings]) -> Callable[[Callable[..., R]], "Task[..., R]"]: ...
def task(*function: Any, **settings: Any) -> Any:
    """Make the decorated function a task, as Django's decorator does; also takes the options of ``FastqTask``."""
    if "run_after" in settings:
        raise TypeError("@task takes no run_after: write using(run_after=...) where the task is enqueued")
    settings = {**_OF_DECORATOR, **settings}

    # Django's own decorator takes no options of a backend before 6.1.
    def make(function: Callable[..., Any]) -> AnyTask:
        return task_backends[settings["backend"]].task_class(func=function, run_after=None, **settings)

    return make(*function) if function else make


@dataclass(frozen=True, slots=True, kw_only=True)
class FastqTask(AnyTask):
    """A task of a ``FastqBackend``; its own options take precedence over those of the backend.

    The options are those of ``Client.enqueue``; ``key`` and ``lane`` may have arguments in braces: "sync:{account}".
    """

    max_retry: int | None = None
    timeout: float | timedelta | None = None
    retention: float | timedelta | None = None
    unique: float | timedelta | None = None
    unique_key: str | None = None
    until: Until | None = None
    key: str | None = None
    if_there: IfThere | None = None
    latest: float | timedelta | None = None
    lane: str | None = None

    def __post_init__(self) -> None:
        Task.__post_init__(self)
        refuse_generator(self.func, f"task {self.module_path!r}")
        complete({**check_options(self.options), "process": ("in", 1)}, 0)  # a call may set a time
        self._templates()
        KNOWN_TASKS.setdefault(self.module_path, self)  # the first one was made by @task

    @property
    def options(self) -> dict[str, Any]:
        """Return the given options."""
        given = {name: getattr(self, name) for name in _OPTIONS}
        return {name: value for name, value in given.items() if value is not None}

    def options_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a call; ``TypeError`` if the key or lane needs arguments that do not fit."""
        options = self.options
        if templates := self._templates():
            context = [None] if self.takes_context else []
            bound = inspect.signature(self.func).bind(*context, *args, **kwargs)
            bound.apply_defaults()
            options |= {name: template.fill(bound.arguments) for name, template in templates.items()}
        return options

    def _templates(self) -> dict[str, Template]:
        options, about = self.options, f"task {self.module_path!r}"
        if options.keys().isdisjoint(TEMPLATES):
            return {}
        names = [*inspect.signature(self.func).parameters][self.takes_context :]
        return {name: Template(name, options[name], names, about) for name in TEMPLATES if name in options}

    def using(self, **changes: Any) -> "FastqTask":
        """Return the same task with other attributes; None leaves an attribute as it is."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


class FastqBackend(BaseTaskBackend):
    """The backend of Django's tasks on Redis.

    OPTIONS: ``redis``, the URL, by default from the environment; ``max_retry``, ``timeout`` and ``retention`` for tasks
    that do not set their own; ``enqueue_on_commit``, by default True: a task that is enqueued within transactions is
    sent when the last of them has been committed, and never if one is rolled back. If it cannot be sent then, it is
    lost: an error is logged, and ``enqueued_at`` of its result stays None.
    """

    task_class = FastqTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = False

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = dict(self.options)
        self.redis: str | None = options.pop("redis", None)
        self._on_commit = options.pop("enqueue_on_commit", True)
        if not isinstance(self._on_commit, bool):
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]: enqueue_on_commit must be True or False, not {self._on_commit!r}"
            )
        if unknown := options.keys() - {"max_retry", "timeout", "retention"}:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: there is no option {sorted(unknown)[0]!r}")
        try:
            check_options(options)
        except (TypeError, ValueError) as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: {error}") from None
        self._defaults = {**_DEFAULTS, **options}

    @property
    def client(self) -> Client:
        """Return the client that enqueues; all backends of one URL share it."""
        return _client(self.redis)

    def enqueue(self, task: "Task[P, R]", args: Sequence[Any], kwargs: Mapping[str, Any]) -> "TaskResult[P, R]":
        """Enqueue a task once the open transactions are committed; ``TypeError`` for arguments that are not JSON."""
        self.validate_task(task)
        options: dict[str, Any] = {**self._defaults}
        if isinstance(task, FastqTask):
            options |= task.options_of(args, kwargs)
        if "key" not in options:
            options["task_id"] = str(uuid.uuid4())
        result: TaskResult[P, R] = TaskResult(
            task=task,
            id=result_id_of(task.queue_name, options.get("key") or options["task_id"]),
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        payload = {"args": result.args, "kwargs": result.kwargs}
        message = Message(task.module_path, payload, queue=task.queue_name, **options)
        run_after = _aware(task.run_after)
        if self._on_commit and (open_ones := _open_transactions()):
            _when_committed(open_ones, functools.partial(self._send_after_commit, message, result, run_after))
        else:
            self._send(message, result, run_after)
        return result

    def _send_after_commit(self, message: Message, result: AnyResult, run_after: datetime | None) -> None:
        """Send a task whose transaction is committed. An error must not keep other callbacks from running."""
        try:
            self._send(message, result, run_after)
        except DuplicateTaskError:
            _log.info("task %s (%s) was not sent: one like it holds the unique lock", result.id, message.type)
        except FastqError as error:
            _log.error(
                "task %s (%s) was not sent after the commit of its transaction, and is lost: %s",
                *(result.id, message.type, error),
            )

    def _send(self, message: Message, result: AnyResult, run_after: datetime | None) -> None:
        now = timezone.now()
        info = self.client.enqueue(message, process_at=run_after, headers={ENQUEUED_AT: now.isoformat()})
        if info.key_outcome is KeyOutcome.KEPT:
            return
        object.__setattr__(result, "enqueued_at", now)
        task_enqueued.send(type(self), task_result=result)

    def get_result(self, result_id: str) -> AnyResult:
        """Return the state of a task and its result; ``TaskResultDoesNotExist`` once its retention is over."""
        queue, task_id = place_of(str(result_id))
        if not queue or not task_id or (self.queues and queue not in self.queues):
            raise TaskResultDoesNotExist(result_id)
        try:
            return result_of(self, *self._read(queue, task_id))
        except (TaskNotFoundError, QueueNotFoundError):
            raise TaskResultDoesNotExist(result_id) from None

    def _read(self, queue: str, task_id: str) -> tuple[TaskInfo, Sequence[FailedAttempt]]:
        """Return a task and its failed attempts."""
        inspector = _inspector(self.redis)
        info = inspector.get_task_info(queue, task_id)
        has_failed = info.retried or info.lost or info.state is TaskState.ARCHIVED
        return info, inspector.get_failed_attempts(queue, task_id) if has_failed else ()


@functools.cache
def _client(url: str | None) -> Client:
    return Client(url)


@functools.cache
def _inspector(url: str | None) -> Inspector:
    return Inspector(url)


def _aware(moment: datetime | None) -> datetime | None:
    """Return a time with its zone: without USE_TZ, Django's times have no zone."""
    return timezone.make_aware(moment) if moment is not None and timezone.is_naive(moment) else moment


def _open_transactions() -> list[str]:
    """Return the databases with a transaction in this thread."""
    return [each.alias for each in connections.all(initialized_only=True) if each.in_atomic_block]


def _when_committed(open_ones: list[str], send: Callable[[], None]) -> None:
    """Call a function when the transactions of these databases are committed."""

    def go_on() -> None:
        if open_ones:
            transaction.on_commit(go_on, using=open_ones.pop())
        else:
            send()

    go_on()
