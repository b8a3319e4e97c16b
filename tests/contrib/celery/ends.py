"""Tasks that end in every way there is, for Celery and for fastq: each notes its runs in the file ENDS_LOG.

``main``, with ENDS_IMPL=celery and ENDS_URL, runs them with a worker of Celery, and prints their ends as ``ENDS`` has
them. That is how these were recorded, with Celery 5.7.0.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.waiting import wait_until

ENDS = {
    "add": ("SUCCESS", 1),
    "after_retries": ("SUCCESS", 3),
    "auto": ("FAILURE", 3),
    "auto_hard": ("FAILURE", 1),
    "auto_soft": ("FAILURE", 2),
    "by_name": ("FAILURE", 5),
    "died": ("FAILURE", 1),
    "expired": ("REVOKED", 0),
    "failed": ("FAILURE", 1),
    "hard": ("FAILURE", 1),
    "ignored": ("PENDING", 1),
    "late": ("SUCCESS", 1),
    "left": ("FAILURE", 1),
    "more_retries": ("FAILURE", 4),
    "no_json": ("FAILURE", 1),
    "rejected": ("FAILURE", 1),
    "rejected_and_retried": ("FAILURE", 4),
    "retried": ("FAILURE", 2),
    "retried_on_soft": ("FAILURE", 2),
    "soft": ("FAILURE", 1),
    "swallowed": ("SUCCESS", 3),
}
"""The state in which each task ends, and how often it ran."""

if os.environ.get("ENDS_IMPL") == "celery":
    URL = os.environ["ENDS_URL"]
    celery: Any = __import__("celery")
    exceptions: Any = __import__("celery.exceptions").exceptions
    app: Any = celery.Celery("ends", broker=URL, backend=URL)
    app.conf.update(broker_connection_retry_on_startup=True, worker_prefetch_multiplier=1)
else:
    import fastq.contrib.celery as exceptions
    from fastq.contrib.celery import Celery

    app = Celery("ends")

LONG_S = 600.0
SOON = {"default_retry_delay": 0.1}


def task(**settings: Any) -> Callable[[Callable[..., Any]], Any]:
    make: Callable[[Callable[..., Any]], Any] = app.task(**settings)
    return make


def note(name: str) -> None:
    with Path(os.environ["ENDS_LOG"]).open("a") as file:
        file.write(f"{name}\n")


def runs_of(name: str) -> int:
    return Path(os.environ["ENDS_LOG"]).read_text().split().count(name)


@task(name="add")
def add() -> int:
    note("add")
    return 5


@task(name="failed")
def failed() -> None:
    note("failed")
    raise ValueError


@task(name="soft", soft_time_limit=1)
def soft() -> None:
    note("soft")
    time.sleep(LONG_S)


@task(name="hard", time_limit=1)
def hard() -> None:
    note("hard")
    time.sleep(LONG_S)


@task(name="late", soft_time_limit=1)
def late() -> str:
    note("late")
    try:
        time.sleep(LONG_S)
    except exceptions.SoftTimeLimitExceeded:
        return "as far as it came"
    return "all"


@task(name="died", **SOON)
def died() -> None:
    note("died")
    os.kill(os.getpid(), signal.SIGKILL)


@task(name="left", autoretry_for=(Exception,), **SOON)
def left() -> None:
    note("left")
    sys.exit(1)


@task(name="auto", autoretry_for=(KeyError,), max_retries=2, **SOON)
def auto() -> None:
    note("auto")
    raise KeyError


@task(name="auto_soft", autoretry_for=(Exception,), retry_kwargs={"max_retries": 1, "countdown": 0}, soft_time_limit=1)
def auto_soft() -> None:
    note("auto_soft")
    time.sleep(LONG_S)


@task(name="auto_hard", autoretry_for=(Exception,), time_limit=1, **SOON)
def auto_hard() -> None:
    note("auto_hard")
    time.sleep(LONG_S)


@task(name="by_name", autoretry_for=(KeyError,), max_retries=4, **SOON)
def by_name() -> None:
    note("by_name")
    raise KeyError


@task(name="retried", bind=True, max_retries=1)
def retried(self: Any) -> None:
    note("retried")
    raise self.retry(exc=KeyError("no"), countdown=0)


@task(name="more_retries", bind=True, max_retries=1)
def more_retries(self: Any) -> None:
    note("more_retries")
    raise self.retry(exc=KeyError("no"), countdown=0, max_retries=3)


@task(name="after_retries", bind=True)
def after_retries(self: Any) -> int:
    note("after_retries")
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return 2


@task(name="retried_on_soft", bind=True, max_retries=1, soft_time_limit=1)
def retried_on_soft(self: Any) -> None:
    note("retried_on_soft")
    try:
        time.sleep(LONG_S)
    except exceptions.SoftTimeLimitExceeded as error:
        raise self.retry(exc=error, countdown=0) from None


@task(name="swallowed", bind=True, max_retries=2)
def swallowed(self: Any) -> str:
    note("swallowed")
    try:
        self.retry(countdown=0)
    except Exception:  # noqa: BLE001 - as tasks do it
        return "swallowed"
    return "never"


@task(name="rejected")
def rejected() -> None:
    note("rejected")
    raise exceptions.Reject("no", requeue=False)


@task(name="rejected_and_retried", autoretry_for=(Exception,), **SOON)
def rejected_and_retried() -> None:
    note("rejected_and_retried")
    raise exceptions.Reject("no", requeue=False)


@task(name="ignored")
def ignored() -> None:
    note("ignored")
    raise exceptions.Ignore


@task(name="no_json", autoretry_for=(TypeError,), **SOON)
def no_json() -> object:
    note("no_json")
    return object()


@task(name="expired")
def expired() -> None:
    note("expired")


def send() -> dict[str, Any]:
    """Send each task once, and return the results; the last one as somebody without its code does."""
    made = {name: globals()[name] for name in ENDS if name not in ("expired", "by_name")}
    sent = {name: each.apply_async(()) for name, each in made.items()}
    return {
        **sent,
        "expired": expired.apply_async((), expires=datetime(2000, 1, 1, tzinfo=UTC)),
        "by_name": foreign("by_name"),
    }


def foreign(name: str) -> Any:
    """Send a task by an app that does not know it."""
    if os.environ.get("ENDS_IMPL") == "celery":
        return celery.Celery(broker=URL, backend=URL, set_as_current=False).send_task(name)
    other = Celery("other", app._url)
    other._tasks.clear()
    exceptions.current.set_current_app(app)
    return app.AsyncResult(other.send_task(name).id)


def have_ended(results: dict[str, Any]) -> bool:
    """Return whether each task is in its last state, as far as it gets into one."""
    return all(result.ready() or (ENDS[name][0] == "PENDING" and runs_of(name)) for name, result in results.items())


def ends_of(results: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """Return the states of the tasks, and how often they ran."""
    return {name: (result.state, runs_of(name)) for name, result in sorted(results.items())}


def main() -> None:
    """Run them with Celery."""
    Path(os.environ["ENDS_LOG"]).write_text("")
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "tests.contrib.celery.ends", "worker", "-c", "8", "--loglevel", "ERROR"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        results = send()
        wait_until(lambda: have_ended(results))
        sys.stdout.write(f"{ends_of(results)!r}\n")
    finally:
        worker.terminate()
        worker.wait()
