"""A scheduler that does as its provider says."""

import itertools
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from fastq import PeriodicTaskConfig, PeriodicTaskManager, ServerClosedError, ServerStartError, Task, TaskInfo
from fastq.wire import keys
from fastq.wire.messages import SchedulerEntry
from fastq.wire.records import decode_scheduler_entry
from tests.waiting import PATIENCE_S, wait_until

Config = PeriodicTaskConfig


class Provider:
    """Return, or raise, what it was told to; ``asked`` counts. A function is called for an answer each time."""

    def __init__(self, *configs: Config) -> None:
        self.answer: Any = list(configs)
        self.asked = 0

    def __call__(self) -> Any:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer


@pytest.fixture
def provider() -> Provider:
    return Provider(Config("@daily", "a"), Config("@hourly", Task("b", b"x"), {"queue": "low"}))


@pytest.fixture
def manager(url: str, provider: Provider) -> Iterator[PeriodicTaskManager]:
    with PeriodicTaskManager(provider, url) as manager:
        yield manager


def entries(db: Redis) -> dict[str, SchedulerEntry]:
    """Return what is published, by id."""
    members: Any = db.zrange(keys.all_schedulers(), 0, -1)
    found: Any = [data for member in members for data in db.lrange(member, 0, -1)]
    return {entry.id: entry for entry in map(decode_scheduler_entry, found)}


def threads() -> set[threading.Thread]:
    """Return the threads of the managers that live now."""
    return {thread for thread in threading.enumerate() if thread.name == "fastq periodic"}


def published(db: Redis, *types: str) -> dict[str, SchedulerEntry]:
    """Wait until entries of these types are published, and no others; return them by id."""
    wait_until(lambda: sorted(entry.task_type for entry in entries(db).values()) == sorted(types), PATIENCE_S)
    return entries(db)


def test_what_the_provider_says_is_registered(manager: PeriodicTaskManager, db: Redis) -> None:
    found = {entry.task_type: entry for entry in published(db, "a", "b").values()}
    assert (found["b"].spec, found["b"].task_payload, found["b"].enqueue_options) == (
        "@hourly",
        b"x",
        ('Queue("low")',),
    )


def test_a_sync_removes_what_is_gone_adds_what_is_new_and_leaves_the_rest(
    manager: PeriodicTaskManager, provider: Provider, db: Redis
) -> None:
    before = published(db, "a", "b")
    provider.answer = (config for config in [Config("@daily", "a"), Config("@weekly", "c")])
    manager.sync()
    after = published(db, "a", "c")
    kept = before.keys() & after.keys()
    assert [after[entry_id].task_type for entry_id in kept] == ["a"]
    provider.answer = []
    manager.sync()
    assert published(db) == {}


@pytest.mark.parametrize(
    "changed",
    [
        Config("0 0 * * *", "a"),
        Config("@daily", Task("a", b"x")),
        Config("@daily", "a", {"queue": "low"}),
        Config("@daily", "a", name="n"),
        Config("@daily", "a", tz="Europe/Paris"),
        Config("@daily", "a", missed="once"),
        Config("@daily", Task("a", headers={"k": "v"})),
        Config("@daily", Task("a", max_retry=1)),
        Config("@daily", Task("a", b"")),
        Config("@daily", "a", {"unique": 60, "unique_key": "k"}),
    ],
    ids=str,
)
def test_any_change_makes_another_entry(url: str, db: Redis, changed: Config) -> None:
    provider = Provider(Config("@daily", "a"))
    with PeriodicTaskManager(provider, url) as manager:
        before = published(db, "a").keys()
        provider.answer = [changed]
        manager.sync()
        wait_until(lambda: entries(db).keys() - before and not entries(db).keys() & before, PATIENCE_S)
        assert len(entries(db)) == 1


def test_what_only_looks_different_is_the_same_entry(url: str, db: Redis) -> None:
    provider = Provider(Config("@daily", "a", {"queue": "low", "timeout": 60}))
    with PeriodicTaskManager(provider, url) as manager:
        before = published(db, "a")
        provider.answer = [Config("@daily", Task("a"), {"timeout": timedelta(minutes=1), "queue": "low"})]
        manager.sync()
        provider.answer.append(Config("@daily", "b"))
        manager.sync()
        assert before.keys() < published(db, "a", "b").keys()


def test_what_is_configured_twice_is_registered_twice_and_removed_twice(
    manager: PeriodicTaskManager, provider: Provider, db: Redis
) -> None:
    """asynq remembers one of them only, and never removes the other."""
    provider.answer = [Config("@daily", "a"), Config("@daily", "a")]
    manager.sync()
    published(db, "a", "a")
    provider.answer.pop()
    manager.sync()
    published(db, "a")
    provider.answer.pop()
    manager.sync()
    published(db)


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("the database is away"),
        None,
        5,
        "@daily",
        {"cronspec": "@daily"},
        [Config("@weekly", "c"), None],
        [Config("@weekly", "c"), ("@daily", "t")],
        pytest.param(lambda: (1 / zero for zero in [1, 0]), id="a generator that raises"),
    ],
    ids=str,
)
def test_a_provider_that_fails_or_talks_nonsense_changes_nothing_and_is_heard(
    url: str, db: Redis, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider(Config("@daily", "a"))
    with PeriodicTaskManager(provider, url, sync_interval=0.1):
        before = published(db, "a")
        provider.answer = answer
        wait_until(lambda: "the provider failed; keeping its last entries: " in caplog.text, PATIENCE_S)
        provider.answer = [Config("@daily", "a"), Config("@weekly", "d")]
        after = published(db, "a", "d")
        assert before.keys() < after.keys()


def test_the_provider_is_asked_again_every_interval(url: str, db: Redis) -> None:
    provider, others = Provider(), threads()
    with PeriodicTaskManager(provider, url, sync_interval=timedelta(milliseconds=100)):
        wait_until(lambda: provider.asked >= 3, PATIENCE_S)
        provider.answer = [Config("@daily", "late")]
        published(db, "late")
    assert threads() <= others
    left: Any = db.keys("asynq:scheduler*")
    assert left == []


def test_a_config_that_cannot_be_registered_is_said_once_and_tried_again(
    url: str, db: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [
        Config("0 0 * * 7", "spec"),
        Config("@daily", "zone", tz="Mars"),
        Config("@daily", "option", {"colour": 1}),  # type: ignore[typeddict-unknown-key]  # refused
        Config("@daily", "value", {"timeout": "x"}),  # type: ignore[typeddict-item]  # refused
        Config("@daily", "headers", {"headers": [("a", "1")]}),  # type: ignore[typeddict-item]  # refused
        Config("@daily", " "),
        Config("@daily", "first", name="n"),
        Config("@daily", "second", name="n"),
    ]
    provider = Provider(*bad, Config("@daily", "good"))
    with PeriodicTaskManager(provider, url) as manager:
        published(db, "first", "good")
        manager.sync()
        assert caplog.text.count("cannot be registered") == 7
        assert "position 8: day of the week: '7' is outside 0-6" in caplog.text
        assert "name 'n' is already taken by another entry" in caplog.text
        del provider.answer[6]
        manager.sync()
        published(db, "second", "good")


def test_the_end_does_not_wait_for_a_provider_that_hangs(
    url: str, db: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fastq.scheduler.periodic.PROVIDER_MAY_TAKE_S", 0.01)
    hanging, released, calls, others = threading.Event(), threading.Event(), itertools.count(), threads()

    def provider() -> list[Config]:
        if next(calls):
            hanging.set()
            released.wait(PATIENCE_S)
        return [Config("@daily", "a"), Config("@weekly", str(next(calls)))]

    with PeriodicTaskManager(provider, url, sync_interval=0.1):
        assert hanging.wait(PATIENCE_S)
    assert "shutting down without waiting for it" in caplog.text
    released.set()
    wait_until(lambda: threads() <= others, PATIENCE_S)
    assert "the provider failed" not in caplog.text
    left: Any = db.keys("asynq:scheduler*")
    assert left == []


@pytest.mark.parametrize("answer", [RuntimeError("away"), None, [None]], ids=str)
def test_a_provider_that_fails_at_the_start_prevents_it(url: str, db: Redis, answer: Any) -> None:
    provider = Provider()
    provider.answer = answer
    manager = PeriodicTaskManager(provider, url)
    with pytest.raises(ServerStartError, match=r"the provider failed at the start: (RuntimeError|TypeError): "):
        manager.start()
    provider.answer = [Config("@daily", "a")]
    manager.start()
    published(db, "a")
    manager.shutdown()


def test_it_begins_once_and_ends_once(manager: PeriodicTaskManager) -> None:
    manager.ping()
    with pytest.raises(RuntimeError, match="already running"):
        manager.start()
    manager.shutdown()
    manager.shutdown()
    with pytest.raises(ServerClosedError, match="was shut down"):
        manager.start()


def test_it_enqueues(url: str, db: Redis) -> None:
    enqueued = threading.Event()

    def post_enqueue(info: TaskInfo | None, error: Exception | None) -> None:
        assert error is None
        enqueued.set()

    provider = Provider(Config("@every 1s", "t", {"queue": "low"}))
    with PeriodicTaskManager(provider, url, heartbeat_interval=5, location="Europe/Paris", post_enqueue=post_enqueue):
        assert enqueued.wait(PATIENCE_S)
    assert db.llen(keys.pending("low"))


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ({"provider": None}, TypeError, "provider must be a callable that returns the configurations, not None"),
        ({"sync_interval": 0}, ValueError, "sync_interval must be at least 0.1 seconds: 0"),
        ({"sync_interval": "3m"}, TypeError, "sync_interval must be a timedelta or seconds, not '3m'"),
        ({"location": "Mars"}, ValueError, "unknown time zone 'Mars'"),
        ({"colour": "red"}, TypeError, "unexpected keyword argument 'colour'"),
    ],
)
def test_what_makes_no_manager_is_refused_by_name(how: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        PeriodicTaskManager(**{"provider": list, **how})


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        (("", "t"), ValueError, "cronspec must not be empty"),
        ((None, "t"), TypeError, "cronspec must be a str, not None"),
        (("@daily", None), TypeError, "task must be a fastq.Task or a type name, not None"),
        (("@daily", "t", ["x"]), TypeError, "options must be a mapping, not ['x']"),
    ],
)
def test_what_makes_no_config_is_refused_by_name(how: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        Config(*how)
