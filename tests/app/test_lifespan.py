"""The context of a task, and the lifespan that makes its ``env``."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from fastq import App, Context, current_task
from fastq.testing import RunOutcome, run_task


def test_a_context_is_the_running_task_with_an_env(app: App) -> None:
    @app.lifespan
    def env() -> Iterator[str]:
        yield "hello"

    @app.task("greet")
    def greet(ctx: Context[str], name: str) -> str:
        assert current_task() is ctx
        ctx.write_result(b"meanwhile")
        return f"{ctx.env} {name} {ctx.id} {ctx.queue} {ctx.retried} {ctx.type}"

    app.check()
    (start,), (stop,) = app.child_hooks()
    start()
    run = run_task(app, greet.task("Ada"), task_id="x", queue="q", retried=2, retention=60)
    assert (run.json(), run.written) == ("hello Ada x q 2 greet", (b"meanwhile",))
    stop()


def test_a_function_with_a_context_is_called_with_one(app: App) -> None:
    @app.task("t")
    async def job(ctx: Context, id: int) -> tuple[Any, int]:
        return ctx.env, id

    seen: list[Any] = []

    @app.task("outer")
    async def outer(ctx: Context, id: int) -> None:
        seen.append(await job(ctx, id))

    assert run_task(app, outer.task(7)).outcome is RunOutcome.DONE
    assert seen == [(None, 7)]


def test_a_worker_without_a_lifespan_for_an_env_does_not_start(app: App) -> None:
    inner = App()

    @inner.task("t")
    def job(ctx: Context[str]) -> None: ...

    app.include(inner)
    with pytest.raises(TypeError, match=r"task 't' takes a Context with env <class 'str'>, but no @app\.lifespan"):
        app.check()


def test_the_env_is_that_of_the_own_app_else_of_the_one_that_includes_it(app: App) -> None:
    names = ("own", "outer")
    apps = {name: App() for name in names}

    def env() -> Iterator[str]:
        yield "own"

    def outer_env() -> Iterator[str]:
        yield "outer"

    apps["own"].lifespan(env)
    app.lifespan(outer_env)
    for name, each in apps.items():

        @each.task(name)
        def job(ctx: Context[str]) -> str:
            return ctx.env

        app.include(each)
    app.check()
    for start in app.child_hooks()[0]:
        start()
    assert {name: run_task(app, name, {}, retention=60).json() for name in names} == {"own": "own", "outer": "outer"}
    for stop in app.child_hooks()[1]:
        stop()


def test_a_lifespan_that_has_not_begun_is_an_error_that_says_so(app: App) -> None:
    @app.lifespan
    async def env() -> AsyncIterator[str]:
        yield "hello"

    @app.task("t")
    def job(ctx: Context[str]) -> None: ...

    assert "lifespan has not begun" in run_task(app, job.task()).error_text
    (start,), (stop,) = app.child_hooks()
    assert (start.__qualname__, stop.__qualname__) == (env.__qualname__, env.__qualname__), "as the log names them"


def test_a_lifespan_is_one_generator_function(app: App) -> None:
    with pytest.raises(TypeError, match="for a generator function that yields once"):
        app.lifespan(lambda: iter("a"))

    @app.lifespan
    def env() -> Iterator[None]:
        yield

    with pytest.raises(ValueError, match="has a lifespan already"):
        app.lifespan(env)


def test_an_async_lifespan_begins_and_ends_in_one_loop(app: App) -> None:
    seen: list[str] = []

    @app.lifespan
    async def env() -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        yield "hello"
        seen.append(f"ended {loop is asyncio.get_running_loop()}")

    async def life() -> object:
        (start,), (stop,) = app.child_hooks()
        await start()  # type: ignore[misc]
        env = app._env()
        await stop()  # type: ignore[misc]
        return env

    for _ in range(2):  # once more in the same process, as tests do
        assert asyncio.run(life()) == "hello"
    assert seen == ["ended True", "ended True"]
