"""The runner: bytes in, an answer out, for plain functions and coroutines alike."""

import asyncio
import functools
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

import orjson
import pytest

from fastq import ServeMux, current_task
from fastq.errors import PayloadError, Retry, RevokeTask, SkipRetry, Snooze, TaskCanceled, TaskTimeout
from fastq.hooks import Hooks
from fastq.log.limit import LINES, PER_S
from fastq.pool.shared.event_kind import TOLD_TO_END, EventKind
from fastq.pool.shared.runner import Answer, RunnerMisuseError, Sort
from fastq.running import RunningTask
from fastq.worker.child.handler_runner import HandlerRunner, load
from fastq.worker.shared.description import AppDescription
from fastq.worker.shared.report import FailureReport
from fastq.worker.shared.requests import runner_argument
from tests.manual_clock import ManualClock
from tests.worker.harness import FakeContext, encoded

mux: ServeMux = ServeMux()
empty_mux: ServeMux = ServeMux()
not_a_mux = 5


@mux.handler("plain")
def plain(task: RunningTask) -> None:
    """Do nothing."""


@mux.handler("coroutine")
async def coroutine(task: RunningTask) -> None:
    """Do nothing."""


def run_plain(handler: Callable[..., Any], context: FakeContext, hooks: Hooks, data: bytes) -> Answer:
    made: ServeMux = ServeMux()
    made.handle("t", handler)
    return copy_context().run(HandlerRunner(made, hooks).run, data, context)


def run_coroutine(handler: Callable[..., Any], context: FakeContext, hooks: Hooks, data: bytes) -> Answer:
    async def wrapped(task: RunningTask) -> object:
        await asyncio.sleep(0)
        return handler(task)

    made: ServeMux = ServeMux()
    made.handle("t", wrapped)

    async def main() -> Answer:
        return await HandlerRunner(made, hooks).run_async(data, context)

    return asyncio.run(main())


WAYS = {"def": run_plain, "async def": run_coroutine}


@pytest.fixture(params=WAYS)
def run(request: pytest.FixtureRequest) -> Callable[..., Answer]:
    way = WAYS[request.param]

    def running(
        handler: Callable[..., Any], context: FakeContext | None = None, hooks: Hooks | None = None, **fields: Any
    ) -> Answer:
        data = fields.pop("data", None) or encoded(**fields)
        return way(handler, context or FakeContext(), hooks or Hooks(), data)

    return running


def fail_with(error: BaseException) -> Callable[[RunningTask], None]:
    def handler(task: RunningTask) -> None:
        raise error

    return handler


Run = Callable[..., Answer]


def report_of(answer: Answer) -> FailureReport:
    assert answer is not None
    return FailureReport.decode(answer[1])


def test_a_handler_that_returns_nothing_is_done(run: Run) -> None:
    assert run(lambda task: None) is None


@pytest.mark.parametrize(
    ("value", "data"), [(b"\x00", b"\x00"), ({"a": 1}, b'{"a":1}'), ("", b'""'), (0, b"0"), (b"", b"")]
)
def test_what_a_handler_returns_is_its_result(value: object, data: bytes, run: Run) -> None:
    assert run(lambda task: value, retention=60) == (EventKind.RESULT, data)


@pytest.mark.parametrize("value", [1, b"bytes", object(), float("nan")])
def test_what_nobody_keeps_is_not_encoded(value: object, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    assert run(lambda task: value, retention=0) is None
    assert caplog.records == []


def test_a_finished_task_is_done_whatever_it_returned(run: Run) -> None:
    answer = run(lambda task: {"ok": 1, "odd": object()}, retention=60)
    assert answer is not None
    assert answer[0] is EventKind.RESULT
    assert orjson.loads(answer[1])["odd"]["fastq:unencodable"] == "object"


def test_a_handler_sees_its_task(run: Run) -> None:
    def handler(task: RunningTask) -> list[object]:
        return [task.id, task.queue, task.retried, task.json(), current_task() is task]

    answer = run(handler, id="x", queue="critical", retried=2, retention=60, payload=b'{"n": 1}')
    assert answer == (EventKind.RESULT, b'["x","critical",2,{"n":1},true]')


def test_no_task_is_current_after_its_handler(run: Run) -> None:
    run(lambda task: None)
    run(fail_with(ValueError()))
    with pytest.raises(LookupError):
        current_task()


def test_a_handler_writes_results_while_it_runs(run: Run) -> None:
    context = FakeContext()

    def handler(task: RunningTask) -> None:
        task.write_result("half")
        task.write_result(b"all")

    assert run(handler, context) is None
    assert context.written == [b'"half"', b"all"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("boom"), EventKind.FAILED),
        (SystemExit(2), EventKind.FAILED),
        (SkipRetry("bad"), EventKind.SKIP_RETRY),
        (RevokeTask("forget"), EventKind.REVOKED),
        (TaskTimeout("up"), EventKind.TIMEOUT),
        (TaskCanceled("stop"), EventKind.CANCELED),
    ],
)
def test_what_a_handler_raises_decides_its_fate(error: BaseException, kind: EventKind, run: Run) -> None:
    answer = run(fail_with(error))
    assert answer is not None
    assert answer[0] is kind
    text = f"{type(error).__name__}: {error} (tests/worker/child/test_handler_runner.py:"
    assert report_of(answer).error.startswith(text)


@pytest.mark.parametrize(
    ("decision", "kind"), [(SkipRetry("why"), EventKind.SKIP_RETRY), (RevokeTask("why"), EventKind.REVOKED)]
)
def test_a_decision_may_be_the_cause_of_what_is_raised(decision: Exception, kind: EventKind, run: Run) -> None:
    def handler(task: RunningTask) -> None:
        raise ValueError("outer") from decision

    answer = run(handler)
    assert answer is not None
    assert answer[0] is kind
    assert report_of(answer).error.startswith("ValueError: outer")


def test_revoking_goes_before_skipping(run: Run) -> None:
    def handler(task: RunningTask) -> None:
        raise SkipRetry("outer") from RevokeTask("inner")

    answer = run(handler)
    assert answer is not None
    assert answer[0] is EventKind.REVOKED


@pytest.mark.parametrize("data", [b"\xff\xff", b"\x0a\x05t", encoded(error_msg="boom").replace(b"boom", b"b\xff\xffm")])
def test_bytes_that_are_no_message_are_invalid(data: bytes, run: Run) -> None:
    ran: list[RunningTask] = []
    answer = run(ran.append, data=data)
    assert answer is not None
    assert answer[0] is EventKind.INVALID
    assert answer[1]
    assert ran == []


def test_a_type_without_a_handler_is_said(run: Run) -> None:
    answer = run(lambda task: None, type="other")
    assert answer is not None
    assert answer[0] is EventKind.NOT_FOUND
    assert report_of(answer).error == "HandlerNotFoundError: handler not found for task 'other'"


def test_hooks_see_the_failure_and_decide(run: Run) -> None:
    seen: list[object] = []
    hooks = Hooks(lambda task, error: seen.append((task.id, str(error))), lambda error: False, lambda n, error, task: 9)
    report = report_of(run(fail_with(ValueError("boom")), None, hooks))
    assert seen == [("id-1", "boom")]
    assert (report.is_failure, report.retry_in_s) == (False, 9.0)


def test_hooks_run_with_their_task_current(run: Run) -> None:
    seen: list[str] = []
    hooks = Hooks(error_handler=lambda task, error: seen.append(current_task().id))
    run(fail_with(ValueError()), None, hooks)
    assert seen == ["id-1"]


def test_a_plain_function_that_returns_an_awaitable_is_a_mistake_that_is_said() -> None:
    async def inner() -> None:
        """Never run."""

    answer = run_plain(lambda task: inner(), FakeContext(), Hooks(), encoded())
    assert answer is not None
    assert answer[0] is EventKind.FAILED
    assert "the handler of 't' returned an awaitable; declare it with async def" in report_of(answer).error


@pytest.mark.parametrize("retention", [0, 60])
def test_a_generator_that_is_returned_has_not_run_and_fails_its_task(
    run: Callable[..., Answer], retention: int
) -> None:
    ran = list[RunningTask]()

    def steps(task: RunningTask) -> Iterator[None]:
        ran.append(task)
        yield

    @functools.wraps(steps)
    def through_it(task: RunningTask) -> list[None]:
        return list(steps(task))

    def handed_on(task: RunningTask) -> Iterator[None]:
        return steps(task)

    answer = run(handed_on, retention=retention)
    assert "the handler of 't' returned a generator, whose code has not run" in report_of(answer).error
    assert ran == []
    assert run(through_it) is None
    assert len(ran) == 1


@pytest.mark.parametrize(
    ("interruption", "kind", "text"),
    [
        (EventKind.TIMEOUT, EventKind.TIMEOUT, "TaskTimeout: the task's time is up"),
        (EventKind.CANCELED, EventKind.CANCELED, "TaskCanceled: the task was canceled"),
        (
            EventKind.MEMORY_LIMIT,
            EventKind.MEMORY_LIMIT,
            "TaskCanceled: its process has grown above memory_limit (peak RSS ",
        ),
        (EventKind.ABORTED, EventKind.FAILED, "CancelledError"),
        (None, EventKind.FAILED, "CancelledError"),
    ],
)
def test_a_canceled_coroutine_is_told_by_the_reason(interruption: EventKind | None, kind: EventKind, text: str) -> None:
    answer = run_coroutine(
        fail_with(asyncio.CancelledError()), FakeContext(interruption=interruption), Hooks(), encoded()
    )
    assert answer is not None
    assert answer[0] is kind
    assert report_of(answer).error.startswith(text)


@pytest.mark.parametrize("interruption", TOLD_TO_END)
@pytest.mark.parametrize(
    ("decision", "kind"), [(SkipRetry("no"), EventKind.SKIP_RETRY), (RevokeTask("no"), EventKind.REVOKED)]
)
def test_a_decision_after_the_end_was_asked_for_is_not_ignored(
    interruption: EventKind, decision: Exception, kind: EventKind, run: Run
) -> None:
    answer = run(fail_with(decision), FakeContext(interruption=interruption))
    assert answer is not None
    assert answer[0] is kind
    assert report_of(answer).error.startswith(f"{type(decision).__name__}: no")


def test_any_other_error_after_the_end_was_asked_for_is_told_by_the_reason(run: Run) -> None:
    answer = run(fail_with(ValueError("torn")), FakeContext(interruption=EventKind.TIMEOUT))
    assert answer is not None
    assert answer[0] is EventKind.TIMEOUT
    assert report_of(answer).error.startswith("TaskTimeout: the task's time is up (")


@pytest.mark.parametrize(
    ("tracebacks", "error", "retried", "has_one"),
    [
        ("never", ValueError("x"), 25, False),
        ("archived", ValueError("x"), 24, False),
        ("archived", ValueError("x"), 25, True),
        ("archived", SkipRetry("x"), 0, True),
        ("archived", RevokeTask("x"), 25, False),
        ("always", ValueError("x"), 0, True),
        ("always", RevokeTask("x"), 0, True),
        ("always", PayloadError("x"), 0, False),
    ],
)
def test_a_traceback_is_made_only_where_the_log_is_to_have_it(
    tracebacks: str, error: Exception, retried: int, has_one: bool
) -> None:
    made: ServeMux = ServeMux()
    made.handle("t", fail_with(error))
    answer = copy_context().run(
        HandlerRunner(made, Hooks(), tracebacks=tracebacks).run, encoded(retried=retried), FakeContext()
    )
    trace = report_of(answer).trace
    assert bool(trace) is has_one
    assert not trace or trace.splitlines()[0] == "Traceback (most recent call last):"


def test_no_more_tracebacks_of_a_kind_are_made_than_the_log_takes() -> None:
    made: ServeMux = ServeMux()
    made.handle("t", fail_with(ValueError("x")))
    clock = ManualClock()
    runner = HandlerRunner(made, Hooks(), tracebacks="always", clock=clock)

    def traces(count: int, **fields: int) -> list[bool]:
        answers = [copy_context().run(runner.run, encoded(**fields), FakeContext()) for _ in range(count)]
        found = [report_of(answer).trace for answer in answers]
        assert "" not in found
        return [trace is not None for trace in found]

    assert traces(LINES + 2) == [True] * LINES + [False] * 2
    assert traces(1, retried=25) == [True]  # this one is archived: other lines
    clock.advance(PER_S)
    assert traces(LINES + 1) == [True] * LINES + [False]


# Loading ----------------------------------------------------------------------------------------------------------

HERE = "tests.worker.child.test_handler_runner"


def test_the_pool_loads_the_app_and_its_hooks_by_name() -> None:
    runner: Any = load(runner_argument(f"{HERE}:mux", is_failure=f"{HERE}:plain", error_handler=None))
    assert runner.has_plain
    assert runner.has_async
    assert AppDescription.decode(runner.description).patterns == {"plain": False, "coroutine": True}
    threaded = load(runner_argument(f"{HERE}:mux", threads=True))
    assert (threaded.has_plain, threaded.has_async) == (False, True)
    sorts = {"plain": Sort.THREADED, "coroutine": Sort.ASYNC}
    assert AppDescription.decode(threaded.description).patterns == sorts
    assert runner._hooks == Hooks(is_failure=plain)  # type: ignore[arg-type]  # any function will do


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (runner_argument("nocolon"), "is not of the form module:attr"),
        (runner_argument("nosuch_module:mux"), "there is no module 'nosuch_module'"),
        (runner_argument(f"{HERE}:nosuch"), "has no 'nosuch'"),
        (runner_argument(f"{HERE}:not_a_mux"), "must be a fastq.App or ServeMux, not int"),
        (runner_argument(f"{HERE}:empty_mux"), r"has no handlers; add some with @empty_mux.handler\('type'\)"),
        (runner_argument(f"{HERE}:mux", error_handler=f"{HERE}:not_a_mux"), "error_handler=.* is not callable: 5"),
    ],
)
def test_a_name_that_will_not_do_is_misuse_that_says_why(argument: str, message: str) -> None:
    with pytest.raises(RunnerMisuseError, match=message):
        load(argument)


def test_what_a_fork_of_the_handler_raises_passes_and_no_hook_hears_of_it(run: Run) -> None:
    context, told = FakeContext(), []
    context.is_forked = True
    hooks = Hooks(error_handler=lambda task, error: told.append(error))
    with pytest.raises(SystemExit):
        run(fail_with(SystemExit(0)), context, hooks)
    assert told == []


def test_the_first_of_a_kind_of_error_brings_its_traceback_for_redis_and_all_bring_its_fingerprint() -> None:
    made: ServeMux = ServeMux()
    raised: list[BaseException] = []

    @made.handler("t")
    def fails(task: RunningTask) -> None:
        raise raised.pop()

    clock = ManualClock()
    runner = HandlerRunner(made, Hooks(), clock=clock)

    def report(error: BaseException, **fields: Any) -> FailureReport:
        raised.append(error)
        return report_of(copy_context().run(runner.run, encoded(**fields), FakeContext()))

    first, second = report(ValueError("a" * 9000)), report(ValueError("b"))
    assert first.fingerprint == second.fingerprint != ""
    assert first.kept.endswith("\nValueError")
    assert ("a" * 10 in first.kept, second.kept) == (False, "")
    assert report(ValueError("c"), queue="other").kept.endswith("\nValueError")
    assert report(KeyError("d")).fingerprint != first.fingerprint
    clock.advance(600.0)
    assert report(ValueError("e")).kept.endswith("\nValueError")
    for error in (Snooze(after=1), RevokeTask("f")):
        told = report(error)
        assert (told.fingerprint, told.kept) == ("", "")
    nowhere = report(ValueError("g"), type="nosuch")
    assert nowhere.error.startswith("HandlerNotFoundError")
    assert nowhere.fingerprint == ""


@pytest.mark.parametrize("interruption", TOLD_TO_END)
def test_a_handler_that_is_told_to_end_may_ask_for_its_retry(interruption: EventKind, run: Run) -> None:
    answer = run(fail_with(Retry("later", after=7)), FakeContext(interruption=interruption))
    assert answer is not None
    report = FailureReport.decode(answer[1])
    assert (answer[0], report.error.partition(" (")[0], report.retry_in_s) == (interruption, "Retry: later", 7.0)
