"""What is said of an app whose tasks do not come to its server."""

import logging
from collections.abc import Mapping

import pytest

from fastq import App, ServeMux
from fastq.server.wiring.destinations import log_unserved, refusal_of
from fastq.worker.shared.description import AppDescription

HERE = "redis://127.0.0.1:6379/0"
AWAY = "redis://:secret@db.example:6380/1"


def described(*apps: App) -> AppDescription:
    """Return what a server learns of these, included one in the other."""
    outer = App()
    for app in apps:
        outer.include(app)
    return AppDescription.decode(AppDescription.of(outer).encode())


def app_with(*names: str, redis: str | None = None, **queues: str) -> App:
    app = App(redis)
    for name in names:
        app.task(name, queue=queues.get(name))(lambda: None)
    return app


def said(
    caplog: pytest.LogCaptureFixture,
    app: AppDescription,
    redis: str | None = HERE,
    queues: Mapping[str, int] | None = None,
) -> list[tuple[str, str]]:
    caplog.clear()
    caplog.set_level(logging.INFO, "fastq")
    log_unserved("jobs:app", app, redis, {"default": 1} if queues is None else queues)
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_a_description_tells_patterns_queues_and_urls() -> None:
    app = app_with("a", "b", "c", redis=AWAY, b="low")
    app.handle("raw:", lambda task: None)
    assert described(app) == AppDescription(
        {"a\0": False, "b\0": False, "c\0": False, "raw:": False}, {"default": ["a", "c"], "low": ["b"]}, [AWAY]
    )
    assert AppDescription.of(ServeMux()).queues == {}
    many = AppDescription.of(app_with(*map(str, range(100))))
    assert many.queues == {"default": ["0", "1", "2", "3"]}


def test_a_bad_url_is_refused_by_its_app() -> None:
    with pytest.raises(ValueError, match="bad Redis URI 'http://x'"):
        App("http://x")


def test_a_server_that_was_given_no_redis_refuses_an_app_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTQ_REDIS_URL", raising=False)
    monkeypatch.delenv("FASTQ_REDIS", raising=False)
    away = described(app_with("a", redis=AWAY))
    text = refusal_of("jobs:app", away, None)
    assert text.startswith("jobs:app enqueues into redis://:***@db.example:6380/1, but this worker was given no Redis ")
    assert HERE in text
    assert "--redis or $FASTQ_REDIS_URL" in text
    assert refusal_of("jobs:app", described(app_with("a", redis="redis://localhost")), None) == ""
    assert refusal_of("jobs:app", described(app_with("a")), None) == ""
    assert refusal_of("jobs:app", away, HERE) == ""
    monkeypatch.setenv("FASTQ_REDIS_URL", HERE)
    assert refusal_of("jobs:app", away, None) == ""


def test_an_app_of_another_redis_than_the_one_that_was_given_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    ((level, text),) = said(caplog, described(app_with("a"), app_with("b", redis=AWAY)))
    assert level == "WARNING"
    assert text.startswith(
        f"jobs:app enqueues into redis://:***@db.example:6380/1, but this worker takes tasks from {HERE}, so it does "
    )


@pytest.mark.parametrize(
    ("app", "server", "is_same"),
    [
        (HERE, "redis://user:pw@localhost:6379", True),
        (HERE, "redis://127.0.0.1:6380", False),
        (HERE, "redis://127.0.0.1:6379/1", False),
        (HERE, "unix:///run/redis.sock", False),
        ("redis-socket:///run/redis.sock", "unix:///run/redis.sock", True),
        ("redis-cluster://a,b", "redis-cluster://b,c", True),
        ("redis-cluster://a,b", "redis-cluster://c", False),
        ("redis-sentinel://a,b?master=m", "redis-sentinel://b?master=m", True),
        ("redis-sentinel://a,b?master=m", "redis-sentinel://b?master=n", False),
    ],
)
def test_the_same_redis_may_be_named_otherwise(
    app: str, server: str, is_same: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert (said(caplog, described(app_with("a", redis=app)), server) == []) is is_same


def test_queues_that_are_not_served_are_named_with_the_flag(caplog: pytest.LogCaptureFixture) -> None:
    some = described(app_with("a", "b", "c", b="low", c="low"))
    assert said(caplog, some) == [
        (
            "INFO",
            "jobs:app also has tasks in queues that this worker does not serve: low (b, c); another worker must, "
            "or this one with --queues default=1,low=1",
        )
    ]
    assert said(caplog, some, queues={"low": 2, "default": 1}) == []
    none = described(app_with("a", "b", a="media", b="low"))
    ((level, text),) = said(caplog, none)
    assert level == "WARNING"
    assert text == (
        "this worker serves default, but all typed tasks of jobs:app are enqueued into other queues: media (a); "
        "low (b); start it with --queues media,low"
    )
    assert said(caplog, AppDescription.of(ServeMux())) == []
