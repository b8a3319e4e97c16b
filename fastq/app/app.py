"""``App``: a ServeMux of typed tasks, with the clients that enqueue them and the lifespan of their handlers."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, Unpack, overload

from fastq.app.batches import BatchDecorator, BatchTask, of_one_item, typed_batching
from fastq.app.context import Context, Env
from fastq.app.failure_rule import Backoff, Errors, failure_rule
from fastq.app.function import ContextTask, TaskFunction, TypedTask
from fastq.app.handler import handler_of
from fastq.app.lane_limits import declare_limits
from fastq.app.lifespan import Lifespan
from fastq.app.payload import Payload
from fastq.batch import batching_of
from fastq.broker.transport.uri import parse_redis_uri
from fastq.client import AsyncClient, Client, limited
from fastq.common.callables import refuse_generator
from fastq.cron.parse import parse
from fastq.errors import no_attribute
from fastq.mux import ServeMux
from fastq.options import EnqueueOptions, check_text
from fastq.wire.limit import Limit, LimitParts

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L", bound=Callable[[], Iterator[Any] | AsyncIterator[Any]])

_ELSEWHERE: Final = {
    **dict.fromkeys(("send_task", "enqueue"), ".client.enqueue('type', payload), or the .enqueue(...) of a task"),
    "autodiscover_tasks": ".include(other_app)",
}
_SETTINGS_ELSEWHERE: Final = {
    "name": "the name comes first: @app.task('receipt.send')",
    "bind": "give it a first parameter ctx: Context, which is the running task",
    "autoretry_for": "write retry_on=(...)",
    "retry_backoff": "write backoff=...",
}
"""Settings of other libraries, and their equivalents in fastq."""


class TaskSettings(EnqueueOptions, total=False):
    """The settings of ``App.task``: the options of ``Client.enqueue``, and these.

    ``aliases`` are further names of the task, for example older ones. ``strict`` refuses payloads with fields for which
    the function has no parameter. ``retry_on`` and ``dont_retry_on`` are classes of errors; an error that is not in
    ``retry_on``, or is in ``dont_retry_on``, archives the task at once. ``backoff`` is the delay before the next
    attempt: one delay for all, a sequence with a delay for each attempt, or a function of the number of retries.
    ``lane`` may have parameters in braces, as in "openai:{tenant}"; the arguments of a call then choose its lane.
    ``cron`` is a spec as for ``Scheduler.register``; ``fastq scheduler module:app`` enqueues the task at these times,
    without arguments. ``threads`` is as for ``ServeMux.handle``.
    """

    aliases: Sequence[str]
    strict: bool
    retry_on: Errors
    dont_retry_on: Errors
    backoff: Backoff
    cron: str
    threads: bool


class _Decorator(Protocol):
    @overload
    def __call__(self, function: Callable[Concatenate[Context[Env], P], R], /) -> ContextTask[P, R, Env]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TypedTask[P, R]: ...


class App(ServeMux):
    """A ``ServeMux`` of typed tasks: ``fastq-worker module:app`` runs them, and they enqueue themselves.

    ``redis`` is the URL of their clients, None for ``$FASTQ_REDIS_URL``, else ``redis://127.0.0.1:6379/0``. The clients
    connect when first used; each process and each event loop has connections of its own. An app may also have raw
    handlers.
    """

    def __init__(self, redis: str | None = None) -> None:
        super().__init__()
        if redis is not None and not isinstance(redis, str):
            raise TypeError(f"App takes the URL of a Redis, not {redis!r}")
        if redis is not None:
            parse_redis_uri(redis)
        self._url = redis
        self._client: Client | None = None
        self._async_client: AsyncClient | None = None
        self._tasks: dict[str, TaskFunction[..., Any]] = {}
        self._lifespan: Lifespan | None = None
        self._crons: dict[str, str] = {}
        self._limits: dict[tuple[str, str], Limit] = {}
        self._wants: list[tuple[str, Any, App]] = []  # the tasks whose context must have an env
        self._parent: App | None = None  # the app that has included this one

    @property
    def client(self) -> Client:
        """Return the client of the tasks' ``enqueue``; an included app without a URL has the outer app's client."""
        if self._parent is not None and self._url is None:
            return self._parent.client
        with self._lock:
            if self._client is None:
                self._client = Client(self._url)
            return self._client

    @property
    def async_client(self) -> AsyncClient:
        """Return the client of the tasks' ``aenqueue``; an included app without a URL has the outer app's client."""
        if self._parent is not None and self._url is None:
            return self._parent.async_client
        with self._lock:
            if self._async_client is None:
                self._async_client = AsyncClient(self._url)
            return self._async_client

    def close(self) -> None:
        """Close the connections of ``client``; they open again at its next use."""
        if self._client is not None:
            self._client.close()

    async def aclose(self) -> None:
        """Close the connections that ``async_client`` has in the running loop."""
        if self._async_client is not None:
            await self._async_client.close()

    @property
    def tasks(self) -> dict[str, TaskFunction[..., Any]]:
        """Return the typed tasks by their names, without aliases."""
        return dict(self._tasks)

    @overload
    def task(self, name: Callable[Concatenate[Context[Env], P], R], /) -> ContextTask[P, R, Env]: ...
    @overload
    def task(self, name: Callable[P, R], /) -> TypedTask[P, R]: ...
    @overload
    def task(self, name: str | None = None, /, **settings: Unpack[TaskSettings]) -> _Decorator: ...
    @overload
    def task(
        self,
        name: str | None = None,
        /,
        *,
        batch: int,
        max_wait: float | timedelta = 0,
        max_bytes: int = 1_000_000,
        **settings: Unpack[TaskSettings],
    ) -> BatchDecorator: ...

    def task(self, name: Any = None, /, **settings: Any) -> Any:
        """Register the decorated function, plain or async, as the task ``name``, by default ``module.function``.

        The function can still be called, and can be enqueued; see ``TaskFunction``. Its arguments are sent as a JSON
        object; ``TypeError`` names a parameter that cannot be sent. A function that yields is refused, since a call
        would not run it. A name matches only itself, while a pattern of a mux also matches longer types. ``settings``
        are ``TaskSettings``.

        With ``batch``, the function gets up to that many tasks at once, as a ``Batch[T]``. Each task has one argument,
        a ``T``. The function returns None, or a list with a result for each task. ``max_wait`` and ``max_bytes`` are as
        for ``ServeMux.handle``.
        """
        if callable(name):
            return self._register_task(name, None, {})

        def register(function: Callable[..., Any]) -> Any:
            return self._register_task(function, name, settings)

        return register

    def lifespan(self, function: L) -> L:
        """Register the decorated generator function, plain or async; ``env`` of every ``Context`` is the yielded value.
        The function runs up to its ``yield`` in each child before the first task, and continues at the end of the
        child; see ``child_start`` and ``child_stop``. An included app may have its own lifespan for its tasks.
        """
        if self._lifespan is not None:
            raise ValueError(f"the app has a lifespan already; {function!r} would be another one")
        lifespan = Lifespan(function)
        self.child_start(lifespan.start)
        self.child_stop(lifespan.stop)
        self._lifespan = lifespan
        return function

    def limit(self, lane: str | None, *, queue: str = "default", **limit: Unpack[LimitParts]) -> None:
        """Limit a lane of a queue, as ``Client.set_limit`` does, when a worker of this app starts.

        If ``fastq lane limit`` or ``Client.set_limit`` has changed the limit since the last start, the change remains
        until the app declares another limit.
        """
        queue, name, checked = limited(queue, lane, limit)
        if (queue, name) in self._limits:
            raise ValueError(f"the app limits {lane!r} of queue {queue!r} twice")
        if not self._limits:
            self.child_start(self._declare_limits)
        self._limits[queue, name] = checked

    def _declare_limits(self) -> None:
        app = self
        while app._url is None and app._parent is not None:
            app = app._parent
        declare_limits(app._url, self._limits)

    def include(self, other: ServeMux) -> None:
        """Add the tasks, handlers and lifespan of another app, or the handlers of a mux; see ``ServeMux.include``."""
        super().include(other)
        if isinstance(other, App):
            other._parent = self
            self._tasks.update(other._tasks)
            self._wants += other._wants
            self._crons.update(other._crons)

    @property
    def outermost(self) -> "App":
        """Return the outermost app that includes this app, or this app if no other includes it."""
        return self if self._parent is None else self._parent.outermost

    @property
    def url(self) -> str | None:
        """Return the URL of the clients, None for the URL in the environment."""
        return self._url

    @property
    def crons(self) -> dict[str, str]:
        """Return the cron specs by the names of their tasks."""
        return dict(self._crons)

    def destinations(self) -> tuple[Mapping[str, Sequence[str]], Sequence[str]]:
        """Return the names of the tasks by their queues, and the Redis URLs of this app and of the included apps.

        A server compares these with its own queues and Redis.
        """
        queues: dict[str, list[str]] = {}
        for name, task in self._tasks.items():
            queues.setdefault(task.task_options.get("queue", "default"), []).append(name)
        urls = {app.url: None for app in (self, *self._included) if isinstance(app, App) and app.url is not None}
        return queues, list(urls)

    def check(self) -> None:
        """Check all handlers; ``TypeError`` names a task whose context would lack its ``env``."""
        super().check()
        for name, env, app in self._wants:
            if not app._has_lifespan():
                raise TypeError(f"task {name!r} takes a Context with env {env!r}, but no @app.lifespan makes one")

    if not TYPE_CHECKING:  # a type checker that sees this method would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, "an App", name, _ELSEWHERE)

    def _env(self) -> Any:
        """Return the value that the app's lifespan has yielded in this process, or that of the outer app's if it has
        none.
        """
        if self._lifespan is not None:
            return self._lifespan.env()
        return None if self._parent is None else self._parent._env()

    def _has_lifespan(self) -> bool:
        return self._lifespan is not None or (self._parent is not None and self._parent._has_lifespan())

    def _register_task(
        self, function: Callable[..., Any], name: str | None, settings: dict[str, Any]
    ) -> TaskFunction[..., Any]:
        name = _default_name(function) if name is None else check_text(name, "task name")
        if foreign := next((each for each in settings if each in _SETTINGS_ELSEWHERE), None):
            raise TypeError(f"task {name!r} has an unknown setting {foreign!r}; {_SETTINGS_ELSEWHERE[foreign]}")
        refuse_generator(function, f"task {name!r}")
        options: Any = dict(settings)
        aliases, is_strict = options.pop("aliases", ()), options.pop("strict", False)
        cron, threads = options.pop("cron", None), options.pop("threads", True)
        rule = failure_rule(*(options.pop(each, None) for each in ("retry_on", "dont_retry_on", "backoff")))
        batching = batching_of(*(options.pop(each, None) for each in ("batch", "max_wait", "max_bytes")))
        single = function if batching is None else of_one_item(name, function)
        payload = Payload(name, single, is_strict=is_strict)
        kind: Any = ContextTask if payload.takes_context else TypedTask if batching is None else BatchTask
        task: TaskFunction[..., Any] = kind(self, name, function, payload, options)
        if cron is not None:
            parse(cron)
            task.task()  # raises if the task needs arguments, since a scheduler has none
        handler: Callable[..., object] = function
        if batching is None:
            handler = handler_of(function, payload, self._env, rule)
        else:
            payload.env = getattr(single, "env", None)
            batching = typed_batching(batching, payload, self._env, rule)
        if isinstance(aliases, str):
            raise TypeError(f"aliases of task {name!r} must be a sequence of names, not the one text {aliases!r}")
        task.aliases = tuple(aliases)
        for each in (name, *aliases):
            self._register(f"{check_text(each, 'alias')}\0", handler, threads=threads, batching=batching)
        self._tasks[name] = task
        if cron is not None:
            self._crons[name] = cron
        if payload.env not in (None, type(None), Any):
            self._wants.append((name, payload.env, self))
        return task


def _default_name(function: Callable[..., Any]) -> str:
    module, name = getattr(function, "__module__", ""), getattr(function, "__name__", "")
    if not module or not name.isidentifier():
        raise TypeError(f"{function!r} has no name of its own: name its task")
    if module == "__main__":
        raise TypeError(
            f"the task of {name} needs a name, since it stands in the script that was started, which workers import "
            f"under another name: @app.task('{name}')"
        )
    return f"{module}.{name}"
