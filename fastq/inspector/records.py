"""The inspector's records of queues, groups, servers and nodes; a task is a ``TaskInfo``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any

from fastq.common.states import TaskState
from fastq.wire.limit import Limit
from fastq.wire.messages import ChildInfo, Places, WorkerInfo


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue at the moment ``timestamp`` (UTC).

    ``size`` counts the tasks of all states, including completed ones that are kept. ``latency`` is the time that the
    oldest pending task has waited. ``processed`` and ``failed`` are the counts of the UTC day; a failure also counts as
    processed. ``memory_usage`` is an estimate in bytes from a few tasks, None if Redis does not report it. The archive
    keeps ``archive_max`` tasks; ``archive_full`` says what happens when it is full: "trim", "pause" or "spill".
    ``archive_dropped`` counts the failed tasks that the archive has deleted. ``lost`` counts the tasks that were lost
    with their servers on the UTC day. ``orphaned`` counts the active tasks without a valid lease. ``overdue`` is for
    how long the first scheduled task or retry has been due; servers normally move it to pending within moments. fastq's
    clients enqueue no more tasks while there are ``max_pending`` pending tasks; None is no limit.
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
    orphaned: int = 0
    overdue: timedelta = timedelta(0)
    max_pending: int | None = None


@dataclass(frozen=True, slots=True)
class DailyStats:
    """The number of runs that ended on one UTC day, and how many of them failed."""

    queue: str
    processed: int
    failed: int
    date: date


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt of a task.

    ``attempt`` counts from 1; an attempt that was lost with its server has the same number as the next attempt.
    ``started_at`` is None if it is not known or the handler never began, ``server`` is "host:pid" or empty. ``error``
    is the class and the beginning of the message. Errors of the same class from the same lines of code share a
    ``fingerprint`` and one ``traceback``, which is kept without messages; its last line is this attempt's own error.
    ``traceback`` is None if none is kept.
    """

    attempt: int
    started_at: datetime | None
    ended_at: datetime
    server: str
    error: str
    fingerprint: str
    traceback: str | None

    @property
    def error_class(self) -> str:
        """Return the name of the error's class."""
        return self.error.partition(":")[0].partition(" ")[0]


@dataclass(frozen=True, slots=True)
class TaskLocks:
    """The lease of a task, its unique lock, and the run that will follow the current run.

    ``leased_until`` is None if no server has the task; servers renew the lease every 5 s. ``is_leased_by_go`` says that
    a Go server has the task. ``lock_holder`` is the id of the task that holds the lock, which may be another task; it
    is empty if the task is not unique, or no task holds its lock. ``locked_until`` is None if the lock never expires.
    ``follow_up_size`` is the size of the newest payload that was enqueued by key while the task ran, None for none. The
    payload runs once the current run has ended, but not before ``follow_up_at`` if this is set. ``follow_up_latest`` is
    the latest time to which further calls can postpone it.
    """

    leased_until: datetime | None
    is_leased_by_go: bool
    is_unique: bool
    lock_holder: str
    locked_until: datetime | None
    follow_up_size: int | None = None
    follow_up_at: datetime | None = None
    follow_up_latest: datetime | None = None


class LaneState(StrEnum):
    """What keeps the tasks of a lane waiting."""

    IDLE = "idle"
    """No task waits."""
    READY = "ready"
    """Nothing: the next server with a free slot takes a task."""
    RATE = "rate"
    """The rate: the next task may start at the time ``until``."""
    FULL = "full"
    """The concurrency: all places are taken."""
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class LaneInfo:
    """A lane of a queue, and why its tasks wait.

    ``lane`` may also be "*" for each lane without a limit of its own, "pool:*" for all lanes of a pool together, or ""
    for the whole queue. ``running`` counts the tasks that hold a place, and is None if there is no ``concurrency``.
    ``limit`` is the limit that applies: the lane's own if ``has_own_limit``, else that of "*"; None if there is none.
    ``by`` names what makes the tasks wait: the lane, its pool, or "" for the queue. ``until`` is set only for a rate.
    ``holders`` are the ids of the tasks that hold the places of a full lane or pool, if these are few. ``lost_holders``
    are those of them that were lost with their servers, and are taken over within two minutes. ``retried_holders`` wait
    for a retry while their sequence waits for them.
    """

    queue: str
    lane: str
    waiting: int
    running: int | None
    limit: Limit | None
    has_own_limit: bool
    state: LaneState
    by: str = ""
    until: datetime | None = None
    holders: tuple[str, ...] = ()
    lost_holders: tuple[str, ...] = ()
    retried_holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """The tasks in the lanes of a pool: "openai" is the pool of "openai:acme", "" stands for lanes without a limited
    pool. ``running`` is None if the pool has no ``concurrency``, since its running tasks are not counted then.
    """

    queue: str
    pool: str
    waiting: int
    running: int | None


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """The number of tasks that wait in a group."""

    group: str
    size: int


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A running server and the tasks that it is working on.

    ``status`` is "active", "quiet" (no longer fetching), "stopping" (shutting down) or "new". In Redis, and in asynq's
    tools, "quiet" is "stopped" and "stopping" is "closed". ``concurrency`` is how many tasks may run at once;
    ``places`` has this number, and how many tasks run, for each kind. A Go server has no ``children`` and no
    ``places``.
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
    children: tuple[ChildInfo, ...] = ()
    places: tuple[Places, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of a Redis Cluster; ``addr`` is host:port, ``slots`` the number of slots that it serves."""

    id: str
    addr: str
    is_master: bool
    slots: int


@dataclass(frozen=True, slots=True)
class Drain:
    """The state of a drain: the tasks ``left`` in the states waited for, and the work done meanwhile.

    ``processed`` and ``failed`` count attempts since the wait began. An aggregation set that is being turned into a
    task counts as one more aggregating task.
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
    """A task that was found in a new state; a field is None if it does not apply.

    A "done" task was active and is no longer in Redis. A "gone" task was waiting and is no longer in Redis: it ran
    between two snapshots, or was deleted. "missed" is not about one task: ``runs`` runs ended between two snapshots.
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
    """The result of a move: ``count`` tasks were moved.

    The remaining tasks stayed, because the other queue has their ids or locks. ``failed`` lists the first of these,
    with the reason.
    """

    count: int
    id_conflicts: int
    lock_conflicts: int
    failed: Sequence[tuple[str, str]]


@dataclass(slots=True)
class ImportReport:
    """The result of an import: of ``lines`` processed lines, ``count`` became tasks and the others were left out.

    They were left out because their ids exist already (``exists``), because they were ``active``, because their
    retention has ``expired``, because the archive had no room (``archive_full``), or because they cannot be read
    (``bad``). The tasks in ``locks_held`` and ``locks_expired`` were imported without their unique locks. ``checked``
    lines were read before anything was written; ``warnings`` announce the lines that will be left out.
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
