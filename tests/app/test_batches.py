"""Batch handlers of an app: one argument a task, and all of them as a list."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from fastq import App, Batch, Context, SkipRetry
from fastq.testing import RunOutcome, run_task


@dataclass
class Text:
    words: str


@pytest.fixture
def app() -> App:
    return App()


def test_a_task_has_one_argument_and_the_function_gets_those_of_many(app: App) -> None:
    @app.task("embed", batch=64)
    def embed(texts: Batch[str]) -> list[int]:
        return [len(text) for text in texts]

    assert embed.task("abc").payload == b'{"texts":"abc"}'
    run = run_task(app, embed.task("abc"))
    assert (run.outcome, run.json()) == (RunOutcome.DONE, 3)
    assert embed(["a", "bc"]) == [1, 2]
    with pytest.raises(TypeError, match="Expected str, got int"):
        embed.task(7)  # type: ignore[arg-type]


def test_items_are_decoded_and_results_encoded(app: App) -> None:
    @app.task("embed", batch=64)
    async def embed(texts: Batch[Text]) -> list[Text | Exception]:
        await asyncio.sleep(0)
        return [Text(text.words.upper()) if text.words else ValueError("empty") for text in texts]

    assert run_task(app, embed.task(Text("abc"))).json() == {"words": "ABC"}
    assert run_task(app, embed.task(Text(""))).outcome is RunOutcome.RETRY
    assert embed.task(Text("")).decode_result(b'{"words":"A"}') == Text("A")


def test_a_payload_that_does_not_fit_fails_alone_before_the_call(app: App) -> None:
    @app.task("embed", batch=64)
    def embed(texts: Batch[str]) -> list[int]:
        raise AssertionError

    run = run_task(app, "embed", {"texts": 7})
    assert (run.outcome, type(run.error).__name__) == (RunOutcome.ARCHIVE, "PayloadError")


def test_the_batch_has_contexts_and_env(app: App) -> None:
    @app.lifespan
    def env() -> Iterator[str]:
        yield "model"

    @app.task("embed", batch=64)
    def embed(texts: Batch[str, str]) -> list[str]:
        assert isinstance(texts.contexts[0], Context)
        return [f"{texts.env} {context.retried}" for context in texts.contexts]

    app.child_hooks()[0][0]()
    assert run_task(app, embed.task("a"), retried=2).json() == "model 2"


def test_a_batch_with_an_env_needs_a_lifespan(app: App) -> None:
    @app.task("embed", batch=64)
    def embed(texts: Batch[str, str]) -> None:
        return None

    with pytest.raises(TypeError, match=r"no @app\.lifespan makes one"):
        app.check()


def test_rules_for_failures_hold_for_each_item(app: App) -> None:
    @app.task("embed", batch=64, dont_retry_on=KeyError, backoff=7)
    def embed(texts: Batch[str]) -> list[Any]:
        return [KeyError(text) if text == "key" else SkipRetry() if text == "skip" else OSError() for text in texts]

    assert run_task(app, embed.task("key")).outcome is RunOutcome.ARCHIVE
    assert run_task(app, embed.task("skip")).outcome is RunOutcome.ARCHIVE
    assert run_task(app, embed.task("other")).retry_in == 7


def test_functions_that_take_no_batch_are_refused(app: App) -> None:
    with pytest.raises(TypeError, match="takes the batch alone, not"):

        @app.task("two", batch=64)  # type: ignore[arg-type]
        def two(texts: Batch[str], width: int) -> None: ...

    with pytest.raises(TypeError, match="'text' is a Batch or list, not"):

        @app.task("single", batch=64)  # type: ignore[arg-type]
        def single(text: str) -> None: ...

    settings: Any = {"max_wait": 5}
    with pytest.raises(TypeError, match=r"task .nowhere. has an annotation that is not known .*: name .Nowhere."):

        @app.task("nowhere", batch=2)
        def nowhere(items: "Batch[Nowhere]") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="say batch="):
        app.task("waits", **settings)(lambda: None)


def test_a_function_of_a_list_gets_the_batch_too(app: App) -> None:
    @app.task("embed", batch=64)
    def embed(texts: list[str]) -> list[int]:
        assert isinstance(texts, Batch)
        return [len(text) for text in texts]

    assert embed.task("abc").payload == b'{"texts":"abc"}'
    assert run_task(app, embed.task("abc")).json() == 3
