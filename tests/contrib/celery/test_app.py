"""Tasks written for Celery, on a real Redis: what is sent, what runs, and what is kept."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from fastq import Inspector, TaskFailedError, TaskGoneError, TaskIDConflictError, TaskState
from fastq.contrib.celery import (
    AsyncResult,
    Celery,
    MaxRetriesExceededError,
    Reject,
    Task,
    TaskRevokedError,
    shared_task,
)
from fastq.contrib.celery.current import set_current_app
from fastq.errors import PayloadError, Retry
from fastq.mux import Terms
from fastq.testing import InlineClient, RunOutcome, drain, run_task

ARGUMENTS = [
    datetime(2026, 11, 22, 17, 30, tzinfo=UTC),
    date(2026, 11, 22),
    Decimal("1.10"),
    UUID(int=7),
    b"\xff\0",
    {"a": [1, None]},
]
CALL = {"args": ["u"], "kwargs": {}}
seen: list[Any] = []


@shared_task
def add(left: int, right: int = 1) -> int:
    return left + right


@shared_task
def note(*args: Any, **kwargs: Any) -> list[Any]:
    seen.append((args, kwargs))
    return [*args, kwargs]


@shared_task(bind=True, max_retries=2, default_retry_delay=7)
def fetch(self: Task[..., Any], url: str, **options: Any) -> None:
    seen.append((self.request.id, self.request.retries, self.request.args, self.request.delivery_info))
    try:
        raise ConnectionError(url)
    except ConnectionError as error:
        raise self.retry(exc=error, **options) from None


@shared_task(autoretry_for=(OSError,), dont_autoretry_for=(FileNotFoundError,), retry_kwargs={"countdown": 3})
def read(error: str) -> None:
    raise {"os": OSError, "missing": FileNotFoundError, "value": ValueError}[error](error)


def untyped(thing: object) -> Any:
    """Return a thing of which a checker knows nothing."""
    return thing


@pytest.fixture(autouse=True)
def _without_django(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)  # as tests of Django in the same process set it


@pytest.fixture
def app(url: str) -> Iterator[Celery]:
    seen.clear()
    app = Celery("shop", url)
    yield app
    app.client.close()


@pytest.fixture
def inspector(url: str) -> Iterator[Inspector]:
    with Inspector(url) as inspector:
        yield inspector


def test_a_result_has_the_state_and_the_value_of_its_task(app: Celery, url: str) -> None:
    result, failed = add.delay(2, right=3), untyped(add).delay("a")
    assert (result.state, result.ready(), result.result) == ("PENDING", False, None)
    drain(app, url)
    same = AsyncResult(result.id)
    assert (same.get(timeout=5), same.result, same.status, same.successful()) == (5, 5, "SUCCESS", True)
    assert (failed.state, failed.failed(), type(failed.result)) == ("FAILURE", True, TaskFailedError)
    assert "TypeError" in (failed.traceback or "")
    with pytest.raises(TaskFailedError, match="TypeError"):
        failed.get()
    assert (AsyncResult("nobody").state, AsyncResult("nobody").ready()) == ("PENDING", False)
    with pytest.raises(TaskGoneError):
        AsyncResult("nobody").get(timeout=1)


def test_values_come_back_as_they_were(app: Celery, url: str) -> None:
    result = note.delay(*ARGUMENTS, at=ARGUMENTS[0])
    drain(app, url)
    assert seen == [(tuple(ARGUMENTS), {"at": ARGUMENTS[0]})]
    assert result.get(timeout=5) == [*ARGUMENTS, {"at": ARGUMENTS[0]}]


def test_the_options_of_a_call_are_those_of_the_task(app: Celery, inspector: Inspector) -> None:
    eta = datetime.now(UTC) + timedelta(hours=1)
    sent = {
        "plain": add.apply_async((1,)),
        "later": add.apply_async((1,), countdown=60, queue="mail", soft_time_limit=5, time_limit=9),
        "at": add.apply_async([1], {"right": 2}, eta=eta.replace(tzinfo=None), headers={"a": "b"}, task_id="x:y"),
        "alone": fetch.apply_async(("u",), ignore_result=True),
        "named": app.send_task("another.task", [1]),
    }
    infos = {}
    for name, result in sent.items():
        queue, _, task_id = result.id.partition(":") if ":" in result.id else ("default", "", result.id)
        infos[name] = inspector.get_task_info(queue, task_id)
    assert json.loads(infos["plain"].payload) == {"args": [1], "kwargs": {}}
    assert (infos["plain"].type, infos["plain"].max_retry) == ("tests.contrib.celery.test_app.add", 3)
    assert (infos["plain"].retention, infos["alone"].retention) == (timedelta(days=1), timedelta(0))
    assert (infos["later"].state, infos["later"].queue, infos["later"].timeout) == (
        TaskState.SCHEDULED,
        "mail",
        timedelta(seconds=5),
    )
    assert sent["at"].id == "default:x:y"
    assert infos["at"].next_process_at == eta.replace(microsecond=0)
    assert (infos["at"].headers, infos["alone"].max_retry, infos["named"].type) == ({"a": "b"}, 2, "another.task")


def test_a_task_that_has_expired_is_revoked_and_does_not_run(app: Celery, url: str) -> None:
    late = note.apply_async((1,), expires=datetime(2000, 1, 1))
    in_time = note.apply_async((2,), expires=3600)
    forgotten = note.apply_async((3,), expires=datetime(2000, 1, 1), ignore_result=True)
    drain(app, url)
    assert (seen, late.state, in_time.state) == ([((2,), {})], "REVOKED", "SUCCESS")
    assert (late.ready(), late.successful(), type(late.result)) == (True, False, TaskRevokedError)
    assert (forgotten.state, forgotten.ready()) == ("PENDING", False)
    with pytest.raises(TaskRevokedError, match="has expired"):
        late.get()


def test_links_get_the_result_once_even_if_the_task_runs_again(app: Celery, url: str) -> None:
    links = [note.s("own", by="name").set(queue="mail", link=note.si("last")), note.si("no result")]
    message = {"args": [1], "kwargs": {}, "link": [link.as_link() for link in links]}
    for _ in range(2):
        assert run_task(app, add.name, message, task_id="parent").outcome is RunOutcome.DONE
    drain(app, url)
    assert sorted(seen, key=str) == [(("last",), {}), (("no result",), {}), ((2, "own"), {"by": "name"})]
    assert AsyncResult("mail:parent-link-0").get() == [2, "own", {"by": "name"}]
    add.apply_async((1,), link=note.s())
    drain(app, url)
    assert seen[-1] == ((2,), {})


def test_retry_asks_for_another_attempt_until_there_is_none(app: Celery, url: str) -> None:
    result = fetch.apply_async(("u",), queue="mail")
    (first,) = drain(app, url)
    assert (first.outcome, first.retry_in, result.state) == (RunOutcome.RETRY, 7, "RETRY")
    runs = drain(app, url, retries=True)
    assert [run.outcome for run in runs] == [RunOutcome.RETRY, RunOutcome.ARCHIVE]
    assert seen == [(result.id, retried, ["u"], {"routing_key": "mail"}) for retried in range(3)]
    assert (result.result.error_class, result.result.message) == ("ConnectionError", "u")


def run_fetch(app: Celery, **options: Any) -> Any:
    return run_task(app, fetch.name, {"args": ["u"], "kwargs": options}, max_retry=2)


def test_what_retry_takes(app: Celery) -> None:
    assert run_fetch(app, countdown=60).retry_in == 60
    eta = {"__type__": "datetime", "__value__": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    assert 3000 < run_fetch(app, eta=eta).retry_in <= 3600
    assert isinstance(run_fetch(app, max_retries=0).error, ConnectionError)
    assert run_fetch(app, max_retries=0).outcome is RunOutcome.ARCHIVE
    assert run_fetch(app, max_retries=9).outcome is RunOutcome.RETRY
    assert run_task(app, fetch.name, CALL, max_retry=25, retried=2).outcome is RunOutcome.ARCHIVE
    more = {"args": ["u"], "kwargs": {"max_retries": 9}}
    assert run_task(app, fetch.name, more, max_retry=2, retried=8).outcome is RunOutcome.RETRY
    assert run_task(app, fetch.name, more, max_retry=2, retried=9).outcome is RunOutcome.ARCHIVE
    assert "retry always raises" in str(run_fetch(app, throw=False).error)
    with pytest.raises(TypeError, match="has no option 'args': a retried task keeps its arguments"):
        untyped(fetch).retry([[1]], exc=OSError())
    with pytest.raises(ConnectionError, match="here"):
        fetch.run("here")
    with pytest.raises(Retry):
        fetch.retry()
    assert MaxRetriesExceededError.__mro__[1] is Exception


def test_only_the_errors_that_are_named_are_retried(app: Celery) -> None:
    runs = {name: run_task(app, read.name, {"args": [name], "kwargs": {}}) for name in ("os", "missing", "value")}
    assert (runs["os"].outcome, runs["os"].retry_in) == (RunOutcome.RETRY, 3)
    assert {runs["missing"].outcome, runs["value"].outcome} == {RunOutcome.ARCHIVE}


def test_backoff_grows_to_its_longest(app: Celery) -> None:
    @app.task(autoretry_for=(OSError,), retry_backoff=2, retry_backoff_max=9, retry_jitter=False)
    def grow() -> None: ...

    @app.task(autoretry_for=(OSError,), retry_backoff=True)
    def jitter() -> None: ...

    assert grow.rule.delay is not None
    assert [grow.rule.delay(retried) for retried in range(4)] == [2, 4, 8, 9]
    assert jitter.rule.delay is not None
    assert 0 <= float(jitter.rule.delay(3)) <= 8  # type: ignore[arg-type]  # no timedelta here


def test_what_the_decorator_says_holds_whoever_sends_the_task(app: Celery, inspector: Inspector) -> None:
    @app.task(name="mail", queue="mail", max_retries=6, autoretry_for=(OSError,), soft_time_limit=3)
    def mail(to: str) -> None:
        raise OSError(to)

    for retried, outcome in ((0, RunOutcome.RETRY), (5, RunOutcome.RETRY), (6, RunOutcome.ARCHIVE)):
        run = run_task(app, "mail", {"args": ["a"], "kwargs": {}}, max_retry=3, retried=retried)
        assert run.outcome is outcome
    info = app.client.enqueue(mail.s("a").message(), max_retry=2)
    assert (info.queue, info.timeout, info.retention) == ("mail", timedelta(seconds=3), timedelta(days=1))
    assert app._terms()["mail\0"] == Terms(limit_s=3, ends_with_process=True, may_be_late=True)
    assert mail.settings.terms.ends_with_process
    assert not shared_task(reject_on_worker_lost=True)(note.run).settings.terms.ends_with_process


def test_a_task_that_is_rejected_is_archived_or_runs_again(app: Celery) -> None:
    @app.task(name="reject", acks_late=True)
    def reject(requeue: bool) -> None:
        raise Reject("bad", requeue=requeue)

    run = run_task(app, "reject", {"args": [False], "kwargs": {}})
    assert (run.outcome, run.error_text.partition(" (")[0]) == (RunOutcome.ARCHIVE, "Reject: bad")
    again = run_task(app, "reject", {"args": [True], "kwargs": {}}, max_retry=0)
    assert (again.outcome, again.is_failure) == (RunOutcome.RETRY, False)


def test_a_result_that_is_no_json_fails_the_task_and_nan_is_null(app: Celery, url: str) -> None:
    @app.task(name="give", autoretry_for=(Exception,))
    def give(what: str) -> object:
        return {"object": object(), "nan": float("nan")}[what]

    bad, nan = give.delay("object"), give.delay("nan")
    dropped = give.apply_async(("object",), ignore_result=True)
    drain(app, url)
    assert (bad.state, bad.result.error_class, nan.state, nan.result) == ("FAILURE", "TypeError", "SUCCESS", None)
    assert dropped.state == "PENDING"


def test_a_countdown_that_has_passed_is_none(app: Celery, inspector: Inspector) -> None:
    result = add.apply_async((1,), countdown=-0.001)
    assert inspector.get_task_info("default", result.id).state is TaskState.PENDING


def test_a_task_is_still_a_function() -> None:
    assert (add.s(1, 2)(), add.s(2)(1), add.si(2)(1)) == (3, 3, 3)
    assert (add(1), add.run(1, 2), add.__name__) == (2, 3, "add")
    assert fetch.request.called_directly
    assert (untyped(fetch).queue, untyped(fetch).default_retry_delay) == ("default", 7)
    with pytest.raises(ConnectionError):
        fetch("u")


def test_wrong_arguments_and_values_are_refused_before_anything_is_sent(app: Celery, inspector: Inspector) -> None:
    anything = untyped(add)
    for call, error in (
        (anything.delay, TypeError),
        (lambda: anything.delay(1, other=2), TypeError),
        (lambda: anything.delay(object()), TypeError),
        (lambda: anything.delay(float("nan")), ValueError),
        (lambda: add.apply_async((1,), queue="a:b"), ValueError),
        (lambda: add.apply_async((1,), expires="soon"), TypeError),
        (lambda: add.apply_async((1,), link="add"), TypeError),
        (lambda: add.apply_async((1,), link_error=add.s()), TypeError),
    ):
        with pytest.raises(error):
            call()
    assert inspector.queues() == []
    add.apply_async((1,), task_id="x")
    with pytest.raises(TaskIDConflictError):
        add.apply_async((1,), task_id="x")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: add.apply_async((1,), priority=9), "has no option 'priority': use a queue with a weight"),
        (lambda: add.apply_async((1,), serializer="pickle"), "cannot have serializer='pickle'"),
        (lambda: shared_task(acks_late=False)(print), "cannot have acks_late=False: a task is always acknowledged"),
        (lambda: shared_task(retry_kwargs={"jitter": 1})(print), "retry_kwargs takes max_retries and countdown"),
        (lambda: Celery(backend="rpc://"), "has no option 'backend': results are kept beside the tasks"),
        (lambda: untyped(add).subtask, "has no 'subtask': write s"),
        (lambda: untyped(add.s(1)).on_error, "a signature has no 'on_error': use error_handler"),
        (lambda: untyped(add).other, "has no 'other'$"),
        (lambda: untyped(add.s(1)) | add.s(2), "chains are not supported: let the first task send the next"),
        (lambda: Celery().autodiscover_tasks(), "needs the names of packages where DJANGO_SETTINGS_MODULE is not set"),
        (lambda: untyped(Celery()).conf, "has no 'conf': settings are options of fastq-worker"),
        (lambda: untyped(AsyncResult("a", Celery())).forget, "has no 'forget': set result_expires"),
    ],
)
@pytest.mark.usefixtures("app")
def test_what_is_not_supported_says_so(call: Any, error: str) -> None:
    with pytest.raises((TypeError, AttributeError), match=error):
        call()


def test_a_coroutine_and_a_name_that_is_taken_are_refused(app: Celery) -> None:
    async def later() -> None: ...

    with pytest.raises(TypeError, match="is a coroutine"):
        app.task(later)

    def yielding() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="is a generator, which would not run"):
        app.task(yielding)
    with pytest.raises(ValueError, match="is already registered"):
        app.task(name=add.name)(lambda: None)
    app._add_task(add)  # its module was imported again


def test_a_payload_that_is_no_call_is_archived(app: Celery) -> None:
    for payload in (b"{", {"args": 1}, [1]):
        run = run_task(app, add.name, payload)
        assert (type(run.error), run.outcome) == (PayloadError, RunOutcome.ARCHIVE)


def test_tasks_of_an_app_and_shared_ones_are_in_it(app: Celery) -> None:
    @app.task(name="own")
    def own() -> None: ...

    assert {"own\0", f"{add.name}\0"} <= set(app.patterns())
    assert own.app is app
    assert add.app is app
    assert "own\0" not in Celery().patterns()


def test_an_inline_client_runs_tasks_at_once(app: Celery) -> None:
    app.client = InlineClient(app)
    assert add.delay(1).get() == 2
    assert add.delay(1).state == "SUCCESS"


def test_a_waiting_task_is_revoked(app: Celery, inspector: Inspector) -> None:
    result = add.apply_async((1,), countdown=60)
    result.revoke()
    assert (result.state, result.ready(), type(result.result)) == ("REVOKED", True, TaskRevokedError)
    assert AsyncResult(result.id).state == "PENDING"
    with pytest.raises(TaskGoneError):
        result.get(timeout=5)


def test_without_an_app_nothing_can_be_sent(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.contrib.celery.current._current", [])
    with pytest.raises(RuntimeError, match="there is no Celery app yet"):
        add.delay(1)
    set_current_app(app)
    assert add.delay(1).state == "PENDING"
