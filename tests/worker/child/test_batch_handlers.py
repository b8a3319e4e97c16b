"""Batch handlers in the runner of a child: one call, and an answer to each of its tasks."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

import orjson
import pytest

from fastq import App, Batch, ServeMux, SkipRetry, TaskCanceled, TaskTimeout
from fastq.batch import Batching
from fastq.errors import RevokeTask, TaskEndedError
from fastq.hooks import Hooks
from fastq.pool.shared.event_kind import EventKind
from fastq.pool.shared.runner import Answer
from fastq.running import RunningTask
from fastq.worker.child.batch_call import BatchCall, decode_all
from fastq.worker.child.handler_runner import HandlerRunner
from fastq.worker.shared.description import AppDescription
from fastq.worker.shared.report import FailureReport
from tests.worker.harness import FakeContext, encoded


def message(payload: object, *, type: str = "embed", retention: int = 60) -> bytes:
    return encoded(type=type, payload=orjson.dumps(payload), id=f"id-{payload}", retention=retention)


def calls(mux: ServeMux, *payloads: object, is_async: bool = False, retention: int = 60) -> list[Answer] | None:
    runner = HandlerRunner(mux, Hooks())
    data = [message(one, retention=retention) for one in payloads]
    contexts = [FakeContext() for _ in payloads]
    if is_async:

        async def run() -> list[Answer] | None:
            return await runner.run_batch_async(data, contexts)

        return asyncio.run(run())
    return copy_context().run(runner.run_batch, data, contexts)


def mux_of(function: Callable[[Batch], object], *, is_async: bool = False) -> ServeMux:
    mux = ServeMux()
    if is_async:

        async def handle(batch: Batch) -> object:
            await asyncio.sleep(0)
            return function(batch)

        mux.handle("embed", handle, batch=64)
    else:
        mux.handle("embed", function, batch=64)
    return mux


def told(answers: list[Answer] | None) -> list[tuple[EventKind, str]]:
    assert answers is not None
    found = []
    for answer in answers:
        kind, data = answer or (EventKind.DONE, b"")
        found.append((kind, data.decode() if kind <= EventKind.RESULT else FailureReport.decode(data).error_class))
    return found


both = pytest.mark.parametrize("is_async", [False, True])


@both
def test_results_are_kept_by_position(is_async: bool) -> None:
    mux = mux_of(lambda batch: [2 * task.json() for task in batch], is_async=is_async)
    assert told(calls(mux, 1, 2, 3, is_async=is_async)) == [
        (EventKind.RESULT, "2"), (EventKind.RESULT, "4"), (EventKind.RESULT, "6"),
    ]  # fmt: skip


@both
def test_none_means_that_all_are_done(is_async: bool) -> None:
    assert calls(mux_of(lambda batch: None, is_async=is_async), 1, 2, is_async=is_async) is None
    assert calls(mux_of(lambda batch: [None] * 2), 1, 2) is None
    assert calls(mux_of(lambda batch: [1, 2]), 1, 2, retention=0) is None


@both
def test_an_exception_in_the_list_fails_its_item(is_async: bool) -> None:
    mux = mux_of(lambda batch: [1, ValueError("no"), SkipRetry("never")], is_async=is_async)
    assert told(calls(mux, 1, 2, 3, is_async=is_async)) == [
        (EventKind.RESULT, "1"), (EventKind.FAILED, "ValueError"), (EventKind.SKIP_RETRY, "SkipRetry"),
    ]  # fmt: skip


@both
def test_what_is_raised_fails_all_that_were_not_told_otherwise(is_async: bool) -> None:
    def handle(batch: Batch) -> None:
        batch.fail(0, RevokeTask("gone"))
        batch.retry(2, after=5)
        raise OSError("the API is down")

    answers = calls(mux_of(handle, is_async=is_async), 1, 2, 3, is_async=is_async)
    assert told(answers) == [
        (EventKind.REVOKED, "RevokeTask"), (EventKind.FAILED, "OSError"), (EventKind.FAILED, "Retry"),
    ]  # fmt: skip
    assert answers is not None
    assert answers[2] is not None
    assert FailureReport.decode(answers[2][1]).retry_in_s == 5


def test_what_is_told_of_an_item_goes_before_its_result() -> None:
    def handle(batch: Batch) -> list[int]:
        batch.fail(-1, ValueError("no"))
        return [1, 2]

    assert told(calls(mux_of(handle), 1, 2)) == [(EventKind.RESULT, "1"), (EventKind.FAILED, "ValueError")]


@pytest.mark.parametrize(
    ("result", "error"),
    [([1], "ValueError"), ("ab", "TypeError"), ({1: 2, 3: 4}, "TypeError"), (range(2), "TypeError")],
)
def test_what_is_no_list_as_long_as_the_batch_fails_all(result: object, error: str) -> None:
    assert told(calls(mux_of(lambda batch: result), 1, 2)) == [(EventKind.FAILED, error)] * 2


def test_a_message_that_cannot_be_read_costs_no_other() -> None:
    runner = HandlerRunner(mux_of(lambda batch: [len(batch)] * len(batch)), Hooks())
    answers = runner.run_batch([message(1), b"\xff", message(2)], [FakeContext() for _ in range(3)])
    assert answers is not None
    assert [answer and answer[0] for answer in answers] == [EventKind.RESULT, EventKind.INVALID, EventKind.RESULT]


@both
def test_a_task_by_itself_is_a_batch_of_one(is_async: bool) -> None:
    runner = HandlerRunner(mux_of(lambda batch: [len(batch)], is_async=is_async), Hooks())

    async def run() -> Answer:
        return await runner.run_async(message(1), FakeContext())

    assert (asyncio.run(run()) if is_async else runner.run(message(1), FakeContext())) == (EventKind.RESULT, b"1")


def test_a_handler_that_a_reload_has_made_a_single_one_runs_each() -> None:
    mux = ServeMux()
    mux.handle("embed", lambda task: task.json())
    assert told(calls(mux, 1, 2)) == [(EventKind.RESULT, "1"), (EventKind.RESULT, "2")]


def test_around_enters_each_task_and_use_gets_the_batch() -> None:
    seen: list[Any] = []
    mux = mux_of(lambda batch: seen.append(len(batch)))

    @mux.around
    @contextmanager
    def noted(task: RunningTask) -> Iterator[None]:
        seen.append(task.id)
        yield
        seen.append(f"end of {task.id}")

    def noting(handler: Callable[[Any], object]) -> Callable[[Any], object]:
        def handle(batch: Any) -> object:
            seen.append(batch.ids)
            return handler(batch)

        return handle

    mux.use(noting)
    calls(mux, 1, 2)
    assert seen == ["id-1", "id-2", ["id-1", "id-2"], 2, "end of id-2", "end of id-1"]


def test_the_server_is_told_of_batch_handlers() -> None:
    mux = ServeMux()
    mux.handle("one", lambda task: None)
    mux.handle("many", lambda batch: None, batch=64, max_wait=0.05)
    app = AppDescription.decode(AppDescription.of(mux).encode())
    assert app.batches == {"many": (64, 0.05, 1_000_000)}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"batch": 0}, "batch must be from 1 to 1000, not 0"),
        ({"batch": 1001}, "batch must be from 1 to 1000, not 1001"),
        ({"batch": True}, "batch must be a whole number, not True"),
        ({"batch": "8"}, "batch must be a whole number, not '8'"),
        ({"batch": 8, "max_wait": -1}, "max_wait must be from 0 to 3600 s, not -1"),
        ({"batch": 8, "max_bytes": 0}, "max_bytes must be from 1 to 64000000, not 0"),
        ({"max_wait": 1}, "say batch="),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        ServeMux().handle("t", lambda batch: None, **settings)


def test_a_batch_refuses_what_it_does_not_have() -> None:
    batch = Batch([1, 2])
    with pytest.raises(IndexError, match="the batch has 2 items, none at 2"):
        batch.fail(2, ValueError())
    with pytest.raises(TypeError, match="an item fails with an exception, not with 'no'"):
        batch.fail(0, "no")  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="contexts"):
        batch.id  # type: ignore[attr-defined]  # noqa: B018


@both
def test_what_is_said_of_an_item_after_the_end_is_refused(is_async: bool) -> None:
    kept: list[Batch] = []
    calls(mux_of(kept.append, is_async=is_async), 1, 2, is_async=is_async)
    with pytest.raises(TaskEndedError, match="has ended"):
        kept[0].fail(0, ValueError())


@pytest.mark.parametrize("error", [TaskTimeout, TaskCanceled])
def test_what_ends_the_call_while_an_item_is_unpacked_costs_all(error: type[BaseException]) -> None:
    def argument(payload: bytes) -> Any:
        raise error

    batching = Batching(64, 0.0, 1000, argument)
    messages, places, _ = decode_all([message(1), message(2)])
    with pytest.raises(error):
        BatchCall(batching, messages, [FakeContext()] * 2, _never, _never, places=places)


def test_where_the_env_is_missing_each_task_fails_by_itself() -> None:
    app = App()

    @app.lifespan
    def env() -> Iterator[str]:
        yield "env"

    @app.task("embed", batch=64)
    def embed(items: Batch[int]) -> None:
        raise AssertionError("there is no env")

    data = [encoded(type="embed", payload=embed.task(1).payload), encoded(type="embed", payload=b"[]")]
    answers = HandlerRunner(app, Hooks()).run_batch(data, [FakeContext()] * 2)  # its child has not started
    assert answers is not None
    assert [answer and answer[0] for answer in answers] == [EventKind.FAILED, EventKind.SKIP_RETRY]
    assert answers[0] is not None
    assert b"lifespan" in answers[0][1]


def test_contexts_of_typed_items_are_made_once_they_are_asked_for() -> None:
    app, kept = App(), list[Batch[int]]()

    @app.lifespan
    def env() -> Iterator[str]:
        yield "env"

    @app.task("embed", batch=64)
    def embed(items: Batch[int]) -> list[int]:
        kept.append(items)
        return list(items)

    data = [encoded(type="embed", payload=embed.task(one).payload, id=f"id-{one}", retention=60) for one in (1, 2)]
    data[1:1] = [b"bad", encoded(type="embed", payload=b"[]", id="id-3")]
    contexts, runner = [FakeContext() for _ in data], HandlerRunner(app, Hooks())
    for start in runner.child_start:
        start()
    assert [kind for kind, _ in (each for each in runner.run_batch(data, contexts) or () if each)] == [
        EventKind.RESULT,
        EventKind.INVALID,
        EventKind.SKIP_RETRY,
        EventKind.RESULT,
    ]
    (batch,) = kept
    assert "contexts" not in vars(batch)
    batch.append(7)
    assert batch.ids == ["id-1", "id-2"]
    assert [each._context for each in batch.contexts] == [contexts[0], contexts[3]]
    assert [getattr(each, "env", None) for each in batch.contexts] == ["env", "env"]
    assert batch.contexts is batch.contexts


def _never(*args: object) -> Answer:
    raise AssertionError(args)
