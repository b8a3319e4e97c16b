"""What an inspector returns about queues, groups, servers and nodes; a task is a ``TaskInfo``."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from fastq.wire.messages import WorkerInfo

__all__ = ["ClusterNode", "DailyStats", "GroupInfo", "QueueInfo", "ServerInfo"]


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """Describe a queue at the moment ``timestamp`` (UTC).

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
    """Tell how many runs ended on one UTC day, and how many of them were failures."""

    queue: str
    processed: int
    failed: int
    date: date


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """Tell how many tasks wait in a group to be made into one."""

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
    """Name a node of a Redis Cluster; ``addr`` is host:port."""

    id: str
    addr: str
