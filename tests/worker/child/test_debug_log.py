"""What the level debug says of tasks that begin and are done."""

import asyncio
import logging
from contextvars import copy_context

import pytest

from fastq import ServeMux
from fastq.hooks import Hooks
from fastq.pool.shared.event_kind import EventKind
from fastq.running import RunningTask
from fastq.worker.child.debug_log import DebugLogRunner
from fastq.worker.child.handler_runner import HandlerRunner, load
from fastq.worker.shared.requests import runner_argument
from tests.worker.harness import FakeContext, encoded

mux: ServeMux = ServeMux()


@mux.handler("ok")
def ok(task: RunningTask) -> int:
    return 1


@mux.handler("async")
async def asynchronous(task: RunningTask) -> int:
    return 1


@mux.handler("fail")
def fail(task: RunningTask) -> None:
    raise ValueError("no")


runner = DebugLogRunner(HandlerRunner(mux, Hooks()))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "fastq.worker"]


def test_a_task_that_is_done_has_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fastq")
    assert copy_context().run(runner.run, encoded(type="ok", retried=2, retention=60), FakeContext()) == (
        EventKind.RESULT,
        b"1",
    )

    async def main() -> None:
        assert await runner.run_async(encoded(type="async"), FakeContext()) is None

    asyncio.run(main())
    begun, done, *of_async = said(caplog)
    assert begun == "task id-1 (ok, queue q) begins attempt 3 of 26"
    assert done.startswith("task id-1 (ok, queue q) is done after 0.0")
    assert done.endswith(" s, attempt 3 of 26")
    assert [text.partition(")")[2][:10] for text in of_async] == [" begins at", " is done a"]
    assert caplog.records[1].__dict__["about"]["outcome"] == "done"


def test_the_end_of_a_failed_task_is_left_to_the_main_process(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fastq")
    assert copy_context().run(runner.run, encoded(type="fail"), FakeContext()) is not None
    assert copy_context().run(runner.run, encoded(type="ok"), FakeContext(interruption=EventKind.TIMEOUT)) is None
    assert ["begins" in text for text in said(caplog)] == [True, True]


def test_what_cannot_be_read_is_left_to_the_runner(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fastq")
    answer = copy_context().run(runner.run, b"\xff", FakeContext())
    assert answer is not None
    assert answer[0] is EventKind.INVALID
    assert said(caplog) == []


def test_at_other_levels_no_task_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.worker.child.handler_runner.set_up_logging", lambda *given: None)
    for level, kind in {"info": HandlerRunner, "debug": DebugLogRunner}.items():
        assert type(load(runner_argument(f"{__name__}:mux", log=(level, "text", "never")))) is kind
