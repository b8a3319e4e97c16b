"""A running task: what its handler sees of it, and the results that it writes."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from sys import getrefcount
from typing import Any, cast

import pytest

from fastq import TaskEndedError, current_task
from fastq import running as running_module
from fastq.app.context import CONTEXTS, Context
from fastq.running import CURRENT, MAX_RESULT_BYTES, RUNNING_TASKS, RunningTask, encode_result
from fastq.task import Task
from fastq.wire.codec import TaskMaker
from fastq.wire.messages import TaskMessage
from fastq.wire.progress import read_progress
from tests.worker.harness import FakeContext, running


def test_a_running_task_is_the_producers_task() -> None:
    task = running(type="image:resize", payload=b'{"a": [1]}', headers={"k": "v"})
    assert isinstance(task, Task)
    assert (task.type, task.payload, dict(task.headers)) == ("image:resize", b'{"a": [1]}', {"k": "v"})
    assert task.json() == {"a": [1]}


def test_a_running_task_knows_its_attempt() -> None:
    task = running(id="x", queue="critical", retry=7, retried=3)
    assert (task.id, task.queue, task.max_retry, task.retried) == ("x", "critical", 7, 3)


@pytest.mark.parametrize(("kind", "maker"), [(RunningTask, RUNNING_TASKS), (Context, CONTEXTS)])
def test_a_task_that_is_made_without_its_class_is_no_other(kind: Callable[..., Any], maker: "TaskMaker[Any]") -> None:
    message, context = TaskMessage("t", b"1", "id", headers={"k": "v"}), FakeContext()
    called, made = kind(message, context), maker.make(message, context)
    assert type(made) is type(called)
    for name in ("type", "payload", "headers", "options", "_has_payload", "_message", "_context", "_rule", "_limit"):
        assert getattr(made, name) is getattr(called, name)
    assert not any(hasattr(made, name) for name in ("_loop", "_told_s", "env"))
    assert made.replace(b"2", queue="low").payload == b"2"
    assert getrefcount(made) == getrefcount(called)
    (before, its) = (getrefcount(message), getrefcount(context))
    many = maker.make_all([message, message], [context, context])
    assert [one._message for one in many] == [message, message]
    del many
    assert (getrefcount(message), getrefcount(context)) == (before, its)


def test_a_task_is_made_of_a_message_by_a_class_with_its_slots() -> None:
    with pytest.raises(TypeError, match="message"):
        RUNNING_TASKS.make(cast(Any, b""), FakeContext())
    with pytest.raises(TypeError, match="TaskMessage"):
        RUNNING_TASKS.make_all([cast(Any, b"")], [FakeContext()])
    with pytest.raises(ValueError, match="0 contexts for 1 messages"):
        RUNNING_TASKS.make_all([TaskMessage("t")], [])
    with pytest.raises(AttributeError, match="type"):
        TaskMaker(cast(Any, object), {})
    with pytest.raises(TypeError, match="is no slot of"):
        TaskMaker(cast(Any, _WithAProperty), {})
    with pytest.raises(TypeError, match="is no <class"):
        RUNNING_TASKS.fill(cast(Any, Task("t")), TaskMessage("t"), FakeContext())


class _WithAProperty(RunningTask):
    __slots__ = ()

    @property
    def headers(self) -> Any:  # type: ignore[override]
        raise NotImplementedError


def test_a_result_that_comes_too_late_names_its_task() -> None:
    class EndedContext(FakeContext):
        def write_result(self, data: bytes) -> None:
            raise TaskEndedError("it has ended")

    with pytest.raises(TaskEndedError, match=r"^no result can be written for task x of 'low': it has ended$"):
        running(EndedContext(), id="x", queue="low").write_result(b"late")


def test_progress_is_told_at_most_every_50_ms_the_last_at_once_and_the_rest_with_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr("fastq.running.time.monotonic", lambda: now_s[0])
    context = FakeContext()
    task = running(context)
    for current, at_s in ((1, 0.0), (2, 0.04), (3, 0.06), (10, 0.07)):
        now_s[0] = 1000.0 + at_s
        task.progress(current, 10, "pages")
    told = [read_progress(data) for data in (*context.told, *context.told_late)]
    assert [each and (each.current, each.total, each.note) for each in told] == [
        (1, 10, "pages"),
        (3, 10, "pages"),
        (10, 10, "pages"),
        (2, 10, "pages"),
    ]


@pytest.mark.parametrize(
    ("args", "kind", "message"),
    [
        (("7",), TypeError, "current must be a number, not '7'"),
        ((True,), TypeError, "current must be a number, not True"),
        ((-1,), ValueError, r"current must be between 0 and 2\*\*53, not -1"),
        ((1, float("nan")), ValueError, r"total must be between 0 and 2\*\*53, not nan"),
        ((1, 2, 3), TypeError, "note must be a str, not 3"),
        ((1, 2, "x" * 201), ValueError, "note must have at most 200 characters, not 201: 'xxxxxxxxxxxxxxxxxxxx'…"),
        ((1, 2, "\ud800"), ValueError, r"note must be valid Unicode text: '\\ud800'"),
    ],
)
def test_what_is_no_progress_is_refused(args: Any, kind: type[Exception], message: str) -> None:
    context = FakeContext()
    with pytest.raises(kind, match=f"^{message}$"):
        running(context).progress(*args)
    assert context.told == []


def test_progress_that_comes_too_late_names_its_task() -> None:
    class EndedContext(FakeContext):
        def write_progress(self, data: bytes, is_soon: bool) -> None:
            raise TaskEndedError("it has ended")

    with pytest.raises(TaskEndedError, match=r"^task x of 'low' makes no progress: it has ended$"):
        running(EndedContext(), id="x", queue="low").progress(1)


def test_times_are_told_by_the_wall_clock() -> None:
    now_ns, now = time.monotonic_ns(), datetime.now(UTC)
    context = FakeContext(started_ns=now_ns - 5000 * 10**9, deadline_ns=now_ns + 60_000 * 10**9)
    task = running(context)
    assert task.deadline is not None
    assert abs(task.started_at - (now - timedelta(seconds=5000))) < timedelta(seconds=60)
    assert abs(task.deadline - (now + timedelta(seconds=60_000))) < timedelta(seconds=60)
    assert task.started_at.tzinfo is task.deadline.tzinfo is UTC
    assert running(FakeContext(started_ns=now_ns)).deadline is None


@pytest.mark.parametrize(
    ("data", "bytes_"),
    [
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        (b"", b""),
        ("text", b'"text"'),
        ({"a": 1}, b'{"a":1}'),
        ([1, 2.5, None, True], b"[1,2.5,null,true]"),
        (0, b"0"),
        (False, b"false"),
        (datetime(2026, 1, 2, tzinfo=UTC), b'"2026-01-02T00:00:00+00:00"'),
    ],
)
def test_a_result_is_json_unless_it_is_bytes(data: Any, bytes_: bytes) -> None:
    assert encode_result(data) == bytes_
    context = FakeContext()
    running(context).write_result(data)
    assert context.written == [bytes_]


@pytest.mark.parametrize("data", [object(), {1, 2}, {"a": object()}, 2**70, "\ud800", {"a": float("inf")}])
def test_what_is_neither_bytes_nor_json_is_refused(data: Any) -> None:
    context = FakeContext()
    with pytest.raises((TypeError, ValueError), match=r"^result .* \$"):
        running(context).write_result(data)
    assert context.written == []


def test_a_result_above_64_mb_is_refused_in_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_RESULT_BYTES == 64 * 1024 * 1024
    monkeypatch.setattr(running_module, "MAX_RESULT_BYTES", 10)
    context = FakeContext()
    running(context).write_result(b"x" * 10)
    with pytest.raises(ValueError, match="a result of 11 bytes is over the limit of 10"):
        running(context).write_result(b"x" * 11)
    with pytest.raises(ValueError, match="a result of 12 bytes"):
        running(context).write_result("x" * 10)
    assert context.written == [b"x" * 10]


def test_outside_of_handlers_no_task_is_current() -> None:
    with pytest.raises(LookupError, match="no task is running here"):
        current_task()


def test_each_coroutine_has_its_own_current_task() -> None:
    async def handler(name: str, gate: asyncio.Event) -> str:
        CURRENT.set(running(id=name))
        await gate.wait()
        return current_task().id

    async def main() -> list[str]:
        gate = asyncio.Event()
        tasks = [asyncio.create_task(handler(name, gate)) for name in "abc"]
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == ["a", "b", "c"]
