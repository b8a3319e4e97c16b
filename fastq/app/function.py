"""Typed task functions, which can be called, and be enqueued with the same arguments."""

import copy
import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from fastq.app.annotations import result_decoder
from fastq.app.context import Context, Env
from fastq.app.payload import Payload
from fastq.app.template import TEMPLATES, Template
from fastq.client import AsyncClient, Client
from fastq.enqueueing.results import EnqueueResults
from fastq.errors import no_attribute
from fastq.handles.handle import AsyncHandle, Handle
from fastq.info import TaskInfo
from fastq.mux import ServeMux
from fastq.options import EnqueueOptions, check_options, complete
from fastq.task import Task, TaskCall

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
T = TypeVar("T")


_OF_KEYS_OR_LANES: Final = frozenset({"key", "if_there", "latest", "until", "lane", "priority"})
_ELSEWHERE: Final = {
    "delay": ".enqueue(...)",
    "apply_async": ".options(queue=..., process_in=...).enqueue(...)",
    "s": ".task(...)",
    "signature": ".task(...)",
    "send": ".enqueue(...)",
    "kiq": ".aenqueue(...)",
    "defer": ".enqueue(...)",
}
"""Names of other libraries, and their equivalents in fastq."""


class _Home(Protocol):
    """The attributes of its app that a task function uses."""

    @property
    def client(self) -> Client: ...

    @property
    def async_client(self) -> AsyncClient: ...

    @property
    def outermost(self) -> ServeMux: ...


class TaskFunction(Generic[P, R]):
    """A function that is also a task: ``type`` is the task's name in Redis.

    The arguments of ``task``, ``enqueue`` and ``aenqueue`` are those of the function, without its ``Context``. Wrong
    arguments raise ``TypeError`` before anything is sent.
    """

    __name__: str

    def __init__(
        self, home: _Home, type: str, function: Callable[..., R], payload: Payload, options: EnqueueOptions
    ) -> None:
        self.type = type
        self._home = home
        self._function = function
        self.payload = payload
        self._decode_result = result_decoder(payload.result)
        self.aliases: tuple[str, ...] = ()
        checked = check_options(options)
        self._headers: Mapping[str, str] = checked.pop("headers", {})
        self._options: Mapping[str, Any] = checked
        self._given: Mapping[str, Any] = {}  # the options set by ``options``, without headers
        self._templates = self._templates_of(checked)
        wrapper: Any = self
        functools.update_wrapper(wrapper, function)

    @property
    def app(self) -> ServeMux:
        """Return the app that has the task, or the outermost app that includes that app."""
        return self._home.outermost

    @property
    def task_options(self) -> Mapping[str, Any]:
        """Return the checked options of this function's tasks."""
        return self._options

    @overload
    def task(self: "TaskFunction[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs) -> TaskCall[T]: ...
    @overload
    def task(self, *args: P.args, **kwargs: P.kwargs) -> TaskCall[R]: ...

    def task(self, *args: Any, **kwargs: Any) -> TaskCall[Any]:
        """Return a task with these arguments, for a ``Client`` to enqueue."""
        task: TaskCall[Any] = TaskCall(self.type, self.payload.encode(args, kwargs))
        task.options, task.headers, task.decode_result = self._options, self._headers, self._decode_result
        if self._templates:
            task.options = {**self._options, **self._filled(task, self._options)}
        return task

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskInfo:
        """Enqueue a call through the app's client; errors are those of ``Client.enqueue``."""
        return self._home.client.enqueue(self.task(*args, **kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> TaskInfo:
        """Enqueue a call through the app's async client."""
        return await self._home.async_client.enqueue(self.task(*args, **kwargs))

    @overload
    def submit(self: "TaskFunction[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs) -> Handle[T]: ...
    @overload
    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...

    def submit(self, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Enqueue a call through the app's client, and return a handle to wait for its result."""
        return self._home.client.submit(self.task(*args, **kwargs))

    @overload
    async def asubmit(
        self: "TaskFunction[P, Coroutine[Any, Any, T]]", *args: P.args, **kwargs: P.kwargs
    ) -> AsyncHandle[T]: ...
    @overload
    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[R]: ...

    async def asubmit(self, *args: Any, **kwargs: Any) -> AsyncHandle[Any]:
        """Enqueue a call through the app's async client, and return a handle to wait for its result."""
        return await self._home.async_client.submit(self.task(*args, **kwargs))

    def enqueue_many(self, tasks: Iterable[Task]) -> EnqueueResults:
        """Enqueue tasks that this function's ``task`` made, a few hundred per round trip; see ``Client.enqueue_many``.

        Options that were set by ``options`` apply to all of them.
        """
        return self._home.client.enqueue_many(map(self._adopted, tasks))

    async def aenqueue_many(self, tasks: Iterable[Task]) -> EnqueueResults:
        """Enqueue tasks that this function's ``task`` made through the app's async client; see ``enqueue_many``."""
        return await self._home.async_client.enqueue_many(map(self._adopted, tasks))

    def options(self, **options: Unpack[EnqueueOptions]) -> Self:
        """Return the same function with other options, which are those of ``Client.enqueue``."""
        checked = check_options(options)
        changed = copy.copy(self)
        changed._headers = {**self._headers, **checked.pop("headers", {})}
        changed._given = {**self._given, **checked}
        changed._options = {**self._options, **checked}
        changed._templates = self._templates_of(changed._options)
        return changed

    def _templates_of(self, options: Mapping[str, Any]) -> dict[str, Template]:
        """Return the templates of key and lane. ``ValueError`` for a bad template, or if an option needs another option
        that is missing.
        """
        if not _OF_KEYS_OR_LANES.isdisjoint(options):
            complete(options, 0)
        names, about = self.payload.names, f"task {self.type!r}"
        return {option: Template(option, options[option], names, about) for option in TEMPLATES if option in options}

    def _filled(self, task: Task, options: Mapping[str, Any]) -> dict[str, str]:
        """Return the key and lane among the options, filled in with the task's arguments."""
        templates = {option: one for option, one in self._templates.items() if option in options}
        arguments = self.payload.decode(task.payload) if templates else {}
        return {option: template.fill(arguments) for option, template in templates.items()}

    def _adopted(self, task: Task) -> Task:
        """Return a task of this function with the options that were set by ``options``."""
        if getattr(task, "type", None) != self.type:
            raise TypeError(f"enqueue_many of {self!r} takes what its task(...) makes, not {task!r}")
        if self._given:
            task.options = {**task.options, **self._given, **self._filled(task, self._given)}
        if self._headers:
            task.headers = {**task.headers, **self._headers}
        return task

    if not TYPE_CHECKING:  # a type checker that sees __getattr__ would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, f"task {self.__dict__.get('type')!r}", name, _ELSEWHERE)

    def __repr__(self) -> str:
        return f"<task {self.type!r} of {self._function!r}>"


class TypedTask(TaskFunction[P, R]):
    """A task function that is called with the same arguments as its ``enqueue``."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self._function(*args, **kwargs)


class ContextTask(TaskFunction[P, R], Generic[P, R, Env]):
    """A task function whose first parameter is its ``Context``."""

    def __call__(self, context: Context[Env], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself with a context."""
        return self._function(context, *args, **kwargs)
