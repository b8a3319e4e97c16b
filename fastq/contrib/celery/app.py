"""``Celery`` and ``shared_task``: tasks declared as for Celery, and the mux that serves them."""

import functools
import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar, overload

from fastq.app.lane_limits import declare_limits
from fastq.broker.transport.uri import parse_redis_uri
from fastq.client import Client
from fastq.common.durations import nanoseconds_of
from fastq.contrib.celery.current import current_app, latest_app, set_current_app
from fastq.contrib.celery.options import Settings, message_of, settings_of
from fastq.contrib.celery.result import REVOKED, result_id
from fastq.contrib.celery.result import AsyncResult as Result
from fastq.contrib.celery.task import ASKED, Reject, Task, links_of
from fastq.contrib.celery.uses import OF_APP, OF_APP_ARGUMENTS, no_such_attribute, unknown_option
from fastq.contrib.celery.values import decode, encode
from fastq.errors import BrokerError, PayloadError, RevokeTask, Snooze, TaskIDConflictError
from fastq.hooks import FailureRule
from fastq.mux import ServeMux
from fastq.running import RunningTask
from fastq.task import Task as Message

P = ParamSpec("P")
R = TypeVar("R")

TRY_LINKS_AGAIN_S: Final = 5.0
REQUEUE_AFTER_S: Final = 1.0
_DONE: Final = FailureRule((), (), None)

_Packages: TypeAlias = tuple[Iterable[str] | Callable[[], Iterable[str]] | None, str]
_shared: Final[dict[str, Task[..., Any]]] = {}


class Celery(ServeMux[RunningTask]):
    """The tasks of a project, which ``fastq-worker module:app`` runs.

    ``main`` is the name of the module for tasks that are defined in ``__main__``. ``broker`` is the URL of Redis, None
    for the URL in the environment. Results are kept in Redis for ``result_expires`` (seconds or a timedelta). All tasks
    of ``shared_task`` are part of the app, whether they are defined before or after it.
    """

    def __init__(
        self,
        main: str | None = None,
        broker: str | None = None,
        *,
        result_expires: float | timedelta = 86_400,
        **others: Any,
    ) -> None:
        super().__init__()
        if others:
            name, value = next(iter(others.items()))
            raise TypeError(unknown_option("Celery", name, value, OF_APP_ARGUMENTS))
        if broker is not None:
            parse_redis_uri(broker)
        self.main = main
        self._url = broker
        self._retention_s = nanoseconds_of(result_expires, name="result_expires") / 1e9
        self._tasks: dict[str, Task[..., Any]] = {}
        self._django: Any = None  # fastq.contrib.connections, once Django is set up
        self._waiting: list[_Packages] = []  # for Django to be set up
        for task in _shared.values():
            self._add_task(task)
        set_current_app(self)

    @functools.cached_property
    def client(self) -> Client:
        """Return the client that sends tasks; an app may assign another one."""
        return Client(self._url)

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, *, name: str | None = None, **settings: Any) -> Callable[[Callable[..., R]], Task[..., R]]: ...

    def task(self, *function: Any, name: str | None = None, **settings: Any) -> Any:
        """Make the decorated function a task of this app, by default named ``module.function``."""
        return _decorated(function, name, settings, self.main, lambda: self, self._add_task)

    def send_task(
        self, name: str, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Result:
        """Send a task by its name, even a task of another project; ``options`` are as for ``apply_async``."""
        info = self.client.enqueue(self.message(name, args, kwargs, **options))
        return Result(result_id(info.queue, info.id), self)

    def message(
        self, name: str, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Message:
        """Return the fastq task that ``send_task`` sends, for a ``fastq.Scheduler`` or another client."""
        call: dict[str, Any] = {"args": [*(args or ())], "kwargs": {**(kwargs or {})}}
        link = options.pop("link", None)
        if link:
            call["link"] = links_of(link)
        settings = self._tasks[name].settings if name in self._tasks else Settings()
        return message_of(name, settings, call, options, self._retention_s)

    def AsyncResult(self, id: str) -> Result:  # noqa: N802 - Celery's name
        """Return the result of the task with an id."""
        return Result(id, self)

    def autodiscover_tasks(
        self,
        packages: Iterable[str] | Callable[[], Iterable[str]] | None = None,
        related_name: str = "tasks",
        force: bool = False,
    ) -> None:
        """Import the module ``tasks`` of each package that has one. Call this after the app is made, since tasks need
        it.

        The import is done at once, but in a Django project without ``force`` it waits until Django is set up. In a
        Django project, None means all installed apps.
        """
        if _is_django() and not force:
            self._waiting.append((packages, related_name))
        elif packages is None:
            raise TypeError("autodiscover_tasks needs the names of packages where DJANGO_SETTINGS_MODULE is not set")
        else:
            _import_tasks(packages() if callable(packages) else packages, related_name)

    def patterns(self) -> dict[str, bool]:
        """Map each pattern to False, since no task is a batch handler. In a Django project, first import all tasks."""
        if self._django is None and _is_django():
            self._set_up_django()
        return super().patterns()

    def _set_up_django(self) -> None:
        """Set up Django, import the tasks that wait for it, and keep database connections fresh, as Celery's workers
        do.
        """
        self._django = importlib.import_module("fastq.contrib.connections")  # only Django projects need Django
        apps = self._django.set_up()
        self.around(self._django.FreshConnections)
        self.child_stop(self._django.close_all)
        while self._waiting:
            packages, related_name = self._waiting.pop(0)
            _import_tasks(apps if packages is None else packages() if callable(packages) else packages, related_name)
        self._django.close_all()

    def check(self) -> None:
        """Check all handlers before children are forked, and close connections that children must not share."""
        super().check()
        if self._django is not None:
            self._django.close_all()

    def _add_task(self, task: Task[..., Any]) -> None:
        known = self._tasks.get(task.name)
        if known is None:
            self._register(f"{task.name}\0", functools.partial(self._run, task.name), terms=task.settings.terms)
        elif (known.__module__, known.__qualname__) != (task.__module__, task.__qualname__):
            raise ValueError(f"task {task.name!r} is already registered, for {known.run!r}")
        self._tasks[task.name] = task  # a module that was imported again defines its task again: the later one counts
        if task.settings.limit is not None and self._declare_limits not in self.child_hooks()[0]:
            self.child_start(self._declare_limits)

    def _declare_limits(self) -> None:
        """Set the rates of the tasks; each task has a lane of its own name in its queue."""
        limits = {(task.settings.queue, name): task.settings.limit for name, task in self._tasks.items()}
        declare_limits(self._url, {place: limit for place, limit in limits.items() if limit is not None})

    def _run(self, name: str, running: RunningTask) -> object:
        """Run a task, and send the tasks linked to it. The retry options of its decorator apply, whoever has sent the
        task.
        """
        task, keeps = self._tasks[name], running._message.retention > 0
        running._rule, running._limit = task.rule, task.settings.max_retry
        call = _call_of(running)
        if call.get("expires", float("inf")) <= time.time():
            if keeps:
                return encode(REVOKED, "the mark of an expired task")
            raise RevokeTask("the task has expired")
        value = _called(task, call)
        for number, link in enumerate(call.get("link", ())):
            self._follow(running, number, link, value)
        if not keeps:
            return value
        running._rule = _DONE  # as in Celery, a result that cannot be kept fails the task, and it is not run again
        try:
            result: object = encode(value, "the result")
        except ValueError:
            result = value  # the worker keeps null for NaN, and logs that
        context: Any = running._context
        if context.interruption is not None:
            running.write_result(result)  # the server keeps a written result even if the task returns too late
        return result

    def _follow(self, running: RunningTask, number: int, link: dict[str, Any], value: object) -> None:
        """Send a linked task. Its id is made from the id of the ended task, so a second run does not send it again."""
        args = link["args"] if link["immutable"] else [value, *link["args"]]
        options = {"task_id": f"{running.id}-link-{number}", **link["options"]}
        try:
            self.send_task(link["task"], args, link["kwargs"], **options)
        except TaskIDConflictError:
            pass  # an earlier run of this task has sent the linked task
        except BrokerError as error:
            raise Snooze(f"{link['task']} cannot be sent", after=TRY_LINKS_AGAIN_S) from error

    if not TYPE_CHECKING:  # a type checker that sees __getattr__ would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise no_such_attribute(self, "the Celery app of fastq", OF_APP, name)


@overload
def shared_task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def shared_task(*, name: str | None = None, **settings: Any) -> Callable[[Callable[..., R]], Task[..., R]]: ...


def shared_task(*function: Any, name: str | None = None, **settings: Any) -> Any:
    """Make the decorated function a task of the current app and of later ones.

    Its name is ``module.function`` unless another one is given.
    """

    def add(task: Task[..., Any]) -> None:
        _shared[task.name] = task
        if isinstance(app := latest_app(), Celery):
            app._add_task(task)

    return _decorated(function, name, settings, None, current_app, add)


def _decorated(
    function: tuple[Any, ...],
    name: str | None,
    settings: Mapping[str, Any],
    main: str | None,
    home: Callable[[], Any],
    add: Callable[[Task[..., Any]], None],
) -> Any:
    def make(function: Callable[..., Any]) -> Task[..., Any]:
        own_name = name or _name_of(function, main)
        task: Task[..., Any] = Task(function, own_name, settings_of(own_name, settings), home)
        add(task)
        return task

    return make(*function) if function else make


def _name_of(function: Callable[..., Any], main: str | None) -> str:
    module = function.__module__
    if module == "__main__":
        if main is None:
            raise TypeError(
                f"the task of {function.__name__} needs a name, since it stands in the script that was started, which "
                f"workers import under another name: name={function.__name__!r}"
            )
        module = main
    return f"{module}.{function.__name__}"


def _is_django() -> bool:
    """Return whether this is a Django project: DJANGO_SETTINGS_MODULE, which Celery reads too, is set."""
    return bool(os.environ.get("DJANGO_SETTINGS_MODULE")) and importlib.util.find_spec("django") is not None


def _import_tasks(packages: Iterable[str], related_name: str) -> None:
    for package in packages:
        name = f"{package}.{related_name}"
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)


def _called(task: Task[..., Any], call: Mapping[str, Any]) -> object:
    """Call the function of a task. If it has called ``retry``, raise that ``Retry`` even if the function caught it."""
    ASKED.set(None)
    try:
        value = task.run(*call["args"], **call["kwargs"])
    except Exception as error:
        if (asked := ASKED.get()) is not None:
            raise asked from asked.__cause__
        if isinstance(error, Reject) and error.requeue and task.settings.acks_late:
            raise Snooze(str(error), after=REQUEUE_AFTER_S) from error
        raise
    if (asked := ASKED.get()) is not None:
        raise asked
    return value


def _call_of(running: RunningTask) -> dict[str, Any]:
    """Return the arguments of a task; ``PayloadError`` if its payload does not describe a call."""
    try:
        found = decode(running.payload)
    except ValueError as error:
        raise PayloadError(f"the payload is not JSON: {error}") from None
    call: dict[str, Any] = found if isinstance(found, dict) else {}
    if not isinstance(call.get("args"), list) or not isinstance(call.get("kwargs"), dict):
        raise PayloadError('the payload is not a call: {"args": [...], "kwargs": {...}}')
    return call
