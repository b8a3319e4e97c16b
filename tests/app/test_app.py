"""``App``: its tasks as functions, as what is enqueued, and as handlers of a mux."""

import asyncio
import copy
import inspect
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis import Redis

from fastq import (
    App,
    Context,
    CronSpecError,
    DuplicateTaskError,
    Handle,
    PayloadError,
    RunningTask,
    Scheduler,
    ServeMux,
    SkipRetry,
    TaskInfo,
    current_task,
)
from fastq.testing import InlineClient, RunOutcome, run_task
from tests.redis_servers import RedisServer

# A function


def test_a_task_stays_the_function_that_it_was(app: App) -> None:
    @app.task("media.resize")
    def resize(id: int, width: int = 640) -> tuple[int, int]:
        """Resize a picture."""
        return id, width

    assert resize(7) == (7, 640)
    assert resize(7, width=8) == (7, 8)
    assert (resize.__name__, resize.__doc__) == ("resize", "Resize a picture.")
    assert str(inspect.signature(resize)) == "(id: int, width: int = 640) -> tuple[int, int]"
    assert resize.type == "media.resize"
    assert app.tasks == {"media.resize": resize}


def test_an_async_task_is_called_as_one(app: App) -> None:
    @app.task
    async def double(id: int) -> int:
        return 2 * id

    assert asyncio.run(double(21)) == 42
    assert double.type == "tests.app.test_app.double"


def test_a_name_is_needed_where_workers_would_import_another(app: App) -> None:
    def job() -> None: ...

    job.__module__ = "__main__"
    with pytest.raises(TypeError, match=r"needs a name.*@app.task\('job'\)"):
        app.task(job)
    with pytest.raises(TypeError, match="has no name of its own"):
        app.task(lambda: None)
    assert app.tasks == {}


# Enqueueing


def test_a_call_is_enqueued_with_the_options_of_its_task(app: App) -> None:
    @app.task("media.resize", queue="media", max_retry=3, timeout=60, headers={"a": "1"})
    def resize(id: int, width: int = 640) -> None: ...

    info = resize.enqueue(7, width=800)
    assert (info.type, info.queue, info.max_retry, info.timeout) == ("media.resize", "media", 3, timedelta(minutes=1))
    assert (info.payload, info.headers) == (b'{"id":7,"width":800}', {"a": "1"})


def test_options_given_later_win(app: App) -> None:
    @app.task("t", queue="media", max_retry=3, headers={"a": "1"})
    def job(id: int) -> None: ...

    other = job.options(queue="low", process_in=60, headers={"b": "2"})
    info = other.enqueue(7)
    assert (info.queue, info.max_retry, info.state, info.headers) == ("low", 3, "scheduled", {"a": "1", "b": "2"})
    assert job.enqueue(7).queue == "media", "the first is as it was"
    assert other.options(queue=None).enqueue(8).queue == "low"
    with pytest.raises(TypeError, match="did you mean 'queue'"):
        job.options(quue="low")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="must not be negative"):
        job.options(process_in=-1)


def test_many_are_enqueued_with_few_calls(app: App, db: Redis) -> None:
    @app.task("t", queue="media")
    def job(id: int) -> None: ...

    @app.task("other")
    def other() -> None: ...

    slow = job.options(queue="slow")
    results = slow.enqueue_many(job.task(id) for id in range(1000))
    assert (results.enqueued, db.llen("asynq:{slow}:pending")) == (1000, 1000)
    assert job.enqueue_many([slow.task(7)]).enqueued == 1
    assert db.llen("asynq:{slow}:pending") == 1001, "what made a task had given it its queue"
    with pytest.raises(TypeError, match="takes what its task"):
        job.enqueue_many([other.task()])


def test_tasks_are_enqueued_from_any_loop_and_thread(app: App) -> None:
    @app.task("t")
    async def job(id: int) -> None: ...

    async def enqueue() -> list[str]:
        info = await job.aenqueue(1)
        many = await job.aenqueue_many([job.task(2)])
        await app.aclose()
        return [info.type, *(each.type for each in many if isinstance(each, TaskInfo))]

    assert asyncio.run(enqueue()) == ["t", "t"]
    assert asyncio.run(enqueue()) == ["t", "t"]


def test_nothing_is_asked_of_redis_before_the_first_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, db: Redis, shared_server: RedisServer
) -> None:
    app = App()

    @app.task("t")
    def job(id: int) -> None: ...

    redis = tmp_path / "redis.sock"
    monkeypatch.setenv("FASTQ_REDIS_URL", f"unix://{redis}")  # after the import of a module with the app
    with pytest.raises(TypeError, match="Expected int, got str"):  # and not that nobody is there
        job.enqueue("7")  # type: ignore[arg-type]
    redis.symlink_to(shared_server.socket_path)
    assert job.enqueue(7).queue == "default"
    app.close()
    assert job.enqueue(8).queue == "default", "a closed client opens again"
    app.close()


def test_an_app_takes_a_url_alone(url: str) -> None:
    with pytest.raises(TypeError, match="takes the URL of a Redis"):
        App(Redis.from_url(url))  # type: ignore[arg-type]


def test_a_task_locks_by_its_arguments(app: App) -> None:
    @app.task("t", unique=60)
    def job(a: int, b: int) -> None: ...

    assert job.enqueue(1, b=2).payload == b'{"a":1,"b":2}'
    assert job.enqueue(2, b=2).payload == b'{"a":2,"b":2}'
    with pytest.raises(DuplicateTaskError):
        job.enqueue(b=2, a=1)


# Running


def test_a_payload_becomes_arguments_and_the_result_is_kept(app: App) -> None:
    @app.task("media.resize")
    def resize(id: int, width: int = 640) -> dict[str, int]:
        return {"id": id, "width": width, "retried": current_task().retried}

    assert run_task(app, resize.task(7), retention=60).json() == {"id": 7, "width": 640, "retried": 0}
    assert run_task(app, "media.resize", {"id": 7, "other": 1}, retention=60).json()["id"] == 7


def test_an_async_task_runs_as_a_coroutine(app: App) -> None:
    @app.task("t")
    async def job(id: int) -> int:
        await asyncio.sleep(0)
        return id

    assert app.patterns() == {"t\0": True}
    assert run_task(app, job.task(7), retention=60).json() == 7


class Size(msgspec.Struct):
    width: int
    price: Decimal


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (Size, Size(1, Decimal("1.20")), b'{"width":1,"price":"1.20"}'),
        (list[Size], [Size(1, Decimal(2))], b'[{"width":1,"price":"2"}]'),
        (set[int], {1}, b"[1]"),
        (dict[str, bytes], {"a": b"abc"}, b'{"a":"YWJj"}'),
        (dict[int, str], {1: "a"}, b'{"1":"a"}'),
        (bytes, b"\x00", b"\x00"),
        (bytes | None, b"\x00", b"\x00"),
        (Any, {"a": 1}, b'{"a":1}'),
        (time, time(1, 2, tzinfo=UTC), b'"01:02:00Z"'),
    ],
)
def test_a_result_is_kept_as_its_annotation_says(app: App, annotation: Any, value: Any, expected: bytes) -> None:
    def job() -> Any:
        return value

    async def coroutine() -> Any:
        return value

    for function in (job, coroutine):
        function.__annotations__["return"] = annotation
        app.task(function.__name__)(function)
        assert run_task(app, function.__name__, {}, retention=60).result == expected


def test_a_result_that_cannot_be_kept_fails_no_task(app: App) -> None:
    @app.task("t")
    def job() -> Size:
        return object()  # type: ignore[return-value]

    run = run_task(app, job.task(), retention=60)
    assert (run.outcome, run.json()["fastq:unencodable"]) == (RunOutcome.DONE, "object")


@pytest.mark.parametrize("annotation", [inspect.Parameter.empty, Any, object, dict[str, Any], bytes | list[Any]])
@pytest.mark.parametrize("value", [object(), {"a": [1, object()]}])
def test_a_result_of_which_a_part_was_not_kept_is_an_error(app: App, annotation: Any, value: Any) -> None:
    def job() -> Any:
        return value

    if annotation is not inspect.Parameter.empty:
        job.__annotations__["return"] = annotation
    task: Any = app.task("t")(job)
    handle = InlineClient(app).submit(task.task())
    with pytest.raises(ValueError, match=r"result of task .* object at 0x.* is of type object, and was not kept"):
        handle.result()


def test_a_task_function_that_is_given_as_a_task_is_answered_with_its_calls(app: App) -> None:
    @app.task("t")
    def job(id: int) -> None: ...

    hint = re.escape("; write job.task(...) or job.enqueue(...)")
    function: Any = job
    for call in (app.client.enqueue, app.client.submit, lambda job: app.client.enqueue_many([job])):
        with pytest.raises(TypeError, match=hint):
            call(function)
    with pytest.raises(TypeError, match=hint):
        app.client.submit_many([function])
    with pytest.raises(TypeError, match=hint):
        Scheduler(app.url).register("@daily", function)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("delay", "; write .enqueue(...)"), ("apply_async", "; write .options(queue=..., process_in"), ("nope", "")],
)
def test_what_other_libraries_call_it_is_answered_with_our_name(app: App, name: str, hint: str) -> None:
    @app.task("t")
    def job() -> None: ...

    with pytest.raises(AttributeError, match=re.escape(f"task 't' has no {name!r}{hint}")):
        getattr(job, name)
    assert copy.copy(job.options(queue="low")).task_options == {"queue": "low"}


def job_info(app: App) -> TaskInfo:
    @app.task("told of")
    def job() -> None: ...

    return InlineClient(app).enqueue(job.task())


def test_what_other_libraries_call_it_is_answered_on_apps_handles_and_in_settings(app: App) -> None:
    handle: Handle[Any] = Handle(app.client._waiter, ("default", "a", ""), str)
    with pytest.raises(AttributeError, match=r"^a handle has no 'get'; write \.result\(timeout=\.\.\.\)$"):
        handle.get  # type: ignore[attr-defined]  # noqa: B018 - what is tested
    info: Any = job_info(app)
    with pytest.raises(AttributeError, match=r"^a TaskInfo has no 'get'; write \.submit\(\.\.\.\)\.result\(timeout"):
        info.get(timeout=3)
    assert (info.result, copy.copy(info), pickle.loads(pickle.dumps(info))) == (None, info, info)
    with pytest.raises(AttributeError, match=r"^an App has no 'send_task'; write \.client\.enqueue\("):
        app.send_task  # type: ignore[attr-defined]  # noqa: B018 - what is tested
    with pytest.raises(AttributeError, match=r"^an App has no 'nope'$"):
        app.nope  # type: ignore[attr-defined]  # noqa: B018 - what is tested
    settings: Any = {"retries": 3, "bind": True}
    with pytest.raises(TypeError, match=r"unknown setting 'bind'; give it a first parameter ctx: Context"):
        app.task("u", **settings)(print)
    del settings["bind"]
    with pytest.raises(TypeError, match=r"unknown option 'retries'; did you mean 'max_retry'\?"):
        app.task("u", **settings)(lambda: None)
    settings = {"name": "u"}
    with pytest.raises(TypeError, match=r"unknown setting 'name'; the name comes first: @app\.task\('receipt\.send'\)"):
        app.task(**settings)(print)


def test_options_among_the_arguments_are_answered_with_their_place(app: App) -> None:
    @app.task("t")
    def job(id: int, timeout: int = 1) -> None: ...

    call: Any = job.task
    assert call(7, timeout=5).payload == b'{"id":7,"timeout":5}'
    for options, named in (({"queue": "low"}, "queue=..."), ({"countdown": 1, "retention": 2}, "process_in=..., ret")):
        with pytest.raises(TypeError, match=re.escape(f"; options are given before: .options({named}")):
            call(7, **options)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'widht'$"):
        call(7, widht=1)


def test_a_context_without_annotation_is_told_of_when_it_is_missing(app: App) -> None:
    @app.task("t")
    def job(ctx, id: int) -> None: ...  # type: ignore[no-untyped-def]  # what the test is about

    call: Any = job.enqueue
    with pytest.raises(TypeError, match=re.escape("'id'; annotate ctx: Context, if it is to be the running task")):
        call(7)


def test_a_payload_that_does_not_fit_is_archived_at_once(app: App) -> None:
    @app.task("t")
    def job(id: int) -> None: ...

    run = run_task(app, "t", {"id": "x"})
    assert (run.outcome, run.error_text) == (RunOutcome.ARCHIVE, "PayloadError: Expected int, got str - at $.id")
    assert isinstance(run.error, PayloadError)
    assert isinstance(run.error, SkipRetry)


def test_strict_tasks_refuse_unknown_fields(app: App) -> None:
    @app.task("t", strict=True)
    def job(id: int) -> None: ...

    assert run_task(app, "t", {"id": 1}).outcome is RunOutcome.DONE
    assert run_task(app, "t", {"id": 1, "new": 2}).outcome is RunOutcome.ARCHIVE


def test_names_match_exactly_and_beside_patterns(app: App) -> None:
    @app.task("media.resize", aliases=["images.scale"])
    def resize(id: int) -> str:
        return "task"

    @app.handler("media.")
    def prefix(task: RunningTask) -> str:
        return "prefix"

    came = {
        type: run_task(app, type, {"id": 1}, retention=60)
        for type in ("media.resize", "images.scale", "media.resize_all", "media.resiz", "images.scale2", "images")
    }
    assert {type: run.json() for type, run in came.items() if run.result} == {
        "media.resize": "task",
        "images.scale": "task",
        "media.resize_all": "prefix",
        "media.resiz": "prefix",
    }


def test_a_method_is_no_task(app: App) -> None:
    class Mailer:
        def send(self, to: str) -> None: ...

        def told(self: Context, to: str) -> None: ...  # type: ignore[misc]  # a worker gives it what it asks for

    with pytest.raises(TypeError, match=r"^task 'send' is a method: a worker has no self to call it with"):
        app.task("send")(Mailer.send)
    app.task("bound")(Mailer().send)
    app.task("told")(Mailer.told)


def test_a_name_is_registered_once(app: App) -> None:
    @app.task("a", aliases=["b"])
    def job() -> None: ...

    for name in ("a", "b"):
        text = rf"{name!r} is already registered, for tests\.app\.test_app\..*job \(test_app\.py:[0-9]+\)$"
        with pytest.raises(ValueError, match=text):
            app.handle(name, lambda task: None)
        with pytest.raises(ValueError, match=text):
            app.task(name)(lambda: None)
    with pytest.raises(ValueError, match=r"^task name 'a' is already"):
        app.task("a")(lambda: None)
    with pytest.raises(TypeError, match="must be a sequence of names, not the one text 'old'"):
        app.task("c", aliases="old")(lambda: None)
    with pytest.raises(ValueError, match="task name must contain"):
        app.task(" ")(lambda: None)


def test_a_typed_task_may_be_kept_out_of_threads(app: App) -> None:
    app.task("alone", aliases=["old"], threads=False)(lambda: None)
    app.task("beside")(lambda: None)
    assert app.alone() == {"alone\0", "old\0"}


def test_middleware_is_around_typed_tasks(app: App) -> None:
    seen: list[str] = []

    @app.around
    @contextmanager
    def told(task: RunningTask) -> Iterator[None]:
        seen.append(task.type)
        yield

    @app.task("t")
    def job() -> None: ...

    run_task(app, job.task())
    assert seen == ["t"]


# Several apps


def test_an_included_app_brings_its_tasks_and_uses_the_client_of_the_other(app: App, db: Redis) -> None:
    images = App()

    @images.task("images.crop")
    def crop(id: int) -> int:
        return id

    app.include(images)
    assert list(app.tasks) == ["images.crop"]
    assert crop.enqueue(7).type == "images.crop"
    assert db.llen("asynq:{default}:pending") == 1
    assert run_task(app, crop.task(7), retention=60).json() == 7
    assert run_task(app, "images.crop2", {"id": 7}).outcome is RunOutcome.RETRY


def test_an_included_app_with_a_url_keeps_its_client(app: App, url: str) -> None:
    images = App(url)
    app.include(images)
    assert images.client is not app.client
    assert images.async_client is not app.async_client
    images.close()


@pytest.mark.parametrize("ours_is_typed", [True, False])
def test_a_name_that_both_have_is_refused(app: App, ours_is_typed: bool) -> None:
    images: ServeMux = App() if not ours_is_typed else ServeMux()
    for one, is_typed in ((app, ours_is_typed), (images, not ours_is_typed)):
        if isinstance(one, App) and is_typed:
            one.task("a")(lambda: None)
        else:
            one.handle("a", lambda task: None)
    with pytest.raises(ValueError, match="pattern 'a' is in both"):
        app.include(images)


def test_a_mux_is_included_as_it_is(app: App) -> None:
    mux = ServeMux()
    mux.handle("raw", lambda task: len(task.payload))
    app.include(mux)
    assert run_task(app, "raw", b"abc", retention=60).json() == 3


# Periodic tasks


def test_a_periodic_task_has_a_spec_and_needs_no_arguments(app: App) -> None:
    inner = App()

    @inner.task("nightly", cron="0 6 * * *")
    def nightly(day: int = 0) -> None: ...

    app.include(inner)
    assert app.crons == {"nightly": "0 6 * * *"}

    def needy(day: int) -> None: ...

    with pytest.raises(TypeError, match=r"task 'needy' .*missing a required argument: 'day'"):
        app.task("needy", cron="@daily")(needy)
    with pytest.raises(CronSpecError, match="position 2"):
        app.task("bad", cron="0 77 * * *")(nightly)
    assert list(app.tasks) == ["nightly"]


# What others pay


def test_who_uses_no_app_does_not_import_what_it_needs() -> None:
    code = "import sys, fastq.worker.child.handler_runner; print({'msgspec', 'fastq.app'} & sys.modules.keys())"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_pydantic_is_not_imported_where_no_model_is_used() -> None:
    code = "import sys, fastq; fastq.App().task('t')(lambda: None); print('pydantic' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_an_inline_client_runs_typed_tasks(app: App) -> None:
    @app.task("t")
    def job(id: int) -> str:
        return json.dumps(id)

    client = InlineClient(app)
    client.enqueue(job.task(7))
    assert [run.type for run in client.runs] == ["t"]
