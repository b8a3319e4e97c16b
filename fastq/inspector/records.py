"""What an inspector returns about queues, groups, servers and nodes; a task is a ``TaskInfo``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from fastq.states import TaskState
from fastq.wire.messages import WorkerInfo

__all__ = [
    "ClusterNode",
    "DailyStats",
    "Drain",
    "GroupInfo",
    "ImportReport",
    "Moved",
    "QueueInfo",
    "ServerInfo",
    "TaskEvent",
]


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue at the moment ``timestamp`` (UTC).

    ``size`` counts the tasks of all states, the completed ones that are kept included. ``latency`` is how long the
    oldest pending task has waited. ``processed`` and ``failed`` are those of the UTC day; a failure counts as
    processed, too. ``memory_usage`` is an estimate in bytes from a few tasks, None where Redis does not tell. The
    archive keeps ``archive_max`` tasks; ``archive_full`` is what happens then: "trim", "pause" or "spill".
    ``archive_dropped`` counts the failed tasks that it has deleted unseen. ``lost`` counts, for the UTC day, how often
    fastq's servers found a task whose server had died.
    """

    queue: str
    memory_usage: int | None
    latency: timedelta
    size: int
    groups: int
    pending: int
    active: int
    scheduled: int
    retry: int
    archived: int
    completed: int
    aggregating: int
    processed: int
    failed: int
    processed_total: int
    failed_total: int
    paused: bool
    timestamp: datetime
    archive_max: int = 10_000
    archive_full: str = "trim"
    archive_dropped: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class DailyStats:
    """How many runs ended on one UTC day, and how many of them failed."""

    queue: str
    processed: int
    failed: int
    date: date


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """The number of tasks that wait in a group."""

    group: str
    size: int


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A running server and what it is working on.

    ``status`` is "active", "quiet" (fetches no more), "stopping" (shuts down) or "new". In Redis, and in asynq's tools,
    "quiet" is "stopped" and "stopping" is "closed".
    """

    id: str
    host: str
    pid: int
    concurrency: int
    queues: Mapping[str, int]
    strict_priority: bool
    started: datetime | None
    status: str
    active_workers: tuple[WorkerInfo, ...]


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of a Redis Cluster; ``addr`` is host:port."""

    id: str
    addr: str


@dataclass(frozen=True, slots=True)
class Drain:
    """How far a queue is drained: the tasks that are ``left`` in the states waited for, and what was done meanwhile.

    ``processed`` and ``failed`` count attempts since the wait began. A set of a group that is being made into one task
    counts as one more aggregating task.
    """

    queue: str
    left: Mapping[TaskState, int]
    processed: int
    failed: int
    waited: timedelta
    paused: bool

    @property
    def empty(self) -> bool:
        """Whether nothing is left."""
        return not any(self.left.values())


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """A task that was found in another state than before; None is for what there was not, or is not.

    "done" was active and is gone, "gone" was waiting and is gone: it ran between two looks, or was deleted. Of
    "missed" there is no task: ``runs`` ended that were not seen.
    """

    name: str
    id: str = ""
    type: str = ""
    state: TaskState | None = None
    previous: TaskState | None = None
    error: str = ""
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move came to: ``count`` tasks were moved; some stayed, as the other queue has their ids or locks.

    ``failed`` names the first of those, with the reason.
    """

    count: int
    id_conflicts: int
    lock_conflicts: int
    failed: Sequence[tuple[str, str]]


@dataclass(slots=True)
class ImportReport:
    """What became of lines: ``lines`` are done, ``count`` of them were put into a queue, the others were left out.

    ``exists`` are those whose ids are there, ``active`` and ``expired`` (retention) by the state that they had,
    ``archive_full`` for want of room, ``bad`` as they cannot be read. Tasks of ``locks_held`` and ``locks_expired``
    were put without their unique locks. ``checked`` lines were read before anything was put; ``warnings`` say what of
    them will be left out.
    """

    checked: int = 0
    lines: int = 0
    count: int = 0
    exists: int = 0
    active: int = 0
    expired: int = 0
    archive_full: int = 0
    bad: int = 0
    locks_held: int = 0
    locks_expired: int = 0
    conflicts: list[dict[str, Any]] = field(default_factory=list)
    bad_lines: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
