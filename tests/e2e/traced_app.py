"""An app with traces: each process that runs a part of it appends its spans to the file TRACES, a line of JSON each."""

import json
import os
import signal
import time
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from fastq import Client, Retry, RevokeTask, RunningTask, ServeMux, Task
from fastq.contrib.otel import trace_aggregator, trace_client, trace_mux
from fastq.running import GroupedTask


class Lines(SpanExporter):
    """An exporter to a file."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        fd = os.open(os.environ["TRACES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for span in spans:
            os.write(fd, json.dumps(json.loads(span.to_json())).encode() + b"\n")
        os.close(fd)
        return SpanExportResult.SUCCESS


mux = ServeMux()
trace_mux(mux)


@mux.child_start
def set_up_traces() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Lines()))
    trace.set_tracer_provider(provider)


@mux.handler("do:")
def do(task: RunningTask) -> None:
    match task.type:
        case "do:fail":
            raise KeyError("no such thing")
        case "do:again" if task.retried < 2:
            raise Retry(after=0)
        case "do:revoke":
            raise RevokeTask
        case "do:linger":
            time.sleep(600)
        case "do:die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "do:hang":
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            time.sleep(600)


@mux.handler("hop")
def hop(task: RunningTask) -> None:
    """Enqueue the next of as many tasks as are to follow, for Go's server."""
    left = int(task.payload)
    if left:
        with Client() as client:
            trace_client(client)
            client.enqueue("hop", str(left - 1).encode(), queue="go")


@trace_aggregator
def combine(group: str, tasks: Sequence[GroupedTask]) -> Task:
    return Task("do:all", max_retry=0)
