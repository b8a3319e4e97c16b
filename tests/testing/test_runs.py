"""run_task: a handler runs here, and what comes of it is what a server would make of it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fastq import RevokeTask, ServeMux, SkipRetry, Task, TaskTimeout, current_task
from fastq.errors import HandlerNotFoundError
from fastq.hooks import Hooks
from fastq.running import RunningTask
from fastq.testing import RunOutcome, TaskRun, run_task

mux: ServeMux = ServeMux()
BOOM = ValueError("boom")


@mux.handler("echo")
def echo(task: RunningTask) -> Any:
    return task.json()


@mux.handler("bytes")
def reverse(task: RunningTask) -> bytes:
    return task.payload[::-1]


@mux.handler("nothing")
def nothing(task: RunningTask) -> None:
    return None


@mux.handler("write")
def write(task: RunningTask) -> None:
    task.write_result(b"first")
    task.write_result({"last": True})


@mux.handler("facts")
def facts(task: RunningTask) -> dict[str, Any]:
    assert current_task() is task
    assert task.deadline is not None
    return {
        "id": task.id,
        "queue": task.queue,
        "headers": dict(task.headers),
        "retried": task.retried,
        "max_retry": task.max_retry,
        "seconds": round((task.deadline - task.started_at).total_seconds()),
    }


@mux.handler("async")
async def coroutine(task: RunningTask) -> Any:
    await asyncio.sleep(0)
    assert current_task() is task
    return task.json()


@mux.handler("fail")
def fail(task: RunningTask) -> None:
    raise BOOM


def run_with(error: BaseException, **options: Any) -> TaskRun:
    made: ServeMux = ServeMux()

    @made.handler("t")
    def failing(task: RunningTask) -> None:
        raise error

    return run_task(made, "t", **options)


def test_what_the_handler_returns_is_the_result() -> None:
    run = run_task(mux, "echo", {"a": [1]}, queue="low", task_id="id-1")
    assert run == TaskRun("id-1", "low", "echo", b'{"a":[1]}', 0, RunOutcome.DONE, b'{"a":[1]}')
    assert run.json() == {"a": [1]}
    assert run_task(mux, Task("bytes", b"ab")).result == b"ba"
    empty = run_task(mux, "nothing")
    assert (empty.result, empty.outcome, len(empty.id)) == (None, RunOutcome.DONE, 36)
    with pytest.raises(ValueError, match=r"JSON|empty|unexpected"):
        empty.json()


def test_what_the_handler_writes_counts_until_it_returns_something() -> None:
    run = run_task(mux, "write", retention=60)
    assert (run.result, run.written) == (b'{"last":true}', (b"first", b'{"last":true}'))


def test_the_handler_sees_what_it_would_see_in_a_server() -> None:
    task = Task("facts", headers={"k": "v"}, queue="low", max_retry=5)
    run = run_task(mux, task, task_id="id-1", timeout=90, retried=2)
    assert run.json() == {
        "id": "id-1",
        "queue": "low",
        "headers": {"k": "v"},
        "retried": 2,
        "max_retry": 5,
        "seconds": 90,
    }
    soon = datetime.now(UTC) + timedelta(seconds=2000)
    assert 1400 <= run_task(mux, "facts", deadline=soon, timeout=9000).json()["seconds"] <= 2000
    assert run_task(mux, "facts").json()["seconds"] == 1800


@pytest.mark.parametrize(
    ("error", "options", "outcome", "text"),
    [
        (BOOM, {}, "retry", "ValueError: boom (tests/testing/test_runs.py:"),
        (BOOM, {"max_retry": 3, "retried": 2}, "retry", "ValueError: boom"),
        (BOOM, {"max_retry": 3, "retried": 3}, "archive", "ValueError: boom"),
        (SkipRetry("no use"), {}, "archive", "SkipRetry: no use"),
        (RevokeTask("off"), {}, "revoke", "RevokeTask: off"),
        (TaskTimeout("late"), {}, "retry", "TaskTimeout: late"),
        (SystemExit(3), {}, "retry", "SystemExit: 3"),
    ],
)
def test_what_the_handler_raises_decides(error: BaseException, options: Any, outcome: str, text: str) -> None:
    run = run_with(error, **options)
    assert (run.outcome, run.error, run.result) == (outcome, error, None)
    assert run.error_text.startswith(text)
    assert run.is_failure is (outcome != "revoke")
    if outcome == "retry":
        assert run.retry_in is not None
        n = options.get("retried", 0)
        assert 0 <= run.retry_in - n**4 - 15 <= 29 * (n + 1)
    else:
        assert run.retry_in is None


def test_a_type_without_a_handler_fails_inside_the_middleware() -> None:
    run = run_task(mux, "unknown")
    assert (run.outcome, type(run.error)) == (RunOutcome.RETRY, HandlerNotFoundError)


def test_hooks_decide_and_are_named_in_order() -> None:
    seen: list[object] = []
    hooks = Hooks(
        error_handler=lambda task, error: seen.append((task.id, error)),
        is_failure=lambda error: False,
        retry_delay=lambda retried, error, task: timedelta(minutes=2),
    )
    run = run_task(mux, "fail", task_id="id-1", hooks=hooks)
    assert (run.is_failure, run.retry_in, run.outcome) == (False, 120.0, RunOutcome.RETRY)
    assert run.hooks == ("error_handler", "is_failure", "retry_delay")
    assert seen == [("id-1", BOOM)]
    last = run_task(mux, "fail", max_retry=0, hooks=hooks)
    assert (last.hooks, last.outcome, last.is_failure) == (("error_handler",), RunOutcome.ARCHIVE, True)
    assert run_task(mux, "echo", 1, hooks=hooks).hooks == ()


def test_async_handlers_run_with_and_without_a_loop_around() -> None:
    async def within() -> TaskRun:
        return run_task(mux, "async", [1])

    assert run_task(mux, "async", [1]).json() == asyncio.run(within()).json() == [1]


def test_middleware_is_around_the_handler() -> None:
    made: ServeMux = ServeMux()
    made.use(lambda handler: lambda task: ["around", handler(task)])
    made.handle("t", lambda task: "it")
    assert run_task(made, "t").json() == ["around", "it"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), pytest.fail.Exception("said so")])
def test_ctrl_c_and_what_a_test_says_within_a_handler_go_on_to_the_test(error: BaseException) -> None:
    with pytest.raises(type(error)):
        run_with(error)


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "says"),
    [
        ((mux, "echo"), {"quue": "x"}, TypeError, "unknown option 'quue'"),
        ((mux, ""), {}, ValueError, "task type"),
        ((mux, Task("echo"), {}), {}, TypeError, "a Task already has a payload"),
        ((echo, "echo"), {}, TypeError, "mux must be a ServeMux, not function"),
    ],
)
def test_bad_input_is_refused_as_by_a_client(arguments: Any, options: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        run_task(*arguments, **options)
