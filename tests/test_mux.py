"""ServeMux: matching and middleware as Go does them, and the kinds of handlers that Python has."""

import asyncio
import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier, Event
from typing import Any, assert_type

import pytest

from fastq.common.callables import is_async
from fastq.errors import HandlerNotFoundError
from fastq.mux import MAX_ROUTES, Handler, ServeMux
from fastq.running import RunningTask
from fastq.task import Task

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "errors.json").read_text("utf-8"))["servemux"]


@dataclass
class FakeTask:
    type: str


def plain(task: FakeTask) -> str:
    return f"plain {task.type}"


async def coroutine(task: FakeTask) -> str:
    return f"async {task.type}"


def hands_on(task: FakeTask) -> object:
    return coroutine(task)


class AsyncCallable:
    def __init__(self, task: object = None) -> None:
        pass

    async def __call__(self, task: FakeTask) -> str:
        return "object"

    async def method(self, task: FakeTask) -> str:
        return "method"


class PlainCallable:
    def __call__(self, task: FakeTask) -> str:
        return "object"


def tracing(name: str, trace: list[str]) -> Callable[[Handler[FakeTask]], Handler[FakeTask]]:
    """Return a middleware that writes down when it is called, and when what it made is called."""

    def middleware(next: Handler[FakeTask]) -> Handler[FakeTask]:
        trace.append(f"build {name}")

        def handler(task: FakeTask) -> object:
            trace.append(f"{name} before")
            try:
                return next(task)
            finally:
                trace.append(f"{name} after")

        return handler

    return middleware


# Matching


@pytest.mark.parametrize("case", GOLDEN["matches"], ids=lambda case: repr(case["type"]))
def test_types_go_to_the_pattern_that_go_chooses(case: dict[str, str]) -> None:
    mux = ServeMux[FakeTask]()
    handlers = {pattern: functools.partial(plain) for pattern in GOLDEN["patterns"]}
    for pattern, handler in handlers.items():
        mux.handle(pattern, handler)
    found, pattern = mux.match(case["type"])
    assert pattern == case["pattern"]
    if pattern:
        assert found is handlers[pattern]
        assert mux.dispatch(case["type"]) is handlers[pattern]


def test_a_type_that_nothing_matches_raises_when_it_is_run() -> None:
    mux = ServeMux[FakeTask]()
    handler, pattern = mux.match("zzz")
    assert pattern == ""
    for unknown in (handler, mux.dispatch("zzz"), mux):
        with pytest.raises(HandlerNotFoundError, match="handler not found for task 'zzz'") as caught:
            unknown(FakeTask("zzz"))
        assert caught.value.task_type == "zzz"


def test_the_decorator_registers_and_leaves_the_function_as_it_is() -> None:
    mux = ServeMux[FakeTask]()
    decorated = mux.handler("image:")(plain)
    assert_type(decorated(FakeTask("x")), str)
    assert decorated is plain
    assert mux.match("image:resize") == (plain, "image:")
    assert mux(FakeTask("image:resize")) == "plain image:resize"


def test_a_mux_is_for_running_tasks_unless_it_is_said_otherwise() -> None:
    mux = ServeMux()
    assert_type(mux, ServeMux[RunningTask])

    @mux.handler("image:resize")
    def resize(task: Task) -> bytes:
        return task.payload

    def quiet(next: Handler) -> Handler:
        return lambda task: next(task) if task.retried else None

    mux.use(quiet)
    assert_type(resize(Task("image:resize", b"data")), bytes)
    assert_type(mux.dispatch("image:resize"), Callable[[RunningTask], object])
    assert list(mux.patterns()) == ["image:resize"]


def test_a_mux_can_be_the_handler_of_another_one() -> None:
    inner, outer = ServeMux[FakeTask](), ServeMux[FakeTask]()
    inner.handle("image:resize", plain)
    outer.handle("image:", inner)
    assert outer(FakeTask("image:resize:large")) == "plain image:resize:large"
    with pytest.raises(HandlerNotFoundError):
        outer(FakeTask("image:crop"))


# What is refused


@pytest.mark.parametrize("pattern", ["", " ", "\t\u3000"])
def test_a_blank_pattern_is_refused(pattern: str) -> None:
    mux = ServeMux[FakeTask]()
    with pytest.raises(ValueError, match="is blank") as caught:
        mux.handle(pattern, plain)
    assert repr(pattern) in str(caught.value)
    assert mux.patterns() == {}


def test_a_pattern_that_only_python_finds_blank_is_taken() -> None:
    mux = ServeMux[FakeTask]()
    mux.handle("\x1c", plain)
    assert mux.match("\x1cx") == (plain, "\x1c")


def test_a_pattern_is_registered_once() -> None:
    mux = ServeMux[FakeTask]()
    mux.handle("a", plain)
    with pytest.raises(ValueError, match="pattern 'a' is already registered"):
        mux.handle("a", coroutine)
    assert mux.match("a") == (plain, "a")


@pytest.mark.parametrize("pattern", [None, b"a", 1])
def test_a_pattern_that_is_no_text_is_refused(pattern: Any) -> None:
    with pytest.raises(TypeError, match=f"a pattern is a str, not {pattern!r}"):
        ServeMux[FakeTask]().handle(pattern, plain)


@pytest.mark.parametrize("handler", [None, "module:attr", 1])
def test_a_handler_that_cannot_be_called_is_refused(handler: Any) -> None:
    mux = ServeMux[FakeTask]()
    with pytest.raises(TypeError, match=f"handler of pattern 'a' cannot be called: {handler!r}"):
        mux.handle("a", handler)
    assert mux.match("a")[1] == ""


def test_middleware_that_cannot_be_called_is_refused_and_none_of_it_used() -> None:
    mux, trace = ServeMux[FakeTask](), list[str]()
    with pytest.raises(TypeError, match="middleware cannot be called: None"):
        mux.use(tracing("m1", trace), None)  # type: ignore[arg-type]  # the point of the test
    mux.dispatch("a")
    assert trace == []


def test_middleware_that_returns_no_handler_is_named() -> None:
    def forgetful(next: Handler[FakeTask]) -> Any:
        pass

    mux = ServeMux[FakeTask]()
    mux.use(forgetful)
    with pytest.raises(TypeError, match=r"forgetful.* must return a handler, not None"):
        mux.dispatch("a")


# Middleware


def test_middleware_runs_in_the_order_of_go_around_known_and_unknown_types() -> None:
    trace: list[str] = []

    def handler(task: FakeTask) -> None:
        trace.append("handler")

    mux = ServeMux[FakeTask]()
    mux.use(tracing("m1", trace), tracing("m2", trace))
    mux.handle("a", handler)
    mux.use(tracing("m3", trace))
    mux.dispatch("a")(FakeTask("a"))
    trace.append("--- unknown type:")
    with pytest.raises(HandlerNotFoundError) as caught:
        mux.dispatch("zzz")(FakeTask("zzz"))
    trace.append(f"error: {caught.value}".replace("'", '"'))
    assert trace == GOLDEN["middleware_order"]


def test_middleware_is_built_once_for_a_pattern_and_again_when_more_is_used() -> None:
    trace: list[str] = []
    mux = ServeMux[FakeTask]()
    mux.handle("a", plain)
    mux.use(tracing("m1", trace))
    assert mux.dispatch("ab") is mux.dispatch("ac")
    assert mux.dispatch("x") is mux.dispatch("y")
    assert trace == ["build m1", "build m1"]
    mux.use(tracing("m2", trace))
    mux.dispatch("a")
    assert trace[2:] == ["build m2", "build m1"]


def test_a_pattern_added_later_takes_its_types_from_a_shorter_one() -> None:
    mux = ServeMux[FakeTask]()
    mux.handle("a", plain)
    assert mux.dispatch("ab:c") is plain
    mux.handle("ab", coroutine)
    assert mux.dispatch("ab:c") is coroutine
    assert mux.dispatch("a:c") is plain


def test_middleware_can_answer_for_a_type_that_has_no_handler() -> None:
    def fallback(next: Handler[FakeTask]) -> Handler[FakeTask]:
        def handler(task: FakeTask) -> object:
            try:
                return next(task)
            except HandlerNotFoundError as error:
                return f"fallback for {error.task_type}"

        return handler

    mux = ServeMux[FakeTask]()
    mux.use(fallback)
    assert mux(FakeTask("zzz")) == "fallback for zzz"


# Plain and async handlers


def test_handlers_are_known_as_plain_or_async() -> None:
    thing = AsyncCallable()
    asynchronous: dict[str, Handler[FakeTask]] = {
        "function": coroutine,
        "partial": functools.partial(coroutine),
        "object": thing,
        "method": thing.method,
        "partial of object": functools.partial(functools.partial(thing)),
    }
    synchronous: dict[str, Handler[FakeTask]] = {
        "plain function": plain,
        "plain partial": functools.partial(plain),
        "plain object": PlainCallable(),
        "returns an awaitable": hands_on,
        "class": AsyncCallable,
        "builtin": repr,
        "mux": ServeMux[FakeTask](),
    }
    mux = ServeMux[FakeTask]()
    for name, handler in {**asynchronous, **synchronous}.items():
        mux.handle(name, handler)
        assert is_async(handler) is (name in asynchronous), name
    assert mux.patterns() == {**dict.fromkeys(asynchronous, True), **dict.fromkeys(synchronous, False)}


def test_plain_middleware_around_an_async_handler_is_refused() -> None:
    """Its end, a timing or a finally, would come before the handler has run."""
    mux = ServeMux[FakeTask]()
    mux.use(tracing("m1", []))
    mux.handle("a", plain)
    mux.check()
    mux.handle("b", coroutine)
    with pytest.raises(TypeError, match=r"puts a plain function around the async handler of pattern 'b'.*mux\.around"):
        mux.check()


def test_async_middleware_around_a_plain_handler_is_refused_and_left_out_where_no_handler_is_found() -> None:
    def middleware(handler: Handler[FakeTask]) -> Handler[FakeTask]:
        async def run(task: FakeTask) -> object:
            result = handler(task)
            return await result if inspect.isawaitable(result) else result

        return run

    mux = ServeMux[FakeTask]()
    mux.use(middleware)
    mux.handle("a", coroutine)
    mux.check()
    with pytest.raises(HandlerNotFoundError):
        mux(FakeTask("nosuch"))
    mux.handle("b", plain)
    with pytest.raises(TypeError, match="an async function around the plain handler of pattern 'b'"):
        mux.check()


def test_a_context_manager_surrounds_plain_and_async_handlers_and_hears_their_errors() -> None:
    trace: list[str] = []
    mux = ServeMux[FakeTask]()

    @mux.around
    @contextmanager
    def outer(task: FakeTask) -> Iterator[None]:
        trace.append(f"enter {task.type}")
        try:
            yield
        finally:
            trace.append(f"exit {task.type}")

    class Both:
        def __enter__(self) -> None:
            trace.append("plain")

        def __exit__(self, *error: object) -> None:
            trace.append("plain end")

        async def __aenter__(self) -> None:
            trace.append("async")

        async def __aexit__(self, *error: object) -> None:
            trace.append("async end")

    async def waits(task: FakeTask) -> None:
        await asyncio.sleep(0)
        trace.append("ran")

    def fails(task: FakeTask) -> None:
        raise ValueError("no")

    mux.around(lambda task: Both())
    mux.handle("waits", waits)
    mux.handle("fails", fails)
    mux.check()
    asyncio.run(mux(FakeTask("waits")))  # type: ignore[arg-type]  # a handler's result is an object to the mux
    with pytest.raises(ValueError, match="no"):
        mux(FakeTask("fails"))
    assert trace == [
        *("enter waits", "async", "ran", "async end", "exit waits"),
        *("enter fails", "plain", "plain end", "exit fails"),
    ]
    with pytest.raises(TypeError, match=r"mux\.around takes a function of the task"):
        mux.around("no")  # type: ignore[type-var]  # no function


def test_a_nested_mux_with_async_handlers_is_refused() -> None:
    inner, outer = ServeMux[FakeTask](), ServeMux[FakeTask]()
    inner.handle("a:b", plain)
    outer.handle("a", inner)
    outer.check()
    inner.handle("a:c", coroutine)
    with pytest.raises(TypeError, match=r"under pattern 'a' has async handlers, which cannot be nested.*mux\.include"):
        outer.check()


# Several muxes


def test_an_included_mux_brings_its_handlers_plain_and_async() -> None:
    outer, inner = ServeMux[FakeTask](), ServeMux[FakeTask]()
    outer.handle("a", plain)
    assert outer.dispatch("a:b:c") is plain
    inner.handle("a:b", coroutine)
    inner.handle("b", hands_on)
    outer.include(inner)
    assert outer.patterns() == {"a": False, "a:b": True, "b": False}
    assert outer.match("a:b:c") == (coroutine, "a:b")
    assert outer.dispatch("a:b:c") is coroutine
    outer.check()


def test_the_middleware_of_an_included_mux_surrounds_its_handlers_only() -> None:
    trace: list[str] = []
    outer, middle, inner = (ServeMux[FakeTask]() for _ in range(3))
    for name, mux in {"outer": outer, "middle": middle, "inner": inner}.items():
        mux.handle(name, lambda task: trace.append("handler"))
    inner.use(tracing("i", trace))
    middle.use(tracing("m", trace))
    middle.include(inner)
    outer.include(middle)
    outer.use(tracing("o", trace))
    for name, around in {"outer": "o", "middle": "om", "inner": "omi"}.items():
        outer(FakeTask(name))
        assert [step[0] for step in trace if "before" in step] == list(around)
        trace.clear()
    with pytest.raises(HandlerNotFoundError):
        outer(FakeTask("zzz"))
    assert [step for step in trace if "before" in step] == ["o before"]


def test_middleware_that_does_not_fit_is_found_in_an_included_mux_too() -> None:
    outer, inner = ServeMux[FakeTask](), ServeMux[FakeTask]()
    inner.use(tracing("i", []))
    inner.handle("a", coroutine)
    outer.include(inner)
    with pytest.raises(TypeError, match="puts a plain function around the async handler of pattern 'a'"):
        outer.check()


def test_muxes_with_a_pattern_in_common_are_not_joined() -> None:
    outer, inner = ServeMux[FakeTask](), ServeMux[FakeTask]()
    outer.handle("a", plain)
    inner.handle("new", plain)
    inner.handle("a", coroutine)
    with pytest.raises(
        ValueError, match=r"pattern 'a' is in both: here for <function plain.*, there for <function cor"
    ):
        outer.include(inner)
    assert outer.patterns() == {"a": False}
    inner.handle("b", plain)  # it was not included
    with pytest.raises(ValueError, match="cannot include itself"):
        ServeMux.include(mux := ServeMux[FakeTask](), mux)
    with pytest.raises(TypeError, match=r"mux\.include takes a ServeMux, not 'tasks:mux'"):
        outer.include("tasks:mux")  # type: ignore[arg-type]  # what is tested


def test_the_hooks_of_a_mux_come_once() -> None:
    def connect() -> None: ...

    hooks, outer, left, right = (ServeMux[FakeTask]() for _ in range(4))
    hooks.child_start(connect)
    for mux in (outer, left, right):
        mux.include(hooks)
    with pytest.raises(ValueError, match=r"<fastq\.mux\.ServeMux object .* is included already; its child_start"):
        outer.include(hooks)
    with pytest.raises(ValueError, match="is included already"):
        left.include(right)
    assert outer.child_hooks() == left.child_hooks() == ((connect,), ())
    right.handle("a", plain)  # it was not included


def test_a_mux_that_was_included_takes_nothing_more() -> None:
    def connect() -> None: ...

    outer, inner = ServeMux[FakeTask](), ServeMux[FakeTask]()
    inner.child_start(connect)
    inner.child_stop(connect)
    outer.include(inner)
    assert outer.child_hooks() == ((connect,), (connect,))
    late: list[Callable[[], object]] = [
        lambda: inner.handle("a", plain),
        lambda: inner.use(tracing("m", [])),
        lambda: inner.child_start(connect),
        lambda: inner.child_stop(connect),
        lambda: inner.include(ServeMux[FakeTask]()),
    ]
    for add in late:
        with pytest.raises(RuntimeError, match="is included in another one"):
            add()
    assert (inner.patterns(), inner.child_hooks()) == ({}, ((connect,), (connect,)))


# Prefixes


def test_the_log_says_once_that_a_pattern_takes_another_name(caplog: pytest.LogCaptureFixture) -> None:
    mux = ServeMux[FakeTask]()
    for pattern in ("image:resize", "image:crop", "mail:"):
        mux.handle(pattern, plain)
    with caplog.at_level("DEBUG", "fastq.mux"):
        for name in ("image:resize", "image:resize", "image:resize_v2", "image:resize_v3", "mail:send", "zzz"):
            mux.dispatch(name)
    assert [record.getMessage() for record in caplog.records] == [
        "pattern 'image:resize' also takes type 'image:resize_v2', which begins with it; "
        "a handler of its own would come first"
    ]


def test_types_without_end_are_not_all_remembered() -> None:
    mux = ServeMux[FakeTask]()
    mux.handle("user:", plain)
    assert {mux.dispatch(f"user:{number}") for number in range(2 * MAX_ROUTES)} == {plain}
    assert len(mux._routes) == MAX_ROUTES


def test_a_handler_without_a_pattern_or_not_of_one_task_is_refused_at_once() -> None:
    mux: Any = ServeMux[FakeTask]()
    with pytest.raises(TypeError, match=r"write @mux.handler\('type'\) above <function plain"):
        mux.handler(plain)  # what a decorator without its call does
    for handler in (lambda: None, lambda task, more: None, lambda *, task: None):
        with pytest.raises(TypeError, match="the handler of pattern 'a' must take the task as its one argument"):
            mux.handle("a", handler)
    for number, takes_one in enumerate((lambda *tasks: None, lambda task, more=1: None, print)):
        mux.handle(f"good {number}", takes_one)
    assert len(mux.patterns()) == 3


def test_patterns_are_told_in_the_order_of_registration() -> None:
    mux = ServeMux[FakeTask]()
    for pattern in ("b", "a:b", "a"):
        mux.handle(pattern, plain)
    assert list(mux.patterns()) == ["b", "a:b", "a"]


# Threads


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Let threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("many_switches")
def test_handlers_may_be_added_while_other_threads_dispatch() -> None:
    mux, done = ServeMux[FakeTask](), Event()

    def dispatch(who: int) -> None:
        while not done.is_set():
            newest = len(mux.patterns())
            for number in range(max(0, newest - 5), newest + 5):
                mux.match(f"p{number}:{who}")
                mux.dispatch(f"p{number}:{who}")

    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(dispatch, who) for who in range(3)]
        for number in range(2_000):
            mux.handle(f"p{number}:", plain)
            if number % 100 == 0:
                mux.use(tracing("m", []))
        done.set()
    assert [future.result() for future in running] == [None, None, None]
    assert [mux.match(f"p{number}:x") for number in range(2_000)] == [(plain, f"p{number}:") for number in range(2_000)]


@pytest.mark.usefixtures("many_switches")
def test_threads_that_dispatch_at_once_build_the_middleware_once() -> None:
    def race(threads: ThreadPoolExecutor) -> list[str]:
        builds: list[str] = []

        def slow(next: Handler[FakeTask]) -> Handler[FakeTask]:
            builds.append("build")
            sum(range(10_000))  # long enough to be interrupted
            return functools.partial(next)

        mux, start = ServeMux[FakeTask](), Barrier(4)
        mux.handle("a", plain)
        mux.use(slow)

        def dispatch() -> Handler[FakeTask]:
            start.wait()
            return mux.dispatch("a")

        assert len({id(future.result()) for future in [threads.submit(dispatch) for _ in range(4)]}) == 1
        return builds

    with ThreadPoolExecutor(4) as threads:
        assert [race(threads) for _ in range(50)] == [["build"]] * 50


# Children ---------------------------------------------------------------------------------------------------------


def test_hooks_of_a_child_begin_in_order_and_end_in_reverse() -> None:
    mux = ServeMux()

    @mux.child_start
    def first() -> None: ...

    @mux.child_start
    async def second() -> None: ...

    mux.child_stop(first)
    mux.child_stop(second)
    assert mux.child_hooks() == ((first, second), (second, first))


@pytest.mark.parametrize("register", [ServeMux().child_start, ServeMux().child_stop])
@pytest.mark.parametrize("hook", [None, "connect", lambda child: None])
def test_what_cannot_be_called_without_arguments_is_no_hook_of_a_child(register: Any, hook: Any) -> None:
    with pytest.raises(TypeError, match=r"@child_(start|stop)"):
        register(hook)


def test_handlers_run_alone_that_are_not_for_threads_and_muxes_with_such_a_handler() -> None:
    outer, inner, nested = (ServeMux[FakeTask]() for _ in range(3))
    outer.handle("beside", plain)
    inner.handler("alone", threads=False)(plain)
    nested.handle("x", plain, threads=False)
    outer.handle("nested", nested)
    outer.include(inner)
    assert outer.alone() == {"alone", "nested"}
    with pytest.raises(TypeError, match="pattern 'four': threads must be True or False, not 4"):
        outer.handle("four", plain, threads=4)  # type: ignore[arg-type]  # that is what is tested
