"""The messages of asynq's protocol as plain Python values; ``codec`` and ``records`` turn them into bytes and back."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from fastq._codec import TaskMessage, TaskView

__all__ = [
    "CHECKPOINT_HEADER",
    "KEY_HEADER",
    "UNDECODABLE_TYPE",
    "UNTIL_HEADER",
    "SchedulerEnqueueEvent",
    "SchedulerEntry",
    "ServerInfoMessage",
    "TaskMessage",
    "TaskView",
    "WorkerInfo",
]

CHECKPOINT_HEADER: Final = "fastq-checkpoint"
"""The header that holds the checkpoint of a task, as JSON text."""
KEY_HEADER: Final = "fastq-key"
"""The header of a task that was enqueued by key; its value is different for each enqueue."""
UNTIL_HEADER: Final = "fastq-until"
"""The header that names when a server releases a task's unique lock: ``start`` or ``end``.

Without it, a server releases the lock when the task completes, as in asynq.
"""
UNDECODABLE_TYPE: Final = "fastq:undecodable"
"""The type of a task that replaces an undecodable message; its payload is the original bytes."""

_QUEUE_OPTION: Final = re.compile(r'Queue\((".*")\)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class ServerInfoMessage:
    """A running server; published with every heartbeat."""

    host: str
    pid: int
    server_id: str
    concurrency: int
    queues: Mapping[str, int]
    strict_priority: bool
    status: str
    start_time: datetime | None
    active_worker_count: int


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One task that a server is running.

    A fastq server publishes the first 4 kB of a payload, less if it runs more than 244 tasks. An asynq server publishes
    all of it, but inspectors read only the first 4 kB.
    """

    host: str
    pid: int
    server_id: str
    task_id: str
    task_type: str
    task_payload: bytes
    queue: str
    start_time: datetime | None
    deadline: datetime | None


class Places(NamedTuple):
    """The places of one kind on a fastq server: ``size`` tasks may run in them at once, ``busy`` tasks run now.

    ``kind`` is "process", "thread" or "coroutine". Each task can use only one kind, whatever is free in the other
    kinds.
    """

    kind: str
    busy: int
    size: int


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """A child of a fastq server, in which handlers run.

    ``state`` is "starting", "idle", "busy" or "leaving". ``since`` is when the child began to start, became ready for
    tasks, or began to leave. ``rss`` is the size of its memory in bytes, 0 if that is unknown. ``task_ids`` are the ids
    of its running tasks, as many as there was room for.
    """

    pid: int
    state: str
    since: datetime
    rss: int = 0
    task_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerEntry:
    """One periodic task; a time that is ``None`` is Go's zero time (never)."""

    id: str
    spec: str
    task_type: str
    task_payload: bytes
    enqueue_options: Sequence[str]
    next_enqueue_time: datetime | None
    prev_enqueue_time: datetime | None

    @property
    def queue(self) -> str:
        """Return the queue named in the options' text; empty if it cannot be read, "default" if none is named."""
        for option in reversed(self.enqueue_options):  # the last option counts
            if match := _QUEUE_OPTION.fullmatch(option):
                try:
                    return str(json.loads(match[1]))
                except ValueError:
                    return ""
        return "default"


@dataclass(frozen=True, slots=True)
class SchedulerEnqueueEvent:
    """The record that a scheduler enqueued a task."""

    task_id: str
    enqueue_time: datetime | None
