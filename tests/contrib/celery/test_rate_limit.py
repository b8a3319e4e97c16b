"""Celery's ``rate_limit``: a lane of the task's name, whose rate all workers keep together."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from fastq import Inspector, Limit
from fastq.contrib.celery import Celery
from fastq.contrib.celery.options import settings_of


@pytest.fixture
def app(url: str) -> Iterator[Celery]:
    app = Celery("shop", broker=url)
    yield app
    app.client.close()


@pytest.mark.parametrize(
    ("rate_limit", "rate"),
    [("10/m", "10/m"), ("5/s", "5/s"), ("100/h", "100/h"), ("7", "7/s"), (3, "3/s"), (0.5, "30/m"), ("0.5/m", "30/h")],
)
def test_a_rate_is_read_as_celery_does(rate_limit: Any, rate: str) -> None:
    assert settings_of("t", {"rate_limit": rate_limit}).limit == Limit(rate=rate)


@pytest.mark.parametrize("rate_limit", [None, 0, "0", "0/m"])
def test_no_rate_is_no_lane(rate_limit: Any, app: Celery, db: Redis) -> None:
    @app.task(name="free", rate_limit=rate_limit)
    def free() -> None: ...

    assert app.child_hooks() == ((), ())
    assert app.message("free").options.get("lane") is None


@pytest.mark.parametrize("rate_limit", ["fast", "10/w", "-1/s", True, "nan/s", [1]])
def test_a_rate_that_cannot_be_read_is_named(rate_limit: Any, app: Celery) -> None:
    said = f"task 't': rate_limit must be a number a second, or such as '10/m', not {rate_limit!r}"
    with pytest.raises(ValueError, match=re.escape(said)):
        app.task(name="t", rate_limit=rate_limit)(print)


def test_a_task_waits_in_a_lane_of_its_name(app: Celery, db: Redis, url: str) -> None:
    @app.task(name="mail", rate_limit="10/m", queue="mails")
    def mail(to: str) -> None: ...

    @app.task(name="other", rate_limit="5/s")
    def other() -> None: ...

    (hook,) = app.child_hooks()[0]
    hook()
    mail.delay("ann")
    app.send_task("mail", ["bob"], queue="elsewhere")
    with Inspector(url) as inspector:
        found = inspector.get_lane("mails", "mail")
        assert (found.limit, found.waiting) == (Limit(rate="10/m"), 1)
        assert inspector.get_lane("default", "other").limit == Limit(rate="5/s")
        assert inspector.get_lane("elsewhere", "mail").limit == Limit(), "a queue has limits of its own"
