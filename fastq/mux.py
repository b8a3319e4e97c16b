"""ServeMux: which handler runs a task, chosen by the task's type, with middleware around it."""

import functools
import inspect
import logging
import os.path
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Never, Protocol, TypeAlias, TypeVar

from fastq._muxmatch import PatternIndex
from fastq._prioritizer import is_blank
from fastq.batch import Batch, Batching, batching_of, each_entered, each_entered_async
from fastq.common.callables import is_async, refuse_generator
from fastq.errors import HandlerNotFoundError
from fastq.running import RunningTask

MAX_ROUTES: Final = 1000
"""How many types have their handler cached at most, since types that contain an id are unlimited in number."""

_log = logging.getLogger("fastq.mux")


class _Typed(Protocol):
    """An object with a type, as a task has."""

    @property
    def type(self) -> str: ...


if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # ``ServeMux()`` and ``Handler`` need no parameter. Type parameters have defaults only from Python 3.13 on.
    TaskT = TypeVarWithDefault("TaskT", bound=_Typed, default=RunningTask)
else:
    TaskT = TypeVar("TaskT", bound=_Typed)

Handler: TypeAlias = Callable[[TaskT], object]
"""A function, ``def`` or ``async def``, that takes the ``RunningTask`` and returns its result."""
Middleware: TypeAlias = Callable[[Handler[TaskT]], Handler[TaskT]]
"""A function that takes the next handler and returns the handler to call in its place."""
# Any function of one parameter, since a bound cannot name the mux's own type of task.
H = TypeVar("H", bound=Callable[[Never], object])
E = TypeVar("E", bound=Callable[[Never], object])
C = TypeVar("C", bound=Callable[[], object])


def _check_takes_a_task(pattern: str, handler: Callable[..., object]) -> None:
    """Raise ``TypeError`` for a handler that cannot be called with one argument."""
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # some callables written in C have no signature
        return
    try:
        signature.bind(None)
    except TypeError:
        raise TypeError(
            f"the handler of pattern {pattern!r} must take the task as its one argument: {handler!r} is "
            f"called as {signature}"
        ) from None


def _misfit(middleware: object, pattern: str, handler_is_async: bool) -> str:
    """Return why a middleware that turns plain handlers into async ones, or the reverse, is refused."""
    kinds = ("a plain function", "the async") if handler_is_async else ("an async function", "the plain")
    why = "would return before the handler has run" if handler_is_async else "would never be awaited"
    return (
        f"middleware {middleware!r} puts {kinds[0]} around {kinds[1]} handler of pattern {pattern!r}, which {why}; "
        "use mux.around with a context manager, which serves both"
    )


def _middleware_of(enter: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a middleware that enters a context manager around each call of a handler."""
    if not callable(enter):
        raise TypeError(f"mux.around takes a function of the task that returns a context manager, not {enter!r}")
    refuse_generator(enter, "the function of mux.around, which lacks @contextmanager,")

    def middleware(handler: Callable[..., Any]) -> Callable[..., Any]:
        if handler is _not_found:
            return handler  # no handler runs, so there is nothing to wrap, and the error must stay unchanged
        if is_async(handler):

            @functools.wraps(handler)
            async def around_async(task: object) -> object:
                manager = each_entered_async(enter, task) if isinstance(task, Batch) else enter(task)
                if isinstance(manager, AbstractAsyncContextManager):
                    async with manager:
                        return await handler(task)
                with manager:
                    return await handler(task)

            return around_async

        @functools.wraps(handler)
        def around(task: object) -> object:
            with each_entered(enter, task) if isinstance(task, Batch) else enter(task):
                return handler(task)

        return around

    return middleware


def _checked_hook(hook: Callable[[], object], what: str) -> Callable[[], object]:
    if not callable(hook):
        raise TypeError(f"@{what} is for a function without parameters, not for {hook!r}")
    refuse_generator(hook, f"the function of @{what}")
    try:
        inspect.signature(hook).bind()
    except ValueError:
        pass  # a builtin without a signature
    except TypeError as error:
        raise TypeError(f"@{what}: {hook!r} is called without arguments: {error}") from None
    return hook


def _not_found(task: _Typed) -> object:
    """Fail the task inside the middleware, as asynq does."""
    raise HandlerNotFoundError(task.type)


def _is_alone(registered: "_Registered") -> bool:
    """Return whether a handler must run alone in its child; a mux as handler must if any of its handlers must."""
    nested = registered.handler
    return not registered.threads or (isinstance(nested, ServeMux) and bool(nested.alone()))


def _place_of(handler: Any) -> str:
    """Return the name of a handler, and file and line of its function."""
    function = inspect.unwrap(getattr(handler, "function", handler))
    code = getattr(function, "__code__", None)
    if code is None:
        return repr(handler)
    file = os.path.basename(code.co_filename)
    return f"{function.__module__}.{function.__qualname__} ({file}:{code.co_firstlineno})"


def _twin(pattern: str) -> str:
    """Return the other pattern with the same text: the exact pattern for a prefix, the prefix for an exact pattern."""
    return pattern[:-1] if pattern.endswith("\0") else f"{pattern}\0"


class Terms(NamedTuple):
    """Rules that servers apply to the tasks of a handler, whoever enqueued them.

    ``limit_s`` is the time limit of tasks that have none. With ``ends_with_process``, a task whose process dies or is
    killed is not run again. With ``may_be_late``, a task that returns after its time was up has succeeded.
    """

    limit_s: int | None = None
    ends_with_process: bool = False
    may_be_late: bool = False


class _Registered(NamedTuple):
    """A handler, the middleware of the mux from which it was included (outermost first), and how its tasks are run."""

    handler: Callable[..., Any]
    middleware: tuple[Callable[..., Any], ...] = ()
    threads: bool = True
    terms: Terms | None = None
    batching: Batching | None = None


_NOT_FOUND: Final = _Registered(_not_found)


class ServeMux(Generic[TaskT]):
    """A map from patterns to handlers: an exact pattern wins, else the longest pattern with which the type begins.

    This is asynq's rule. There is no separator: ``image:resize`` also takes ``image:resize_v2`` unless that type has
    its own handler. The first such match is logged at debug level. Case and white space matter. Handlers and middleware
    may be added at any time and from any thread, but a server reads ``patterns`` once, when a child has imported the
    app.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._index = PatternIndex()
        self._handlers: dict[str, _Registered] = {}
        self._middleware: tuple[Middleware[TaskT], ...] = ()
        self._start_hooks: tuple[Callable[[], object], ...] = ()
        self._stop_hooks: tuple[Callable[[], object], ...] = ()
        self._built: dict[str | None, Handler[TaskT]] = {}  # handlers in middleware, by pattern; None: no match
        self._routes: dict[str, Handler[TaskT]] = {}  # the same handlers by type
        self._noted: set[str] = set()  # prefixes that need no log line about longer types
        self._included: tuple[ServeMux[TaskT], ...] = ()  # the muxes in this one, directly or through another
        self._is_included = False

    def handler(
        self,
        pattern: str,
        *,
        threads: bool = True,
        batch: int | None = None,
        max_wait: float | timedelta | None = None,
        max_bytes: int | None = None,
    ) -> Callable[[H], H]:
        """Register the decorated function; see ``handle``."""
        if callable(pattern):
            raise TypeError(f"@mux.handler needs a pattern: write @mux.handler('type') above {pattern!r}")

        def register(handler: H) -> H:
            batching = batching_of(batch, max_wait, max_bytes)
            self._register(pattern, handler, threads=threads, batching=batching)
            return handler

        return register

    def handle(
        self,
        pattern: str,
        handler: Callable[..., object],
        *,
        threads: bool = True,
        batch: int | None = None,
        max_wait: float | timedelta | None = None,
        max_bytes: int | None = None,
    ) -> None:
        """Register a handler, ``def`` or ``async def``, for all types that begin with ``pattern``.

        With ``--threads``, plain handlers run side by side in the threads of a child. With ``threads=False``, this
        handler runs alone in its child, as a handler should that computes, or is not thread-safe.

        With ``batch``, the handler gets up to ``batch`` tasks at once, as a ``Batch``: tasks that wait already, and
        tasks that come within ``max_wait`` after the first. Together the tasks have at most ``max_bytes`` (1 MB by
        default). The handler returns None, or a list with a result for each task; an exception in the list makes its
        task fail. Everything else concerns each task alone, as without ``batch``.

        A blank or already registered pattern raises ``ValueError``. A generator function, or an object that cannot be
        called, raises ``TypeError``.
        """
        self._register(pattern, handler, threads=threads, batching=batching_of(batch, max_wait, max_bytes))

    def use(self, *middleware: Middleware[TaskT]) -> None:
        """Wrap all handlers, also later ones and "not found": ``middleware(next) -> handler``, the first outermost.

        Middleware is called once per pattern, when its first task arrives, not once per task as in asynq.
        """
        for item in middleware:
            if not callable(item):
                raise TypeError(f"middleware cannot be called: {item!r}")
        with self._lock:
            self._check_open()
            self._middleware += middleware
            self._built, self._routes = {}, {}

    def around(self, enter: E) -> E:
        """Run every handler, plain or async, inside ``with enter(task):``; also as a decorator. The first is outermost.

        ``enter`` is a function of the task that returns a context manager, for example one made by ``contextmanager``,
        or a ``Semaphore``. Around an async handler, a context manager with an async form is entered by ``async with``.
        A plain handler needs the plain form.
        """
        self.use(_middleware_of(enter))
        return enter

    def include(self, other: "ServeMux[TaskT]") -> None:
        """Add the handlers of another mux, each inside the other mux's middleware, and all that inside this mux's.

        The ``child_start`` and ``child_stop`` hooks of ``other`` are added, too. If both muxes have the same pattern,
        or ``other`` is already included, a ``ValueError`` names the pattern or the mux, and nothing is added. Adding to
        ``other`` afterwards raises ``RuntimeError``.
        """
        if not isinstance(other, ServeMux):
            raise TypeError(f"mux.include takes a ServeMux, not {other!r}")
        if other is self:
            raise ValueError("a ServeMux cannot include itself")
        other.patterns()  # a mux that imports its handlers on demand does so now
        with other._lock, self._lock:
            self._check_open()
            for pattern in other._handlers:
                for rival in {pattern, _twin(pattern)} & self._handlers.keys():
                    ours, theirs = self._handlers[rival].handler, other._handlers[pattern].handler
                    text = pattern.removesuffix("\0")
                    raise ValueError(f"pattern {text!r} is in both: here for {ours!r}, there for {theirs!r}")
            for mux in (other, *other._included):
                if mux in self._included:
                    raise ValueError(
                        f"{mux!r} is included already; its child_start and child_stop hooks would run twice"
                    )
            other._is_included = True
            self._included += (other, *other._included)
            for pattern, found in other._handlers.items():
                self._add(pattern, found._replace(middleware=(*other._middleware, *found.middleware)))
            self._start_hooks += other._start_hooks
            self._stop_hooks = (*other._stop_hooks, *self._stop_hooks)

    def check(self) -> None:
        """Put the middleware around every handler now; ``TypeError`` names a middleware that does not fit."""
        for pattern, found in list(self._handlers.items()):
            if isinstance(found.handler, ServeMux) and any(found.handler.patterns().values()):
                raise TypeError(
                    f"the ServeMux under pattern {pattern!r} has async handlers, which cannot be nested; "
                    "join the two with mux.include"
                )
            self._build(pattern)

    def child_start(self, hook: C) -> C:
        """Register the decorated function to be called in each child process before its first task.

        It takes no arguments. If it is ``async``, it runs in the event loop of the handlers. Connections, threads and
        sessions that it opens belong to the child. If it raises, the child runs no tasks: the traceback is logged, and
        another child is started after a while. Only the hooks of the served mux, and of the muxes that it includes, are
        called, in the order of registration.
        """
        self._check_open()
        self._start_hooks += (_checked_hook(hook, "child_start"),)
        return hook

    def child_stop(self, hook: C) -> C:
        """Register the decorated function to be called in each child that ends normally, the last registered first.

        All these functions together have 5 s. They are not called in a child that is killed because of a task's time
        limit or with the server.
        """
        self._check_open()
        self._stop_hooks = (_checked_hook(hook, "child_stop"), *self._stop_hooks)
        return hook

    def child_hooks(self) -> tuple[Sequence[Callable[[], object]], Sequence[Callable[[], object]]]:
        """Return the functions to call at the start and at the end of a child, in that order."""
        return self._start_hooks, self._stop_hooks

    def match(self, task_type: str) -> tuple[Handler[TaskT], str]:
        """Return the handler as registered, and its pattern; if none matches, a handler that raises, and ``""``."""
        with self._lock:
            pattern = self._index.find(task_type)
            return (_not_found, "") if pattern is None else (self._handlers[pattern].handler, pattern)

    def dispatch(self, task_type: str) -> Handler[TaskT]:
        """Return the handler of a type with its middleware; without a match, one that raises HandlerNotFoundError."""
        handler = self._routes.get(task_type)
        return self._route(task_type) if handler is None else handler

    def __call__(self, task: TaskT) -> object:
        """Run a task; so a mux can be the handler of another mux, like a plain function."""
        return self.dispatch(task.type)(task)

    def patterns(self) -> dict[str, bool]:
        """Map each pattern, in the order of registration, to whether its handler is ``async`` (see ``is_async``).

        A pattern that ends in NUL is the name of a typed task, and matches only that type.
        """
        with self._lock:
            return {pattern: is_async(found.handler) for pattern, found in self._handlers.items()}

    def destinations(self) -> tuple[Mapping[str, Sequence[str]], Sequence[str]]:
        """Return the names of typed tasks by queue, and the Redis URLs of their clients; a plain mux has neither."""
        return {}, ()

    def alone(self) -> set[str]:
        """Return the patterns whose handlers run alone in their child, however many threads it has."""
        with self._lock:
            return {pattern for pattern, found in self._handlers.items() if _is_alone(found)}

    def _terms(self) -> dict[str, Terms]:
        """Return the ``Terms`` of each pattern that has any."""
        with self._lock:
            return {pattern: found.terms for pattern, found in self._handlers.items() if found.terms is not None}

    def _batchings(self) -> dict[str, Batching]:
        """Return the batching of each pattern that has a batch handler."""
        with self._lock:
            handlers = self._handlers.items()
            return {pattern: found.batching for pattern, found in handlers if found.batching is not None}

    def _check_open(self) -> None:
        """Raise ``RuntimeError`` if this mux is included in another mux, which would not see later additions."""
        if self._is_included:
            raise RuntimeError(
                "this ServeMux is included in another one; add handlers, middleware and hooks before mux.include"
            )

    def _register(
        self,
        pattern: str,
        handler: Callable[..., object],
        *,
        threads: bool = True,
        terms: Terms | None = None,
        batching: Batching | None = None,
    ) -> None:
        if not isinstance(pattern, str):
            raise TypeError(f"a pattern is a str, not {pattern!r}")
        if is_blank(pattern):
            raise ValueError(f"pattern {pattern!r} is blank")
        if not isinstance(threads, bool):
            raise TypeError(f"pattern {pattern.removesuffix(chr(0))!r}: threads must be True or False, not {threads!r}")
        if not callable(handler):
            raise TypeError(f"the handler of pattern {pattern!r} cannot be called: {handler!r}")
        refuse_generator(handler, f"the handler of pattern {pattern!r}")
        _check_takes_a_task(pattern, handler)
        with self._lock:
            self._check_open()
            self._add(pattern, _Registered(handler, threads=threads, terms=terms, batching=batching))

    def _add(self, pattern: str, registered: _Registered) -> None:
        for taken in {pattern, _twin(pattern)} & self._handlers.keys():
            what = "task name" if pattern.endswith("\0") else "pattern"
            ours = _place_of(self._handlers[taken].handler)
            raise ValueError(f"{what} {pattern.removesuffix(chr(0))!r} is already registered, for {ours}")
        self._index.add(pattern)
        self._handlers[pattern] = registered
        self._routes = {}  # some of the cached types may now belong to the new pattern
        if not pattern[-1].isalnum():
            self._noted.add(pattern)  # meant as a prefix, or a full name: it ends in NUL

    def _route(self, task_type: str) -> Handler[TaskT]:
        """Find the handler of a type that is not cached, and cache it while there is room."""
        pattern = self._index.find(task_type)
        if pattern is not None and pattern not in self._noted and pattern != task_type:
            self._note(pattern, task_type)
        if len(self._routes) >= MAX_ROUTES:
            built = self._built.get(pattern)
            return self._build(pattern) if built is None else built
        with self._lock:
            handler = self._build(self._index.find(task_type))  # a handler may have been added since the look-up
            self._routes[task_type] = handler
            return handler

    def _note(self, pattern: str, task_type: str) -> None:
        self._noted.add(pattern)
        _log.debug(
            "pattern %r also takes type %r, which begins with it; a handler of its own would come first",
            pattern,
            task_type,
        )

    def _build(self, pattern: str | None) -> Handler[TaskT]:
        """Put the middleware around a handler, the last added first."""
        with self._lock:
            built = self._built
            if pattern in built:
                return built[pattern]
            handler, inner, *_ = _NOT_FOUND if pattern is None else self._handlers[pattern]
            for middleware in reversed((*self._middleware, *inner)):
                wrapped = middleware(handler)
                if not callable(wrapped):
                    raise TypeError(f"middleware {middleware!r} must return a handler, not {wrapped!r}")
                refuse_generator(wrapped, f"what middleware {middleware!r} puts around pattern {pattern!r}")
                if is_async(wrapped) is is_async(handler):
                    handler = wrapped
                elif pattern is not None:
                    raise TypeError(_misfit(middleware, pattern, is_async(handler)))
            built[pattern] = handler
            return handler
