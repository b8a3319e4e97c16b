"""A function whose call runs nothing is refused wherever it is registered, whatever kind of callable it is."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from fastq import App, RunningTask, Scheduler, ServeMux
from fastq.worker.child.hooks import hooks_named, resolve_aggregator
from fastq.worker.shared.names import AppNameError

HERE = "tests.common.test_callables"


def generator(task: Any) -> Iterator[Any]:
    yield task


async def async_generator(task: Any) -> AsyncIterator[Any]:
    yield task


async def coroutine(*arguments: Any) -> None:
    """Do nothing."""


class Yielding:
    def __call__(self, task: Any) -> Iterator[Any]:
        yield task

    def method(self, task: Any) -> Iterator[Any]:
        yield task

    @classmethod
    def of_class(cls, task: Any) -> Iterator[Any]:
        yield task

    @staticmethod
    async def static(task: Any) -> AsyncIterator[Any]:
        yield task


IDLE: dict[str, Callable[[Any], Any]] = {
    "def": generator,
    "async def": async_generator,
    "lambda": lambda task: (yield task),
    "partial": functools.partial(generator),
    "partial of a partial": functools.partial(functools.partial(Yielding(), task=1)),
    "object": Yielding(),
    "method": Yielding().method,
    "method of a class": Yielding.of_class,
    "static": Yielding.static,
    "staticmethod": staticmethod(generator),
    "cached": functools.lru_cache(generator),
}
each_kind = pytest.mark.parametrize("function", IDLE.values(), ids=IDLE)


@each_kind
def test_a_generator_is_no_handler(function: Callable[[Any], Any]) -> None:
    mux: ServeMux = ServeMux()
    with pytest.raises(TypeError, match="the handler of pattern 'a' is a generator, which would not run: "):
        mux.handle("a", function)
    assert mux.patterns() == {}


@each_kind
def test_a_generator_is_no_task(function: Callable[[Any], Any]) -> None:
    app = App()
    with pytest.raises(TypeError, match="task 'a' is a generator, which would not run: "):
        app.task("a")(function)
    assert app.patterns() == {}


@each_kind
def test_a_middleware_makes_no_generator_of_a_handler(function: Callable[[Any], Any]) -> None:
    mux: ServeMux = ServeMux()
    mux.use(lambda handler: function)
    mux.handle("a", print)
    with pytest.raises(TypeError, match="puts around pattern 'a' is a generator"):
        mux.check()


def test_a_generator_is_entered_only_as_a_context_manager() -> None:
    with pytest.raises(TypeError, match=r"the function of mux\.around, which lacks @contextmanager, is a generator"):
        ServeMux[RunningTask]().around(generator)


def test_a_class_of_methods_that_nobody_calls_is_no_task() -> None:
    class Report:
        def run(self) -> None:
            """Do nothing."""

    with pytest.raises(TypeError, match="task 'a' is a class, of which no method would run"):
        App().task("a")(Report)


def test_hooks_of_children_run() -> None:
    mux: ServeMux = ServeMux()

    def connect() -> Iterator[None]:
        yield

    with pytest.raises(TypeError, match="the function of @child_start is a generator"):
        mux.child_start(connect)
    with pytest.raises(TypeError, match="the function of @child_stop is a generator"):
        mux.child_stop(connect)


@pytest.mark.parametrize("kind", ["generator", "coroutine"])
def test_hooks_that_nobody_awaits_are_plain_functions(kind: str) -> None:
    for hook in ("error_handler", "is_failure", "retry_delay"):
        with pytest.raises(AppNameError, match=f"{hook}='{HERE}:{kind}' is a {kind}, which would not run"):
            hooks_named(**{hook: f"{HERE}:{kind}"})
    with pytest.raises(AppNameError, match=f"group_aggregator='{HERE}:{kind}' is a {kind}, which would not run"):
        resolve_aggregator(f"{HERE}:{kind}")
    with pytest.raises(TypeError, match=f"post_enqueue is a {kind}, which would not run"):
        Scheduler(post_enqueue=globals()[kind])
