"""The published data of this server: its ServerInfo, a WorkerInfo for each task in a handler, its notice."""

import asyncio
import os
import socket
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from fastq._version import __version__
from fastq.broker.operations.presence import ServerIdentity, ServerState
from fastq.common.clock import Clock, at_unix_ns
from fastq.errors import InvalidMessageError
from fastq.pool.main.protocol import PoolCensus, Running, Sort, Submission
from fastq.server.base.config import ServerConfig
from fastq.server.inflight.tasks import InFlightTask
from fastq.wire.codec import decode_task_message
from fastq.wire.messages import ChildInfo, Places, ServerInfoMessage, WorkerInfo
from fastq.wire.notice import ServerNotice
from fastq.wire.records import encode_server_info, encode_worker_info
from fastq.worker.shared.description import AppDescription

MAX_PAYLOAD: Final = 4096
MAX_PAYLOADS: Final = 1_000_000
"""The limit for all running tasks together: all published data is written to Redis again with each heartbeat."""
_KINDS: Final = {Sort.PLAIN: "process", Sort.THREADED: "thread", Sort.ASYNC: "coroutine"}


class ServerStatus(StrEnum):
    """The stages of a server's life; the values are asynq's, as stored in Redis."""

    NEW = "new"
    ACTIVE = "active"
    QUIET = "stopped"
    STOPPING = "closed"


def new_identity() -> ServerIdentity:
    """Return an identity for a server in this process, with a new random id."""
    try:
        host = socket.gethostname()
    except OSError:
        host = "unknown-host"
    return ServerIdentity(host, os.getpid(), str(uuid.uuid4()))


class ServerPresence:
    """The encoded data that a server publishes; the server sets ``status``.

    An active server without a child that can run tasks is published as quiet.
    """

    def __init__(
        self,
        identity: ServerIdentity,
        config: ServerConfig,
        running: Callable[[], list[Running]],
        census: Callable[[], PoolCensus],
        clock: Clock,
    ) -> None:
        self._identity = identity
        self._config = config
        self._running = running
        self._census = census
        self._clock = clock
        self._started = datetime.now(UTC)
        self._payloads: dict[InFlightTask, bytes] = {}
        self.slots = config.concurrency
        self.status = ServerStatus.ACTIVE
        self._going: asyncio.Task[None] | None = None
        self.patterns: tuple[str, ...] = ()
        self.places: Mapping[Sort, int] = {}
        self._can_work = True

    def serve(self, app: AppDescription) -> None:
        """Publish an app's patterns, and how many of its tasks may run at once; a plain task has a child to itself."""
        config, sorts = self._config, set(app.patterns.values()) or {Sort.PLAIN}
        a_child = {Sort.PLAIN: 1, Sort.THREADED: config.threads, Sort.ASYNC: config.async_concurrency}
        self.patterns = tuple(app.patterns)
        self.places = {sort: config.concurrency * count for sort, count in a_child.items() if sort in sorts}
        side_by_side = sum(count for sort, count in self.places.items() if sort is not Sort.PLAIN)
        self.slots = side_by_side or self.places[Sort.PLAIN]

    def go_quiet(self, has_ended: asyncio.Event, tell: Callable[[], None]) -> None:
        """Publish the server as quiet once fetching ``has_ended``, so that clients can rely on that."""

        async def show() -> None:
            await has_ended.wait()
            self.status = ServerStatus.QUIET
            tell()

        if self._going is None and self.status is ServerStatus.ACTIVE:
            self._going = asyncio.create_task(show())

    def stop(self) -> None:
        """Publish the server as stopping."""
        if self._going is not None:
            self._going.cancel()
        self.status = ServerStatus.STOPPING

    def set_can_work(self, can_work: bool) -> None:
        """Set whether any child can run a task."""
        self._can_work = can_work

    def __call__(self) -> ServerState:
        """Return the data as of now."""
        shown = self._shown()
        most = min(MAX_PAYLOAD, MAX_PAYLOADS // max(1, len(shown)))
        ahead_ns = self._wall_ns()  # computed once: all tasks of a call are shown to have begun at one time
        workers = {task.id: self._worker(task, running, most, ahead_ns) for task, running in shown.items()}
        identity, config = self._identity, self._config
        info = ServerInfoMessage(
            host=identity.host,
            pid=identity.pid,
            server_id=identity.server_id,
            concurrency=self.slots,
            queues=config.queues,
            strict_priority=config.strict_priority,
            status=self.status if self._can_work or self.status is not ServerStatus.ACTIVE else ServerStatus.QUIET,
            start_time=self._started,
            active_worker_count=len(workers),
        )
        queues, children = tuple(config.queues), self._children(shown, ahead_ns)
        notice = ServerNotice(__version__, queues, self.patterns, children=children, places=self._places(shown))
        return ServerState(encode_server_info(info), workers, notice.encode())

    def _shown(self) -> dict[InFlightTask, Running]:
        """Return the running tasks to publish, and cache their payloads, since large ones are slow to decode."""
        found: dict[InFlightTask, Running] = {}
        payloads: dict[InFlightTask, bytes] = {}
        for running in self._running():
            task = running.submission.key
            if isinstance(task, InFlightTask):
                with suppress(InvalidMessageError):
                    payloads[task] = self._payloads[task] if task in self._payloads else _payload_of(task)
                    found[task] = running
        self._payloads = payloads
        return found

    def _children(self, shown: Mapping[InFlightTask, Running], ahead_ns: int) -> tuple[ChildInfo, ...]:
        task_ids = defaultdict[int, list[str]](list)
        for task, running in shown.items():
            task_ids[running.pid].append(task.id)
        return tuple(
            ChildInfo(
                child.pid,
                child.state,
                at_unix_ns(int(child.since_s * 1e9) + ahead_ns),
                child.rss_bytes,
                tuple(task_ids.get(child.pid, ())),
            )
            for child in self._census().each
            if child.pid
        )

    def _places(self, shown: Mapping[InFlightTask, Running]) -> tuple[Places, ...]:
        busy = Counter(_sort_of(running.submission) for running in shown.values())
        return tuple(Places(_KINDS[sort], busy[sort], size) for sort, size in self.places.items())

    def _wall_ns(self) -> int:
        """Return the offset (nanoseconds) from the pool's monotonic times to the published wall times."""
        return self._clock.unix_ns() - int(self._clock.monotonic_s() * 1e9)

    def _worker(self, task: InFlightTask, running: Running, most: int, ahead_ns: int) -> bytes:
        info = WorkerInfo(
            host=self._identity.host,
            pid=self._identity.pid,
            server_id=self._identity.server_id,
            task_id=task.id,
            task_type=task.view.type,
            task_payload=self._payloads[task][:most],
            queue=task.queue,
            start_time=at_unix_ns(running.started_ns + ahead_ns),
            deadline=at_unix_ns(running.deadline_ns + ahead_ns) if running.deadline_ns else None,
        )
        return encode_worker_info(info)


def _payload_of(task: InFlightTask) -> bytes:
    return (decode_task_message(task.view.data).payload or b"")[:MAX_PAYLOAD]


def _sort_of(submission: Submission) -> Sort:
    if submission.is_threaded:
        return Sort.THREADED
    return Sort.ASYNC if submission.is_async else Sort.PLAIN
