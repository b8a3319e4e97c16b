"""Traces: spans of sending and of attempts, joined by the headers of the tasks; nothing if they are not asked for."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from fastq import (
    Client,
    DuplicateTaskError,
    GroupedTask,
    RevokeTask,
    RunningTask,
    ServeMux,
    SkipRetry,
    Task,
    WorkerCrashedError,
)
from fastq.contrib.otel import record_killed, trace_aggregator, trace_client, trace_mux, trace_tick
from fastq.hooks import Hooks
from fastq.testing import AsyncInlineClient, InlineClient
from fastq.wire import keys
from fastq.wire.codec import TaskMessage, decode_task_message
from tests.scheduler.harness import bench_on, pending
from tests.worker.harness import FakeContext

EXPORTER = InMemorySpanExporter()
TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01")
FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03"


@pytest.fixture(scope="module", autouse=True)
def _provider() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)  # once for a process


@pytest.fixture(autouse=True)
def _no_spans() -> None:
    EXPORTER.clear()


@pytest.fixture
def mux() -> ServeMux:
    mux: ServeMux = ServeMux()
    trace_mux(mux)

    @mux.handler("image:")
    def resize(task: RunningTask) -> None:
        if task.payload:
            raise {b"revoke": RevokeTask, b"skip": SkipRetry, b"fail": ZeroDivisionError}[task.payload](task.type)

    @mux.handler("async")
    async def wait(task: RunningTask) -> None:
        await asyncio.sleep(0)

    return mux


def spans(name: str) -> list[ReadableSpan]:
    return [span for span in EXPORTER.get_finished_spans() if span.name == name]


def facts(span: ReadableSpan) -> dict[str, Any]:
    """Return what a span says, without the parts that all have."""
    assert span.attributes is not None
    shared = {"messaging.system", "messaging.operation.name", "messaging.operation.type"}
    assert span.attributes.keys() >= shared
    return {name: value for name, value in span.attributes.items() if name not in shared}


def test_an_attempt_is_a_child_of_the_span_that_sent_its_task(mux: ServeMux) -> None:
    client = InlineClient(mux)
    trace_client(client)
    info = client.enqueue("image:resize", queue="media", max_retry=3)
    (sent,), (run,) = spans("send media"), spans("process image:")
    assert (sent.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert run.parent is not None
    assert sent.context is not None
    assert (run.parent.trace_id, run.parent.span_id) == (sent.context.trace_id, sent.context.span_id)
    assert sent.parent is None
    place = {"messaging.destination.name": "media", "messaging.message.id": info.id}
    task = {"messaging.asynq.task.type": "image:resize"}
    assert facts(sent) == {**place, **task}
    counts = {"messaging.asynq.task.attempt": 1, "messaging.asynq.task.max_retry": 3}
    assert facts(run) == {**place, **task, **counts}
    assert run.status.status_code is StatusCode.UNSET


def test_each_failed_attempt_has_a_span_with_its_error(mux: ServeMux) -> None:
    client = InlineClient(mux)
    for payload in (b"fail", b"skip", b"revoke"):
        client.enqueue("image:x", payload, max_retry=1)
    client.run_waiting()
    failed, skipped, revoked, again = spans("process image:")
    zero, skip = "ZeroDivisionError", "SkipRetry"
    for span, error, attempt in ((failed, zero, 1), (again, zero, 2), (skipped, skip, 1)):
        told = facts(span)
        assert (told["error.type"], told["messaging.asynq.task.attempt"]) == (error, attempt)
        assert span.status.status_code is StatusCode.ERROR
        assert [event.name for event in span.events] == ["exception"]
    assert facts(revoked)["messaging.asynq.task.outcome"] == "revoked"
    assert (revoked.status.status_code, list(revoked.events)) == (StatusCode.UNSET, [])


def test_headers_have_no_flag_that_old_go_services_do_not_know(db: Any, url: str) -> None:
    with Client(url) as client:
        trace_client(client)
        info = client.enqueue("t", headers={"mine": "1"})
    headers = decode_task_message(db.hget(keys.task("default", info.id), "msg")).headers
    assert headers["mine"] == "1"
    found = TRACEPARENT.fullmatch(headers["traceparent"])
    (sent,) = spans("send default")
    assert sent.context is not None
    assert found is not None
    assert (int(found[1], 16), int(found[2], 16)) == (sent.context.trace_id, sent.context.span_id)


def test_a_context_that_the_user_has_set_stays_as_it_is(mux: ServeMux) -> None:
    client = InlineClient(mux)
    trace_client(client)
    given = {"Traceparent": FOREIGN}
    assert client.enqueue("image:a", headers=given).headers == given
    (run,) = spans("process image:")
    assert run.parent is not None
    assert f"{run.parent.trace_id:032x}-{run.parent.span_id:016x}" == FOREIGN[3:-3]


def test_many_tasks_have_one_span_for_each_round_trip(mux: ServeMux) -> None:
    client = InlineClient(mux)
    trace_client(client)
    client.enqueue_many([Task("image:a", queue="a"), Task("image:b", queue="b")])
    (sent,) = spans("send")
    assert (sent.kind, facts(sent)) == (SpanKind.CLIENT, {"messaging.batch.message_count": 2})
    assert sent.context is not None
    assert {run.parent and run.parent.span_id for run in spans("process image:")} == {sent.context.span_id}


def test_traces_do_not_make_tasks_unique(url: str, db: Any) -> None:
    with Client(url) as client:
        trace_client(client)
        client.enqueue("t", unique=60)
        with pytest.raises(DuplicateTaskError):
            client.enqueue("t", unique=60)
    first, second = spans("send default")
    assert (first.status.status_code, second.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert facts(second)["error.type"] == "DuplicateTaskError"


def test_async_clients_and_handlers_are_traced_alike(mux: ServeMux) -> None:
    async def send() -> None:
        async with AsyncInlineClient(mux) as client:
            trace_client(client)
            await client.enqueue("async")

    asyncio.run(send())
    (sent,), (run,) = spans("send default"), spans("process async")
    assert run.parent is not None
    assert sent.context is not None
    assert run.parent.span_id == sent.context.span_id


def test_an_aggregated_task_has_links_to_those_that_it_replaces(mux: ServeMux) -> None:
    @trace_aggregator
    def combine(group: str, tasks: Sequence[GroupedTask]) -> Task:
        return Task("image:all", max_retry=len(tasks))

    parts = [GroupedTask(TaskMessage("image:a", b"", f"id-{n}")) for n in range(3)]
    parts[1].headers = {"traceparent": FOREIGN}
    made = combine("night", parts)
    (span,) = spans("aggregate")
    assert [f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in span.links] == [FOREIGN[3:-3]]
    assert span.attributes == {
        "messaging.system": "asynq",
        "messaging.batch.message_count": 3,
        "messaging.asynq.task.group": "night",
    }
    InlineClient(mux).enqueue(made)
    (run,) = spans("process image:")
    assert run.parent is not None
    assert span.context is not None
    assert (run.parent.trace_id, run.parent.span_id) == (span.context.trace_id, span.context.span_id)


def test_a_scheduler_s_task_continues_the_trace_of_its_tick(mux: ServeMux, url: str, db: Any) -> None:
    with bench_on(url, pre_enqueue=trace_tick) as (bench,):
        bench.add("* * * * *", "image:a", queue="media", headers={"mine": "1"})
        for _ in range(2):
            bench.turn(after=60)
    first, second = spans("create media")
    for span, message in zip((first, second), pending(db, "media"), strict=True):
        assert (span.kind, span.parent) == (SpanKind.PRODUCER, None)
        assert facts(span) == {"messaging.destination.name": "media", "messaging.asynq.task.type": "image:a"}
        assert message.headers["mine"] == "1"
        found = TRACEPARENT.fullmatch(message.headers["traceparent"])
        assert span.context is not None
        assert found is not None
        assert (int(found[1], 16), int(found[2], 16)) == (span.context.trace_id, span.context.span_id)
    assert first.context != second.context


@pytest.mark.parametrize("wrong", ["client", ServeMux()])
def test_what_is_no_client_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="client must be a Client or AsyncClient"):
        trace_client(wrong)
    with pytest.raises(TypeError, match="mux must be an App or ServeMux"):
        trace_mux(Client)  # type: ignore[arg-type]  # on purpose


WHO_IMPORTS = """
import sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("opentelemetry"):
            frame = sys._getframe(1)
            while "importlib" in frame.f_code.co_filename:
                frame = frame.f_back
            if not frame.f_globals["__name__"].startswith(("redis.", "opentelemetry.")):
                sys.exit(frame.f_globals["__name__"] + " imports " + name)

sys.meta_path.insert(0, Watch())
import fastq, fastq.testing, fastq.server.wiring.process, fastq.cli.worker
import fastq.worker.child.handler_runner, fastq.pool.child.run
if len(sys.argv) > 1:
    import fastq.contrib.otel
"""


def test_no_module_of_fastq_imports_opentelemetry_unless_it_is_asked_for() -> None:
    """Others may: redis-py 7 and later imports its SDK where that is installed."""
    run = [sys.executable, "-c", WHO_IMPORTS]
    assert subprocess.run(run, capture_output=True, text=True).stderr == ""
    assert subprocess.run([*run, "traced"], capture_output=True, text=True).stderr.startswith("fastq.contrib.otel ")


def test_a_killed_attempt_is_recorded_where_it_did_not_run(mux: ServeMux) -> None:
    client = InlineClient(mux, hooks=Hooks(error_handler=record_killed))
    client.enqueue("image:x", b"fail", max_retry=0)
    assert len(spans("process image:")) == 1, "this one ended its span itself"
    dead = RunningTask(TaskMessage("image:y", b"", "id", headers={"traceparent": FOREIGN}), FakeContext())
    record_killed(dead, WorkerCrashedError("worker process 7 died"))
    _, killed = spans("process image:")
    told = facts(killed)
    assert (told["error.type"], told["messaging.asynq.task.outcome"]) == ("WorkerCrashedError", "killed")
    assert killed.parent is not None
    assert f"{killed.parent.trace_id:032x}-{killed.parent.span_id:016x}" == FOREIGN[3:-3]
    assert killed.status.description == "worker process 7 died"
    record_killed(RunningTask(TaskMessage("unknown", b"", "id"), FakeContext()), WorkerCrashedError(""))
    assert len(spans("process unknown")) == 1
