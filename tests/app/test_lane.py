"""Typed tasks whose lane is made of their arguments."""

import re
from typing import Any

import pytest
from redis import Redis

from fastq import App
from fastq.wire import keys


def lanes(db: Redis) -> dict[str, set[str]]:
    """Return the ids in each lane."""
    at: Any = db
    names = [name.decode() for name in at.smembers(keys.groups("default"))]
    return {name: {id.decode() for id in at.zrange(keys.group("default", name), 0, -1)} for name in names}


@pytest.fixture
def app(url: str) -> App:
    return App(url)


def test_the_lane_is_made_of_the_arguments(app: App, db: Redis) -> None:
    @app.task(lane="openai:{tenant}-{shard}")
    def ask(prompt: str, tenant: str, shard: int = 0) -> None: ...

    ids = [ask.enqueue("hi", tenant).id for tenant in ("acme", "umbrella")]
    ids.append(ask.enqueue("hi", shard=7, tenant="acme").id)
    assert lanes(db) == {"openai:acme-0": {ids[0]}, "openai:umbrella-0": {ids[1]}, "openai:acme-7": {ids[2]}}
    ask.enqueue_many(ask.task("x", "acme") for _ in range(2))
    assert len(lanes(db)["openai:acme-0"]) == 3


def test_options_may_have_another_lane(app: App, db: Redis) -> None:
    @app.task(lane="{host}")
    def fetch(host: str, path: str) -> None: ...

    fetch.options(lane="slow").enqueue("a", "b")
    fetch.options(lane="slow:{path}").enqueue("a", "b")
    fetch.options(lane="many:{path}").enqueue_many([fetch.task("a", "c")])
    fetch.options(max_retry=1).enqueue("a", "b")
    fetch.options(lane="slow").enqueue_many([fetch.task("a", "c")])
    assert {name: len(ids) for name, ids in lanes(db).items()} == {"slow": 2, "slow:b": 1, "many:c": 1, "a": 1}


def test_a_lane_for_all_calls_is_an_option_as_others(app: App, db: Redis) -> None:
    @app.task(lane="sms")
    def sms(number: str) -> None: ...

    assert sms.task_options["lane"] == "sms"
    sms.enqueue("7")
    assert list(lanes(db)) == ["sms"]


@pytest.mark.parametrize(
    ("lane", "said"),
    [
        ("{nobody}", "the lane of task 't' names 'nobody', its arguments are: tenant, size"),
        ("{tenant.name}", "names 'tenant.name'"),
        ("{tenant:>9}", "the lane of task 't' takes names of arguments alone in its braces: '{tenant:>9}'"),
        ("{tenant!r}", "names of arguments alone"),
        ("{}", "names ''"),
        ("{tenant", "the lane of task 't' is malformed: expected '}' before end of string: '{tenant'"),
        ("{tenant}:*", "lane"),
    ],
)
def test_a_template_that_is_wrong_is_said_at_the_registration(app: App, lane: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):

        @app.task("t", lane=lane)
        def task(tenant: str, size: float) -> None: ...


def test_an_argument_that_names_no_lane_is_said_before_anything_is_sent(app: App, db: Redis) -> None:
    @app.task("t", lane="{tenant}")
    def task(tenant: Any) -> None: ...

    with pytest.raises(ValueError, match="the lane of task 't' needs an argument 'tenant' that is not empty"):
        task.enqueue("")
    for wrong in (None, 1.5, True, ["x"]):
        with pytest.raises(TypeError, match="the lane of task 't' takes a str, an int or a UUID as 'tenant', not"):
            task.enqueue(wrong)
    with pytest.raises(ValueError, match="lane"):
        task.enqueue("x" * 201)
    assert db.keys("*") == []


@pytest.mark.parametrize("other", [{"key": "{tenant}"}, {"group": "g"}])
def test_what_excludes_a_lane_is_said_at_the_registration(app: App, other: Any) -> None:
    def task(tenant: str) -> None: ...

    with pytest.raises(ValueError, match="lane"):
        app.task("t", lane="{tenant}", **other)(task)
    with pytest.raises(ValueError, match="lane"):
        app.task("t", lane="{tenant}")(task).options(**other)
