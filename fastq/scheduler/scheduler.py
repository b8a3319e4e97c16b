"""``Scheduler``: register tasks with their cron specs, and run."""

import logging
import os
import socket
import threading
import uuid
from datetime import timedelta, tzinfo
from enum import Enum, auto
from typing import Final, Self, Unpack

from fastq.broker.operations.health import ping
from fastq.broker.operations.schedulers import OWN_SCHEDULER
from fastq.broker.transport.open import BlockingRedis, open_broker
from fastq.common.clock import SystemClock
from fastq.common.durations import nanoseconds_of
from fastq.cron.parse import parse
from fastq.cron.schedule import Schedule
from fastq.cron.zone import load_zone
from fastq.errors import CronSpecError, SchedulerEntryNotFoundError, ServerClosedError
from fastq.options import EnqueueOptions
from fastq.scheduler.engine import Engine, EngineOptions
from fastq.scheduler.entry import Entry, check_registration
from fastq.scheduler.hooks import EnqueueHooks, PostEnqueue, PreEnqueue
from fastq.scheduler.loop import Loop
from fastq.scheduler.stop import Stop, told_to_stop
from fastq.task import Task

MIN_HEARTBEAT_S: Final = 0.1

_log = logging.getLogger("fastq.scheduler")


class _State(Enum):
    NEW = auto()
    ACTIVE = auto()
    CLOSED = auto()


class Scheduler:
    """A scheduler that enqueues tasks by cron specs: ``run`` until a signal, or ``start`` … ``shutdown`` on a thread.

    ``redis`` is as for ``Client``. ``location`` is the time zone of specs that name none. ``heartbeat_interval``, in
    seconds or a ``timedelta``, is the interval at which the entries are published. ``pre_enqueue(task, options)`` is
    called before a task is enqueued; an exception stops that task, and a ``Task`` that it returns is enqueued in place
    of the entry's. ``post_enqueue(info, error)`` is called with the enqueued task, or with the error that prevented it.
    Hooks run on the scheduler's thread, so a slow hook delays all entries.
    """

    def __init__(
        self,
        redis: str | BlockingRedis | None = None,
        location: str | tzinfo = "UTC",
        heartbeat_interval: float | timedelta = 10,
        pre_enqueue: PreEnqueue | None = None,
        post_enqueue: PostEnqueue | None = None,
    ) -> None:
        heartbeat_s = nanoseconds_of(heartbeat_interval, name="heartbeat_interval") / 1e9
        if heartbeat_s < MIN_HEARTBEAT_S:
            raise ValueError(f"heartbeat_interval must be at least {MIN_HEARTBEAT_S} seconds: {heartbeat_interval!r}")
        options = EngineOptions(_new_id(), heartbeat_s, EnqueueHooks(pre_enqueue, post_enqueue))
        self._zone = load_zone(location)
        self._broker = open_broker(redis)
        self._engine = Engine(self._broker, options, SystemClock())
        self._loop = Loop(self._engine, self._close)
        self._state = _State.NEW
        self._lock = threading.Lock()
        self._stop: Stop | None = None

    def register(
        self,
        cronspec: str,
        task: Task | str,
        name: str | None = None,
        tz: str | tzinfo | None = None,
        missed: str = "skip",
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """Enqueue a task whenever ``cronspec`` is due, with the options of ``Client.enqueue``; return the entry's id.

        With a ``name``, each tick is enqueued once among all schedulers that have an entry of this name for the same
        queue. ``tz`` is the zone of this spec. ``missed`` is the policy for ticks that were due while no scheduler ran,
        or that Redis did not take within 60 s: "skip" enqueues none of them, "once" enqueues the latest, and "all"
        enqueues the latest 1000. Ticks before the start of a scheduler count for named entries only. A running
        scheduler that wakes late, for example after a suspend, enqueues at least the latest tick, whatever the policy.
        Raises ``CronSpecError``, ``ValueError`` or ``TypeError``.
        """
        schedule = self._schedule(cronspec, tz)
        entry = Entry(check_registration(schedule, task, options, name, missed), self._engine.now())
        if self._state is _State.CLOSED:
            raise _closed()
        self._engine.add(entry)
        self._loop.wake()
        return entry.id

    def unregister(self, entry_id: str) -> None:
        """Remove an entry; ``SchedulerEntryNotFoundError`` if there is no such entry."""
        if not self._engine.remove(entry_id):
            raise SchedulerEntryNotFoundError(entry_id)
        self._loop.wake()

    def run(self) -> None:
        """Enqueue until SIGTERM or SIGINT, then shut down; only in the main thread.

        A second signal has the effect that it had before the call: by default it ends the process.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "Scheduler.run() handles the process' signals: call it in the main thread, or use start()"
            )
        with told_to_stop() as stop:
            self._stop = stop
            try:
                self.start()
                _log.info("ready: SIGTERM or SIGINT stops it")
                stop.wait()
                self.shutdown()
            finally:
                self._stop = None  # its file descriptors may soon be reused

    def start(self) -> None:
        """Start on a separate thread, and return."""
        with self._lock:
            if self._state is _State.CLOSED:
                raise _closed()
            if self._state is _State.ACTIVE:
                raise RuntimeError("the scheduler is already running")
            self._engine.begin()
            self._state = _State.ACTIVE  # set before the thread starts, which sets CLOSED when it ends
            self._loop.start()

    def shutdown(self) -> None:
        """Finish the ticks that are being enqueued, remove the published entries, and end; may be called twice.

        A call from a hook returns at once. Any other call returns when everything is finished, even if a hook has
        called ``shutdown`` before.
        """
        with self._lock:
            state, self._state = self._state, _State.CLOSED
        if state is _State.NEW:
            self._close()
        else:
            self._loop.stop()

    def ping(self) -> None:
        """Check that Redis answers; ``BrokerError`` if it does not."""
        self._broker.run(ping())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _schedule(self, cronspec: str, tz: str | tzinfo | None) -> Schedule:
        if tz is None:
            return parse(cronspec, self._zone)
        schedule = parse(cronspec, tz)
        # Inspectors see only the spec, so the entry's zone is put into it where possible.
        try:
            return parse(f"CRON_TZ={schedule.zone} {cronspec}")
        except CronSpecError:
            return schedule

    def _close(self) -> None:
        self._state = _State.CLOSED
        self._broker.close()
        if self._stop is not None:
            self._stop.tell()  # a hook may have stopped the scheduler


def _closed() -> ServerClosedError:
    return ServerClosedError("the scheduler was shut down; make another one")


def _new_id() -> str:
    try:
        host = socket.gethostname()
    except OSError:
        host = "unknown-host"
    return f"{host}:{os.getpid()}:{OWN_SCHEDULER}{uuid.uuid4()}"
