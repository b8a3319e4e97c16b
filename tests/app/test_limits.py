"""``App.limit``: what an app says of lanes when its workers start, and what it leaves alone."""

import re
from typing import Any

import pytest
from redis import Redis

from fastq import App, Client, Inspector, Limit
from fastq.wire import keys


def start(app: App) -> None:
    """Do what each child does before its first task."""
    for hook in app.child_hooks()[0]:
        hook()


def rules(db: Redis, queue: str = "default") -> dict[str, str]:
    found: Any = db.hgetall(keys.limits(queue))
    return {name.decode(): rule.decode() for name, rule in found.items()}


def test_limits_are_set_when_a_worker_starts(db: Redis, url: str) -> None:
    app = App(url)
    app.limit("*", concurrency=2, rate="5/s")
    app.limit("openai:*", queue="llm", concurrency=50)
    app.limit(None, queue="llm", concurrency=100)
    assert rules(db) == {}
    start(app)
    assert rules(db) == {"*": "2:200000:1:1"}
    assert rules(db, "llm") == {"openai:*": "50:0:1:1", "": "100:0:1:1"}


def test_a_change_at_run_time_outlives_the_next_start(db: Redis, url: str) -> None:
    app = App(url)
    app.limit("acme", concurrency=2)
    start(app)
    with Client(url) as client:
        client.set_limit("default", "acme", concurrency=8)
    start(app)
    assert rules(db) == {"acme": "8:0:1:1"}
    with Inspector(url) as inspector:
        inspector.set_limit("default", "acme", None)
    start(app)
    assert rules(db) == {}


def test_another_limit_in_the_code_is_set(db: Redis, url: str) -> None:
    for concurrency in (2, 3):
        app = App(url)
        app.limit("acme", concurrency=concurrency)
        start(app)
        with Inspector(url) as inspector:
            assert inspector.get_lane("default", "acme").limit == Limit(concurrency)
            if concurrency == 2:
                inspector.pause_lane("default", "acme")
    assert rules(db) == {"acme": "3:0:1:1:paused"}


def test_an_included_app_has_the_redis_of_the_outer_one(db: Redis, url: str) -> None:
    inner, outer = App(), App(url)
    inner.limit("acme", concurrency=2)
    outer.include(inner)
    start(outer)
    assert rules(db) == {"acme": "2:0:1:1"}


def test_a_limit_that_is_wrong_is_said_at_once() -> None:
    app = App()
    with pytest.raises(ValueError, match="rate '5' is not a number of tasks in a time"):
        app.limit("acme", rate="5")
    with pytest.raises(TypeError, match="unexpected keyword argument 'per'"):
        app.limit("acme", per=5)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=re.escape("queue must not contain '}'")):
        app.limit("acme", queue="a}", concurrency=1)
    app.limit("acme", concurrency=1)
    with pytest.raises(ValueError, match="the app limits 'acme' of queue 'default' twice"):
        app.limit("acme", concurrency=2)
    assert len(app.child_hooks()[0]) == 1


def test_an_app_without_limits_has_no_hook() -> None:
    assert App().child_hooks() == ((), ())
