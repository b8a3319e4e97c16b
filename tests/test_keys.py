"""Tasks by key and locks with other ends, as users meet them: clients, typed tasks, inline, drain, schedulers."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from fastq import (
    App,
    AsyncClient,
    Client,
    DuplicateTaskError,
    KeyOutcome,
    RunningTask,
    ServeMux,
    SkipRetry,
    Task,
    TaskIDConflictError,
    TaskInfo,
    TaskState,
)
from fastq.broker.operations.enqueue import EnqueueBatch, EnqueueOutcome, NewTask
from fastq.broker.operations.keyed import Found, KeyTerms
from fastq.broker.operations.maintain import forward
from fastq.broker.operations.ticks import NamedTick, enqueue_tick
from fastq.cron.parse import parse
from fastq.inspector import Inspector
from fastq.scheduler.composing import compose_tick
from fastq.scheduler.entry import Entry, check_registration
from fastq.testing import InlineClient, RunOutcome, drain
from fastq.wire import keys
from fastq.wire.codec import decode_task_message
from tests.broker.harness import NOW_NS, NOW_S, message, queue_bench


def stored(db: Redis, task_id: str) -> Any:
    data: Any = db.hget(keys.task("default", task_id), "msg")
    return decode_task_message(data)


# Clients


def test_the_info_says_what_became_of_it(db: Redis, url: str) -> None:
    with Client(url) as client:
        first = client.enqueue("sync", 1, key="sync:42", process_in=3600)
        kept = client.enqueue("sync", 2, key="sync:42")
        replaced = client.enqueue("sync", 3, key="sync:42", if_there="rerun")
        postponed = client.enqueue("sync", 4, key="sync:42", if_there="postpone", process_in=7200, latest=5000)
    assert (first.id, first.key_outcome, first.state) == ("sync:42", "put", TaskState.SCHEDULED)
    assert (kept.key_outcome, kept.state) == (KeyOutcome.KEPT, TaskState.SCHEDULED)
    assert (replaced.key_outcome, replaced.state) == (KeyOutcome.REPLACED, TaskState.SCHEDULED)
    assert (postponed.key_outcome, postponed.state) == (KeyOutcome.POSTPONED, TaskState.SCHEDULED)
    assert first.next_process_at is not None
    assert postponed.next_process_at is not None
    assert 1390 < (postponed.next_process_at - first.next_process_at).total_seconds() < 1410
    assert stored(db, "sync:42").payload == b"4"


def test_other_tasks_have_no_such_outcome(url: str) -> None:
    with Client(url) as client:
        assert client.enqueue("sync").key_outcome is None


def test_many_by_key_with_others_between_them(db: Redis, url: str) -> None:
    tasks = [
        Task("sync", 1, key="a"),
        Task("other"),
        Task("sync", 2, key="a", if_there="replace"),
        Task("sync", 3, key="b", process_in=60),
        Task("sync", 4, key="a"),
    ]
    with Client(url) as client:
        results = client.enqueue_many(tasks)
        outcomes = [one.key_outcome for one in results if isinstance(one, TaskInfo)]
        assert outcomes == ["put", None, "replaced", "put", "kept"]
        assert (results.enqueued, list(results.errors())) == (5, [])
    assert stored(db, "a").payload == b"2"
    with Inspector(url) as inspector:
        assert {one.id for one in inspector.list_pending_tasks("default")} >= {"a"}


def test_a_task_of_another_kind_under_the_key_is_a_conflict(url: str) -> None:
    with Client(url) as client:
        client.enqueue("part", task_id="a", group="g")
        with pytest.raises(TaskIDConflictError):
            client.enqueue("sync", key="a", if_there="replace")
        assert client.enqueue("sync", key="a").key_outcome == "kept"


def test_what_replaces_a_scheduled_task_does_not_get_its_group(db: Redis, url: str) -> None:
    with Client(url) as client:
        client.enqueue("sync", 1, task_id="k", process_in=3600, group="earlier")
        assert client.enqueue("sync", 2, key="k", if_there="replace").key_outcome == KeyOutcome.REPLACED
    with queue_bench(db, url, "default") as bench:
        assert bench.run(forward("default", time.time_ns() + 7200 * 10**9, 10)).taken == 1
    assert db.lrange(keys.pending("default"), 0, -1) == [b"k"]


def test_the_async_client_does_the_same(url: str) -> None:
    async def test() -> None:
        async with AsyncClient(url) as client:
            assert (await client.enqueue("sync", 1, key="a")).key_outcome == "put"
            results = await client.enqueue_many([Task("sync", 2)], key="a", if_there="replace")
            assert isinstance(results[0], TaskInfo)
            assert results[0].key_outcome == "replaced"

    asyncio.run(test())


def test_a_task_with_a_key_is_not_submitted(url: str) -> None:
    with Client(url) as client, pytest.raises(ValueError, match="a task with a key, 'a', cannot be submitted"):
        client.submit("sync", key="a")


def test_headers_that_are_copied_from_a_running_task_are_its_own(db: Redis, url: str) -> None:
    with Client(url) as client:
        headers = client.enqueue("sync", key="a", headers={"trace": "7"}).headers
        assert set(headers) == {"trace", "fastq-key"}
        client.enqueue("sync", task_id="b", headers=headers)
    assert stored(db, "b").headers == {"trace": "7"}


# Locks


def test_a_lock_until_its_expiry_outlasts_the_run(db: Redis, url: str) -> None:
    mux: ServeMux = ServeMux()
    mux.handle("sync", lambda task: None)
    with Client(url) as client:
        info = client.enqueue("sync", unique=3600, until="expiry")
        (lock,) = db.keys("asynq:{default}:unique:*")
        assert (db.get(lock), stored(db, info.id).unique_key) == (info.id.encode(), "")
        assert [run.outcome for run in drain(mux, url)] == [RunOutcome.DONE]
        with pytest.raises(DuplicateTaskError):
            client.enqueue("sync", unique=3600, until="expiry")


def test_a_lock_that_ends_at_the_start_lets_the_handler_enqueue_the_next(db: Redis, url: str) -> None:
    mux: ServeMux = ServeMux()

    @mux.handler("sync")
    def sync(task: RunningTask) -> None:
        if len(ran) < 3:
            ran.append(task.id)
            client.enqueue("sync", unique=3600, until="start")

    ran: list[str] = []
    with Client(url) as client:
        client.enqueue("sync", unique=3600, until="start")
        assert len(drain(mux, url)) == 4
    assert db.keys("asynq:{default}:unique:*") == []


@pytest.mark.parametrize(("until", "locks"), [("done", 1), ("end", 0)])
def test_a_lock_until_the_end_does_not_outlast_the_archive(db: Redis, url: str, until: Any, locks: int) -> None:
    mux: ServeMux = ServeMux()
    mux.handle("sync", skip)
    with Client(url) as client:
        client.enqueue("sync", unique=3600, until=until)
        assert [run.outcome for run in drain(mux, url)] == [RunOutcome.ARCHIVE]
    assert len(db.keys("asynq:{default}:unique:*")) == locks


def skip(task: RunningTask) -> None:
    raise SkipRetry


def _of_all(act: str) -> Callable[[Inspector, str, TaskState], object]:
    return lambda inspector, _, state: getattr(inspector, f"{act}_all_tasks")(
        "default", state, group="g" if state is TaskState.AGGREGATING else None
    )


ACTS: dict[str, Callable[[Inspector, str, TaskState], object]] = {
    "archive": lambda inspector, task_id, _: inspector.archive_task("default", task_id),
    "archive all": _of_all("archive"),
    "delete": lambda inspector, task_id, _: inspector.delete_task("default", task_id),
    "delete all": _of_all("delete"),
}


@pytest.mark.parametrize("options", [{}, {"process_in": 600}, {"group": "g"}], ids=str)
@pytest.mark.parametrize("until", ["done", "start", "end", "expiry"])
@pytest.mark.parametrize("act", ACTS)
def test_an_inspector_ends_locks_as_the_page_says(db: Redis, url: str, act: str, until: Any, options: Any) -> None:
    with Client(url) as client, Inspector(url) as inspector:
        # Bytes in a payload are no header.
        payload = b"z\x12\n\x0bfastq-until\x12\x03end"
        info = client.enqueue("sync", payload, unique=3600, until=until, **options)
        ACTS[act](inspector, info.id, info.state)
    kept = act.startswith("archive") and until in ("done", "expiry")
    assert len(db.keys("asynq:{default}:unique:*")) == kept


def test_all_tasks_with_locks_and_large_messages_are_archived(db: Redis, url: str) -> None:
    with Client(url) as client, Inspector(url) as inspector:
        for number in range(3):
            client.enqueue("sync", bytes(900_000), unique=3600, unique_key=str(number), until="end")
        before = db.info("commandstats")["cmdstat_evalsha"]["calls"]
        assert inspector.archive_all_tasks("default", TaskState.PENDING) == 3
        assert db.info("commandstats")["cmdstat_evalsha"]["calls"] - before == 2  # 1 MB a call
    assert db.keys("asynq:{default}:unique:*") == []


def test_an_inspector_leaves_the_lock_of_another_task(db: Redis, url: str) -> None:
    with Client(url) as client, Inspector(url) as inspector:
        info = client.enqueue("sync", unique=3600, until="end")
        (lock,) = db.keys("asynq:{default}:unique:*")
        db.set(lock, "another")
        inspector.archive_task("default", info.id)
    assert db.get(lock) == b"another"


@pytest.mark.parametrize("until", ["done", "start", "end", "expiry"])
def test_inline_locks_end_as_in_redis(until: Any) -> None:
    mux: ServeMux = ServeMux()
    mux.handle("sync", skip)
    client = InlineClient(mux)
    client.enqueue("sync", unique=3600, until=until)
    if until in ("start", "end"):
        client.enqueue("sync", unique=3600, until=until)
    else:
        with pytest.raises(DuplicateTaskError):
            client.enqueue("sync", unique=3600, until=until)


# Runs


def enqueue_thrice(client: Client) -> ServeMux:
    """Return a mux whose first run enqueues two more, by key and rerun."""
    mux: ServeMux = ServeMux()

    @mux.handler("sync")
    def sync(task: RunningTask) -> Any:
        if task.json() == 1:
            for payload in (2, 3):
                assert client.enqueue("sync", payload, key="a", if_there="rerun").key_outcome == "rerun"
            assert client.enqueue("sync", 4, key="a").key_outcome == "kept"
            assert client.enqueue("sync", 5, key="a", if_there="replace").key_outcome == "kept"
        return task.json()

    return mux


@pytest.mark.parametrize("retention", [0, 60])
def test_exactly_one_run_follows_with_the_newest(url: str, retention: int) -> None:
    with Client(url) as client:
        client.enqueue("sync", 1, key="a", if_there="rerun", retention=retention)
        assert [run.json() for run in drain(enqueue_thrice(client), url)] == [1, 3]


def test_inline_exactly_one_run_follows_with_the_newest() -> None:
    client = InlineClient(ServeMux())
    client.__init__(enqueue_thrice(client))  # type: ignore[misc]  # the mux enqueues through the client that has it
    assert client.enqueue("sync", 1, key="a", if_there="rerun").key_outcome == "put"
    assert [run.json() for run in client.runs] == [1, 3]
    assert client.enqueue("sync", 6, key="a").key_outcome == "put"


@pytest.mark.parametrize("policy", ["rerun", "postpone"])
def test_inline_a_run_that_follows_waits_for_its_time(policy: Any) -> None:
    mux: ServeMux = ServeMux()
    client = InlineClient(mux, raise_errors=True)

    @mux.handler("poll")
    def poll(task: RunningTask) -> None:
        assert len(client.runs) < 3, "it runs again at once"
        client.enqueue("poll", key="a", if_there=policy, process_in=60)

    client.enqueue("poll", key="a")
    assert len(client.runs) == 1
    assert [message.id for message in client.waiting] == ["a"]
    assert client.enqueue("poll", key="a").state is TaskState.SCHEDULED
    assert len(client.run_waiting()) == 1
    assert len(client.waiting) == 1


def test_inline_what_waits_is_kept_replaced_or_postponed() -> None:
    mux: ServeMux = ServeMux()
    mux.handle("sync", lambda task: task.json())
    client = InlineClient(mux)
    policies: list[Any] = ["keep", "keep", "replace", "postpone", "rerun"]
    said = [
        client.enqueue("sync", payload, key="a", if_there=policy, process_in=60).key_outcome
        for payload, policy in enumerate(policies)
    ]
    assert said == ["put", "kept", "replaced", "postponed", "replaced"]
    assert [run.json() for run in client.run_waiting()] == [4]


# Typed tasks


def test_a_key_is_filled_with_the_arguments_of_a_call() -> None:
    app = App()

    @app.task("sync", key="sync:{id}:{mode}", if_there="rerun")
    def sync(id: int, mode: str = "fast") -> None: ...

    assert sync.task(42).options["key"] == sync.task(id=42).options["key"] == "sync:42:fast"
    assert sync.options(key="other:{mode}").task(42, mode="x").options["key"] == "other:x"
    assert sync.options(key="many:{id}")._adopted(sync.task(7)).options["key"] == "many:7"
    client = InlineClient(app)
    assert client.enqueue(sync.task(42)).id == "sync:42:fast"
    assert [one.options["key"] for one in map(sync.options(max_retry=1)._adopted, [sync.task(7)])] == ["sync:7:fast"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"key": "sync:{no}"}, "the key of task 'sync' names 'no', its arguments are: id"),
        ({"key": "sync:{id"}, "the key of task 'sync' is malformed"),
        ({"key": "sync:{id:>3}"}, "takes names of arguments alone in its braces"),
        ({"key": "sync:{}"}, "names '', its arguments are: id"),
        ({"key": "sync:{id}", "unique": 60}, "does not go with unique"),
        ({"if_there": "rerun"}, "needs key="),
    ],
)
def test_a_key_is_checked_when_its_task_is_registered(options: Any, why: str) -> None:
    def sync(id: int) -> None: ...

    with pytest.raises(ValueError, match=why):
        App().task("sync", **options)(sync)


def test_an_argument_without_a_text_of_its_own_is_refused() -> None:
    app = App()

    @app.task("sync", key="sync:{ids}")
    def sync(ids: list[int]) -> None: ...

    with pytest.raises(TypeError, match="takes a str, an int or a UUID as 'ids', not list"):
        sync.task([1])


def test_an_empty_argument_makes_no_key() -> None:
    @App().task("sync", key="sync:{id}")
    def sync(id: str) -> None: ...

    with pytest.raises(ValueError, match="the key of task 'sync' needs an argument 'id' that is not empty"):
        sync.task("")


# Scheduler entries


@pytest.mark.parametrize("name", [None, "nightly"])
def test_an_entry_enqueues_by_its_key(name: str | None) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    task = Task("sync", key="k", if_there="rerun")
    entry = Entry(check_registration(parse("@every 60s"), task, {}, name, "skip"), now)
    made = compose_tick(entry, now + timedelta(seconds=60), NOW_NS)
    assert (made.info.id, made.batch.keyed, made.batch.tasks[0].id) == ("k", True, "k")


def test_a_tick_of_a_named_entry_puts_its_key_once(db: Redis, url: str) -> None:
    def ask(entry: str, due_s: int, payload: bytes) -> Any:
        task = NewTask("k", message("k", payload=payload), terms=KeyTerms("rerun", "mark"))
        tick = NamedTick("nightly", entry, due_s, 3600, "UTC @daily", 7200)
        return bench.run(enqueue_tick(tick, EnqueueBatch("default", TaskState.PENDING, [task], NOW_NS)))

    with queue_bench(db, url) as bench:
        assert ask("one", NOW_S, b"1") == Found(KeyOutcome.PUT)
        assert ask("one", NOW_S, b"2") == Found(KeyOutcome.PUT)  # the same call again
        assert ask("two", NOW_S, b"3") is EnqueueOutcome.TAKEN
        assert bench.message("k").payload == b"1"
        assert ask("two", NOW_S + 60, b"4") == Found(KeyOutcome.REPLACED, TaskState.PENDING)
        assert (bench.places(), bench.message("k").payload) == ({"pending": ["k"]}, b"4")
        assert bench.db.get(keys.last_tick("default", "nightly")) == f"{NOW_S + 60}:UTC @daily".encode()


# Exports and moves


def test_what_is_exported_and_moved_keeps_its_key(db: Redis, url: str) -> None:
    with Client(url) as client, Inspector(url) as inspector:
        client.enqueue("sync", 1, key="a", if_there="postpone", process_in=3600, latest=5000)
        lines = list(inspector.export_tasks("default"))
        inspector.delete_task("default", "a")
        inspector.import_tasks(lines)
        inspector.move_tasks("default", "other")
        found = client.enqueue("sync", 2, key="a", if_there="postpone", process_in=7200, latest=9999, queue="other")
        assert found.key_outcome == "postponed"
        assert found.next_process_at is not None
        first = inspector.get_task_info("other", "a")
        assert (first.next_process_at, first.payload) == (found.next_process_at, b"2")
        assert client.enqueue("sync", 3, key="a").key_outcome == "put"  # another queue, another key
