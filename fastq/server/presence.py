"""What inspectors see of this server: its ServerInfo, and a WorkerInfo for each task in a handler."""

import os
import socket
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum

from fastq.broker.presence import ServerIdentity
from fastq.clock import Clock
from fastq.codec import decode_task_message
from fastq.errors import InvalidMessageError
from fastq.info import at_unix_ns
from fastq.messages import ServerInfo, WorkerInfo
from fastq.pool.protocol import Running
from fastq.proto.convert import encode_server_info, encode_worker_info
from fastq.server.config import ServerConfig
from fastq.server.held import HeldTask

__all__ = ["ServerStatus", "Showcase", "new_identity"]


class ServerStatus(StrEnum):
    """Name the stages of a server's life as asynq does."""

    NEW = "new"
    ACTIVE = "active"
    STOPPED = "stopped"
    CLOSED = "closed"


def new_identity() -> ServerIdentity:
    """Return the name under which this process shows itself, with an id drawn now."""
    try:
        host = socket.gethostname()
    except OSError:
        host = "unknown-host"
    return ServerIdentity(host, os.getpid(), str(uuid.uuid4()))


class Showcase:
    """Encode what is to be seen; ``status`` is set by the server as it goes through its life.

    An active server that cannot work fetches nothing, and is shown as stopped.
    """

    def __init__(
        self, identity: ServerIdentity, config: ServerConfig, running: Callable[[], list[Running]], clock: Clock
    ) -> None:
        self._identity = identity
        self._config = config
        self._running = running
        self._clock = clock
        self._started = datetime.now(UTC)
        self.slots = config.concurrency
        self.status = ServerStatus.ACTIVE
        self._can_work = True

    def set_can_work(self, can_work: bool) -> None:
        """Say whether there is a child that can run a task."""
        self._can_work = can_work

    def __call__(self) -> tuple[bytes, dict[str, bytes]]:
        """Return the encoded ServerInfo, and the encoded WorkerInfo of each running task by its id."""
        workers = dict(filter(None, map(self._worker, self._running())))
        identity, config = self._identity, self._config
        info = ServerInfo(
            host=identity.host,
            pid=identity.pid,
            server_id=identity.server_id,
            concurrency=self.slots,
            queues=config.queues,
            strict_priority=config.strict_priority,
            status=self.status if self._can_work or self.status is not ServerStatus.ACTIVE else ServerStatus.STOPPED,
            start_time=self._started,
            active_worker_count=len(workers),
        )
        return encode_server_info(info), workers

    def _worker(self, running: Running) -> tuple[str, bytes] | None:
        task = running.submission.key
        if not isinstance(task, HeldTask):
            return None
        try:
            message = decode_task_message(task.view.data)
        except InvalidMessageError:
            return None
        # The pool's times are monotonic; what is published is wall time.
        offset_ns = self._clock.unix_ns() - int(self._clock.monotonic_s() * 1e9)
        info = WorkerInfo(
            host=self._identity.host,
            pid=self._identity.pid,
            server_id=self._identity.server_id,
            task_id=message.id,
            task_type=message.type,
            task_payload=message.payload,
            queue=task.queue,
            start_time=at_unix_ns(running.started_ns + offset_ns),
            deadline=at_unix_ns(running.deadline_ns + offset_ns) if running.deadline_ns else None,
        )
        return message.id, encode_worker_info(info)
