"""Runs the scheduler of a module: imports it, waits for Redis, runs until a signal; logs to stderr."""

import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final, NoReturn

from fastq._version import __version__
from fastq.app.app import App
from fastq.errors import BrokerError, CronSpecError, FastqError
from fastq.log.output import unblocked_stderr
from fastq.log.setup import log_text, set_up_logging
from fastq.log.traces import own_trace
from fastq.scheduler import Scheduler
from fastq.scheduler.periodic import PeriodicTaskManager
from fastq.server.wiring.connecting import FirstContact
from fastq.worker.shared.names import AppNameError, resolve

EXIT_FAILED: Final = 1

_log = logging.getLogger("fastq")


@dataclass(frozen=True, slots=True)
class SchedulingOptions:
    """The scheduler to run, and its options; ``redis`` applies to a scheduler without a URL."""

    app: str
    redis: str | None
    connect_timeout_s: float
    log_level: str
    log_format: str


class _ToldToStop(BaseException):
    """Raised to leave the wait for Redis. It is not an ``Exception``, because a wait might swallow one."""


@unblocked_stderr()
def run_scheduler(options: SchedulingOptions) -> int:
    """Run until a signal; return the exit code: 1 if the scheduler cannot start. ``AppNameError`` for a bad name."""
    set_up_logging(options.log_level, options.log_format)
    if options.redis is not None:
        os.environ["FASTQ_REDIS_URL"] = options.redis  # for a Scheduler that was created without a URL
    try:
        scheduler = _load(options)
    except AppNameError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an app may raise anything at its import, and it is logged
        log_text(_log, logging.CRITICAL, f"the import of {options.app} failed:\n{own_trace(error)}")
        return EXIT_FAILED
    python = ".".join(map(str, sys.version_info[:3]))
    _log.info("fastq %s on Python %s schedules %s", __version__, python, options.app)
    try:
        with _interruptible():
            _wait_for_redis(scheduler, options.connect_timeout_s)
        scheduler.run()
    except _ToldToStop:
        scheduler.shutdown()
    except (FastqError, RuntimeError) as error:
        _log.critical("%s", error)
        return EXIT_FAILED
    _log.info("stopped")
    return 0


def _load(options: SchedulingOptions) -> Scheduler | PeriodicTaskManager:
    app = options.app
    try:
        found = resolve(app)
    except CronSpecError as error:
        raise AppNameError(f"{app!r}{_where(error)}: {error}") from error
    if isinstance(found, App):
        if not found.crons:
            raise AppNameError(f"{app!r} has no task with a cron spec; give one a time with @app.task(cron='@daily')")
        if found.url is not None and options.redis not in (None, found.url):
            _log.warning("%s names its Redis itself: that one is used, not the one of --redis or $FASTQ_REDIS_URL", app)
        return _scheduler_of(found)
    if isinstance(found, Scheduler | PeriodicTaskManager):
        return found
    kinds = "a fastq.App, fastq.Scheduler or fastq.PeriodicTaskManager"
    raise AppNameError(f"{app!r} must be {kinds}, not {type(found).__name__}")


def _scheduler_of(app: App) -> Scheduler:
    """Return a scheduler for an app's periodic tasks, with names, so that several schedulers enqueue each tick only
    once.
    """
    scheduler = Scheduler(app.url)
    tasks = app.tasks
    for name, spec in app.crons.items():
        scheduler.register(spec, tasks[name].task(), name)
    return scheduler


def _where(error: BaseException) -> str:
    """Return the line of the user's code that made the failing call."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    return f", line {frames[-1].lineno} of {frames[-1].filename}" if frames else ""


def _is_ours(filename: str) -> bool:
    package = os.path.dirname(os.path.dirname(__file__))
    return filename.startswith((package + os.sep, "<frozen")) or os.sep + "importlib" + os.sep in filename


def _wait_for_redis(scheduler: Scheduler | PeriodicTaskManager, within_s: float) -> None:
    """Wait until Redis answers; raise its ``BrokerError`` after ``within_s``, or at once if waiting cannot help."""
    contact = FirstContact(within_s)
    while True:
        try:
            scheduler.ping()
            return
        except BrokerError as error:
            pause_s = contact.pause_s(error)
        time.sleep(pause_s)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make SIGTERM and SIGINT raise ``_ToldToStop`` in the block."""

    def tell(signum: int, frame: FrameType | None) -> NoReturn:
        raise _ToldToStop

    before = {signum: signal.signal(signum, tell) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
