"""Traces with OpenTelemetry: a span for each call that enqueues and for each attempt, joined by W3C headers.

It needs the extra ``otel``, which installs opentelemetry-api; the app installs the SDK and its exporters. No other
module of fastq imports this one. Names follow the semantic conventions for messaging, v1.44, which are not stable yet.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from fastq._version import __version__
from fastq.client import AsyncClient, Client
from fastq.enqueueing.results import EnqueueResults
from fastq.mux import ServeMux
from fastq.pool.shared.event_kind import NO_FAILURES
from fastq.running import CURRENT, GroupedTask, RunningTask
from fastq.task import Task

SYSTEM: Final = "asynq"
FLUSH_MS: Final = 1000
MAX_LINKS: Final = 128
TRACEPARENT: Final = "traceparent"
FLAGS: Final = 2
"""The hexadecimal digits of the flags, at the end of a traceparent."""

_NO_FAILURES: Final = tuple(NO_FAILURES)
_tracer: Final = trace.get_tracer("fastq", __version__)
_traced: Final[list[ServeMux[Any]]] = []


def trace_client(client: Client | AsyncClient) -> None:
    """Record a span ``send {queue}`` for each task, or chunk of ``enqueue_many``, that a client enqueues.

    The span's context goes into the headers of the tasks, except those that have a ``traceparent`` already.
    """
    if isinstance(client, AsyncClient):
        client.use(_sending_async)
    elif isinstance(client, Client):
        client.use(_sending)
    else:
        raise TypeError(f"client must be a Client or AsyncClient, not {client!r}")


def trace_mux(mux: ServeMux[Any]) -> None:
    """Record a span ``process {type}`` for each attempt that the handlers of a mux or App run.

    The span is a child of the span that enqueued the task. Call this before other middleware is added, so that the span
    includes it. A child process exports the spans that are left when it ends.
    """
    if not isinstance(mux, ServeMux):
        raise TypeError(f"mux must be an App or ServeMux, not {mux!r}")
    mux.around(_processing(mux))
    mux.child_stop(_flush)
    _traced.append(mux)


def record_killed(task: RunningTask, error: BaseException) -> None:
    """Record a span for an attempt whose child process died, so that the attempt's own span was lost.

    Use this as an ``error_handler``. It ignores attempts whose process still lives: they end their span themselves.
    """
    if CURRENT.get(None) is not None:
        return  # this is the process that ran the attempt
    patterns = [mux.match(task.type)[1] for mux in _traced]
    with _process_span(task, next(filter(None, patterns), task.type)) as span:
        span.set_attribute("messaging.asynq.task.outcome", "killed")
        _note_error(span, error)


def trace_tick(task: Task, options: Mapping[str, Any]) -> Task:
    """Record a span ``create {queue}`` for a task that a scheduler enqueues. Pass it as ``pre_enqueue`` of a
    ``Scheduler``.

    The span begins a new trace, which the task continues. It has no duration: ticks are sent in batches.
    """
    queue = options.get("queue") or task.options.get("queue") or "default"
    attributes = {
        "messaging.system": SYSTEM,
        **_operation("create"),
        "messaging.destination.name": queue,
        "messaging.asynq.task.type": task.type,
    }
    with _tracer.start_as_current_span(
        f"create {queue}", context=Context(), kind=SpanKind.PRODUCER, attributes=attributes
    ):
        (made,) = _with_context((task,))
        return made


def trace_aggregator(aggregate: Callable[[str, Sequence[GroupedTask]], Task]) -> Callable[..., Task]:
    """Record a span ``aggregate`` for each call of a group aggregator, with links to the spans that sent the tasks.

    Use it as a decorator. The task that the aggregator returns continues the trace of this span.
    """

    @wraps(aggregate)
    def traced(group: str, tasks: Sequence[GroupedTask]) -> Task:
        with _tracer.start_as_current_span(
            "aggregate",
            context=Context(),  # a new trace: the tasks belong to many
            kind=SpanKind.PRODUCER,
            links=list(_links(tasks[:MAX_LINKS])),
            attributes={
                "messaging.system": SYSTEM,
                "messaging.batch.message_count": len(tasks),
                "messaging.asynq.task.group": group,
            },
        ):
            (made,) = _with_context((aggregate(group, tasks),))
            return made

    return traced


def _links(tasks: Sequence[Task]) -> Iterator[trace.Link]:
    for task in tasks:
        context = trace.get_current_span(_context_of(task)).get_span_context()
        if context.is_valid:
            yield trace.Link(context)


def _context_of(task: Task) -> Context:
    """Return the trace context in a task's headers; an empty context if there is none."""
    return propagate.extract({name.lower(): text for name, text in task.headers.items()}, Context())


def _sending(send: Callable[[Sequence[Task]], EnqueueResults]) -> Callable[[Sequence[Task]], EnqueueResults]:
    def traced(tasks: Sequence[Task]) -> EnqueueResults:
        with _send_span(tasks) as span:
            results = send(_with_context(tasks))
            _note_results(span, results)
            return results

    return traced


def _sending_async(send: Callable[[Sequence[Task]], Any]) -> Callable[[Sequence[Task]], Any]:
    async def traced(tasks: Sequence[Task]) -> EnqueueResults:
        with _send_span(tasks) as span:
            results: EnqueueResults = await send(_with_context(tasks))
            _note_results(span, results)
            return results

    return traced


@contextmanager
def _send_span(tasks: Sequence[Task]) -> Iterator[Span]:
    queues = {task.options.get("queue") or "default" for task in tasks}
    attributes: dict[str, Any] = {"messaging.system": SYSTEM, **_operation("send")}
    if len(tasks) > 1:
        attributes["messaging.batch.message_count"] = len(tasks)
    else:
        attributes["messaging.asynq.task.type"] = tasks[0].type
    name = "send"
    if len(queues) == 1:
        (attributes["messaging.destination.name"],) = queues
        name = f"send {attributes['messaging.destination.name']}"
    kind = SpanKind.PRODUCER if len(tasks) == 1 else SpanKind.CLIENT
    with _tracer.start_as_current_span(name, kind=kind, attributes=attributes, set_status_on_exception=False) as span:
        try:
            yield span
        except Exception as error:
            _note_error(span, error)
            raise


def _operation(name: str) -> dict[str, str]:
    return {"messaging.operation.name": name, "messaging.operation.type": name}


def _with_context(tasks: Sequence[Task]) -> Sequence[Task]:
    """Return the tasks with the headers of the current context."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    if TRACEPARENT in headers:
        headers[TRACEPARENT] = _sampled_only(headers[TRACEPARENT])
    if not headers:
        return tasks
    return [task if _is_traced(task) else task.replace(headers={**headers, **task.headers}) for task in tasks]


def _sampled_only(traceparent: str) -> str:
    """Clear all flags but the first: otel-go before 1.42 ignores the header if another flag is set."""
    return f"{traceparent[:-FLAGS]}{int(traceparent[-FLAGS:], 16) & 1:02x}"


def _is_traced(task: Task) -> bool:
    return any(name.lower() == TRACEPARENT for name in task.headers)


def _note_results(span: Span, results: EnqueueResults) -> None:
    """Set the id or the error on the span of a call that enqueued a single task."""
    if len(results) != 1 or not span.is_recording():
        return
    result = results[0]
    if isinstance(result, Exception):
        _note_error(span, result)
    else:
        span.set_attribute("messaging.message.id", result.id)


def _processing(mux: ServeMux[Any]) -> Callable[[RunningTask], Any]:
    @contextmanager
    def process(task: RunningTask) -> Iterator[None]:
        with _process_span(task, mux.match(task.type)[1]) as span:
            try:
                yield
            except _NO_FAILURES as error:
                outcome = next(kind.name for decision, kind in NO_FAILURES.items() if isinstance(error, decision))
                span.set_attribute("messaging.asynq.task.outcome", outcome.lower())
                raise
            except BaseException as error:
                span.record_exception(error)
                _note_error(span, error)
                raise

    return process


def _process_span(task: RunningTask, pattern: str) -> AbstractContextManager[Span]:
    pattern = pattern.removesuffix("\0")
    return _tracer.start_as_current_span(
        f"process {pattern}",
        context=_context_of(task),
        kind=SpanKind.CONSUMER,
        attributes={
            "messaging.system": SYSTEM,
            **_operation("process"),
            "messaging.destination.name": task.queue,
            "messaging.message.id": task.id,
            "messaging.asynq.task.type": task.type,
            "messaging.asynq.task.attempt": task.retried + 1,
            "messaging.asynq.task.max_retry": task.max_retry,
        },
        record_exception=False,
        set_status_on_exception=False,
    )


def _note_error(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def _flush() -> None:
    """Export the remaining spans; only the SDK's provider collects spans, so only it has ``force_flush``."""
    flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if flush is not None:
        flush(FLUSH_MS)
