"""``Task``: a function that can be sent as in Celery, and ``Signature``: a call of a task that can be sent later."""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, ParamSpec, Self, TypeVar

from fastq.common.callables import refuse_generator
from fastq.contrib.celery.current import Sender
from fastq.contrib.celery.options import NO_LIMIT, Settings, due_after_s
from fastq.contrib.celery.result import AsyncResult, result_id
from fastq.contrib.celery.uses import (
    OF_IMPORT,
    OF_RETRY,
    OF_SIGNATURE,
    OF_TASK,
    UNKNOWN,
    Level,
    no_such_attribute,
    unknown_option,
)
from fastq.contrib.celery.values import decode
from fastq.errors import Retry
from fastq.running import RunningTask, current_task
from fastq.task import Task as Message

P = ParamSpec("P")
R = TypeVar("R")


ASKED: Final[ContextVar[Retry | None]] = ContextVar("asked", default=None)
"""The retry that the running task has asked for."""


class MaxRetriesExceededError(Exception):
    """Raised by ``self.retry`` when a task is out of retries and ``exc`` is not given."""


class Reject(Exception):  # noqa: N818 - Celery's name
    """Raised by a task to fail, or with ``acks_late`` and ``requeue`` to run again; may be in ``autoretry_for``."""

    def __init__(self, reason: object = None, requeue: bool = False) -> None:
        super().__init__(*(() if reason is None else (reason,)))
        self.reason = reason
        self.requeue = requeue


class Request:
    """The running task with Celery's names; outside a task, ``called_directly`` is true and ``id`` is None."""

    def __init__(self, task: RunningTask | None) -> None:
        call: dict[str, Any] = {} if task is None else decode(task.payload)
        self.called_directly = task is None
        self.id = None if task is None else result_id(task.queue, task.id)
        self.task = None if task is None else task.type
        self.args: list[Any] = call.get("args", [])
        self.kwargs: dict[str, Any] = call.get("kwargs", {})
        self.retries = 0 if task is None else task.retried
        self.headers: Mapping[str, str] = {} if task is None else task.headers
        self.delivery_info = {} if task is None else {"routing_key": task.queue}


class Task(Generic[P, R]):
    """A function that is a task: ``delay`` and ``apply_async`` send it, and a plain call runs it in this process.

    ``name`` is its type on the wire. With ``bind``, the function gets this object as its first argument.
    """

    __name__: str
    __qualname__: str

    def __init__(self, function: Callable[..., R], name: str, settings: Settings, home: Callable[[], Sender]) -> None:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"task {name!r} is a coroutine, which Celery's tasks are not: use @app.task of a fastq.App")
        refuse_generator(function, f"task {name!r}")
        self.name = name
        self.settings = settings
        self.rule = settings.rule()
        self.run = functools.partial(function, self) if settings.bind else function
        self.max_retries = settings.max_retries
        self._signature = inspect.signature(self.run)
        self._home = home
        wrapper: Any = self
        functools.update_wrapper(wrapper, function)

    @property
    def app(self) -> Sender:
        """Return the app that sends the task; for a shared task, the app that was made last."""
        return self._home()

    @property
    def request(self) -> Request:
        """Return the running task."""
        return Request(self._running())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.run(*args, **kwargs)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult:
        """Send the task with these arguments."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult:
        """Send the task with these arguments; ``TypeError`` if the function does not take them.

        ``countdown`` (seconds), ``eta`` (in UTC if it has no zone), ``expires`` (seconds or a time), ``queue``,
        ``task_id``, ``link`` (a signature or a list of them), ``headers`` (text), ``ignore_result``, ``time_limit`` and
        ``soft_time_limit`` are as in Celery.
        """
        self._signature.bind(*(args or ()), **(kwargs or {}))
        sent: AsyncResult = self.app.send_task(self.name, args, kwargs, **options)
        return sent

    def s(self, *args: Any, **kwargs: Any) -> "Signature":
        """Return a signature: a call of the task that can be sent later."""
        return Signature(self, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> "Signature":
        """Return an immutable signature, which does not take the result of another task."""
        return Signature(self, args, kwargs, immutable=True)

    def retry(
        self,
        *arguments: Any,
        exc: BaseException | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        max_retries: int | None = None,
        **others: Any,
    ) -> NoReturn:
        """Retry the running task by raising ``Retry``; out of retries, raise ``exc`` or ``MaxRetriesExceededError``.

        As in Celery, the task is retried even if the function catches ``Retry``. ``max_retries`` replaces the task's
        own.
        """
        others = {**dict(zip(("args", "kwargs"), arguments, strict=False)), **others}
        if others:
            name, value = next(iter(others.items()))
            raise TypeError(unknown_option(f"retry of task {self.name!r}", name, value, OF_RETRY))
        task = self._running()
        if task is None:
            raise exc or Retry("the task can be retried")
        task._limit = _first(max_retries, self.max_retries, NO_LIMIT)
        if task.retried >= task._limit:
            raise exc or MaxRetriesExceededError(f"task {self.name!r} was retried {task.retried} times")
        after_s = countdown if countdown is not None else self.settings.default_retry_delay
        if eta is not None:
            after_s = due_after_s(eta)
        asked = Retry(after=after_s)
        ASKED.set(asked)
        raise asked from exc or sys.exc_info()[1]

    def _running(self) -> RunningTask | None:
        try:
            task = current_task()
        except LookupError:
            return None
        return task if task.type == self.name else None

    if not TYPE_CHECKING:  # a type checker that sees __getattr__ would accept any attribute

        def __getattr__(self, name: str) -> Any:
            if OF_TASK.get(name, UNKNOWN).level is Level.WORKS:
                return getattr(self.settings, name)
            raise no_such_attribute(self, f"task {self.__dict__.get('name')!r}", OF_TASK, name)

    def __repr__(self) -> str:
        return f"<task {self.name!r} of {self.run!r}>"


class Signature:
    """A task with arguments and options; as a ``link``, it gets the result of the other task before its arguments.

    An immutable signature (``task.si(…)``) gets its own arguments only.
    """

    def __init__(
        self, task: Task[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], *, immutable: bool = False
    ) -> None:
        self.task = task
        self.args = args
        self.kwargs = dict(kwargs)
        self.options: dict[str, Any] = {}
        self.immutable = immutable

    def set(self, **options: Any) -> Self:
        """Set options of ``apply_async``; return this signature."""
        self.options.update(options)
        return self

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Send the task; these arguments come before the signature's."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult:
        """Send the task; these arguments come before the signature's, and these options take precedence."""
        if self.immutable:
            args, kwargs = (), None
        merged = {**self.options, **options}
        return self.task.apply_async((*args, *self.args), {**self.kwargs, **(kwargs or {})}, **merged)

    def message(self) -> Message:
        """Return the fastq task that ``delay`` sends, for example for ``Scheduler.register``."""
        return self.task.app.message(self.task.name, self.args, self.kwargs, **self.options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.task(*(() if self.immutable else args), *self.args, **{**self.kwargs, **kwargs})

    def __or__(self, other: object) -> NoReturn:
        """Raise ``TypeError``: there are no chains."""
        raise TypeError(f"chains are not supported: {OF_IMPORT['celery']['chain'].note}: {self!r} | {other!r}")

    def as_link(self) -> dict[str, Any]:
        """Return the signature as JSON data, for the payload of the task before it."""
        options = dict(self.options)
        if "link" in options:
            options["link"] = links_of(options["link"])
        own = {"args": [*self.args], "kwargs": self.kwargs, "immutable": self.immutable}
        return {"task": self.task.name, **own, "options": options}

    if not TYPE_CHECKING:  # a type checker that sees __getattr__ would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise no_such_attribute(self, "a signature", OF_SIGNATURE, name)

    def __repr__(self) -> str:
        return f"<signature of {self.task!r}>"


def links_of(given: Any) -> list[dict[str, Any]]:
    """Return the links of an option ``link``: a signature, or a list of them; ``TypeError`` for anything else."""
    links = given if isinstance(given, list | tuple) else [given]
    for link in links:
        if not isinstance(link, Signature | dict):  # a dict is a link that has come with a task
            raise TypeError(f"link takes signatures, as task.s(...) makes them, not {link!r}")
    return [link.as_link() if isinstance(link, Signature) else link for link in links]


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)
