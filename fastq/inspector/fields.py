"""Tables of the values of queues and tasks that JSON, metrics, commands, dashboard, web UI and Django's admin show.

An output adds values of its own if it shows more than these, or if it must have asynq's format.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias

from fastq.common.states import TaskState
from fastq.info import TaskInfo
from fastq.inspector.records import QueueInfo, TaskLocks


class Kind(Enum):
    """The kind of a value, which decides how it is written in JSON and for people."""

    TEXT = auto()
    COUNT = auto()
    NUMBER = auto()
    FLAG = auto()
    BYTES = auto()
    SPAN = auto()
    TIME = auto()
    SHARE = auto()
    STATE = auto()
    DATA = auto()
    HEADERS = auto()
    PROGRESS = auto()


class Metric(NamedTuple):
    """A metric of Prometheus: a counter if ``counts``, otherwise a gauge."""

    name: str
    help: str
    counts: bool = False


Place: TypeAlias = tuple[int, str] | None
"""The position of a value among others, and its title there. In ``stats`` and on the dashboard, a narrow terminal
leaves out the columns with the highest positions first.
"""


class Field(NamedTuple):
    """One value of a record.

    ``key`` is its key in JSON: "" stands for ``name``, None for no key. ``help`` is its text in the schema. ``facts``
    and ``stats`` are its positions in the output of commands, ``dash`` on the dashboard, ``web`` in the web UI,
    ``admin`` in Django's admin. ``shown`` computes the form for people, if it differs from the value in JSON. A value
    that ``warns`` is colored. An ``optional`` value is null in JSON if it is zero or empty.
    """

    name: str
    kind: Kind
    key: str | None = ""
    help: str = ""
    metric: Metric | None = None
    facts: Place = None
    stats: Place = None
    dash: Place = None
    web: Place = None
    admin: Place = None
    shown: Callable[[Any], Any] | None = None
    warns: bool = False
    optional: bool = False

    @property
    def json_key(self) -> str:
        """Return the field's key in JSON."""
        return self.key or self.name

    def read(self, record: Any) -> Any:
        """Return the value as people see it."""
        return getattr(record, self.name) if self.shown is None else self.shown(record)


def faced(fields: Iterable[Field], face: str) -> list[tuple[int, str, Field]]:
    """Return position, title and field of each value in one output, such as ``facts`` or ``web``, in table order."""
    return [(*getattr(field, face), field) for field in fields if getattr(field, face)]


def _archive(info: QueueInfo) -> str:
    rule = f"{info.archive_max:,} tasks, then {info.archive_full}"
    return f"{rule}; {info.archive_dropped:,} dropped" if info.archive_dropped else rule


def _lost(info: QueueInfo) -> str:
    return f"{info.lost:,} today, with their servers" if info.lost else "none today"


def _limit(info: QueueInfo) -> str:
    return "none" if info.max_pending is None else f"{info.pending:,} of {info.max_pending:,} pending tasks"


QUEUE: Final = (
    Field("queue", Kind.TEXT),
    Field("paused", Kind.FLAG, facts=(3, "Paused"), warns=True,
          metric=Metric("asynq_queue_paused_total", "1 if the queue is paused, else 0.")),
    Field("size", Kind.COUNT, facts=(1, "Size"), metric=Metric("asynq_queue_size", "Tasks of a queue in all states.")),
    Field("groups", Kind.COUNT, facts=(2, "Groups"), metric=Metric("fastq_queue_groups", "Groups of a queue.")),
    Field("latency", Kind.SPAN, "latency_s", shown=lambda info: info.latency if info.pending else None,
          facts=(4, "Latency"), stats=(1, "LATENCY"), dash=(0, "LATENCY"),
          metric=Metric("asynq_queue_latency_seconds", "How long the oldest pending task has waited.")),
    Field("memory_usage", Kind.BYTES, "memory_bytes", "an estimate; null where Redis does not tell",
          facts=(5, "Memory"), stats=(2, "MEMORY"), dash=(3, "MEMORY"),
          metric=Metric("asynq_queue_memory_usage_approx_bytes", "Memory of a queue, estimated from a few tasks.")),
    Field("active", Kind.COUNT, dash=(6, "ACTIVE")),
    Field("pending", Kind.COUNT, dash=(5, "PENDING")),
    Field("aggregating", Kind.COUNT),
    Field("scheduled", Kind.COUNT),
    Field("retry", Kind.COUNT, dash=(7, "RETRY")),
    Field("archived", Kind.COUNT, dash=(8, "ARCHIVED")),
    Field("completed", Kind.COUNT),
    Field("processed", Kind.COUNT, help="today, UTC",
          stats=(4, "PROCESSED"), dash=(9, "RUNS TODAY"), web=(1, "Runs today")),
    Field("failed", Kind.COUNT, help="today, UTC", stats=(3, "FAILED")),
    Field("errors", Kind.SHARE, None, stats=(5, "ERRORS"), dash=(4, "ERRORS"),
          shown=lambda info: (info.failed, info.processed)),
    Field("lost", Kind.COUNT, help="how often a task was lost with its server today, UTC; no failure",
          facts=(7, "Lost"), shown=_lost, warns=True),
    Field("orphaned", Kind.COUNT, help="active tasks that no server has a lease for",
          metric=Metric("fastq_queue_orphaned", "Active tasks that no server has a lease for.")),
    Field("overdue", Kind.SPAN, "overdue_s", "for how long the first scheduled task or retry has been due",
          Metric("fastq_queue_oldest_scheduled_seconds",
                 "For how long the first scheduled task or retry has been due.")),
    Field("processed_total", Kind.COUNT,
          metric=Metric("asynq_tasks_processed", "Runs that ended, failed ones included.", counts=True)),
    Field("failed_total", Kind.COUNT, metric=Metric("asynq_tasks_failed", "Runs that failed.", counts=True)),
    Field("archive_max", Kind.COUNT, help="tasks that the archive keeps"),
    Field("archive_full", Kind.TEXT, help="what happens when it has as many"),
    Field("archive_dropped", Kind.COUNT, help="failed tasks that the archive has deleted unseen",
          facts=(6, "Archive"), shown=_archive, warns=True,
          metric=Metric("fastq_queue_archive_dropped", "Tasks that full archives deleted.", counts=True)),
    Field("max_pending", Kind.COUNT, help="pending tasks beyond which fastq's clients are refused; null for any number",
          facts=(8, "Limit"), shown=_limit,
          metric=Metric("fastq_queue_max_pending", "Pending tasks that the queue may have."), optional=True),
    Field("timestamp", Kind.TIME),
)  # fmt: skip


def _state(info: TaskInfo) -> str:
    return f"{info.state} (no server holds it)" if info.is_orphaned else info.state.value


def _next(info: TaskInfo) -> datetime | str | None:
    waits = info.state in (TaskState.SCHEDULED, TaskState.RETRY)
    return info.next_process_at if waits or info.next_process_at is None else "now"


TASK: Final = (
    Field("id", Kind.TEXT, facts=(2, "ID")),
    Field("queue", Kind.TEXT, facts=(1, "Queue")),
    Field("type", Kind.TEXT, facts=(3, "Type")),
    Field("state", Kind.STATE, facts=(4, "State"), shown=_state),
    Field("payload", Kind.DATA),
    Field("headers", Kind.HEADERS, facts=(16, "Headers"),
          shown=lambda info: ", ".join(f"{name}={value}" for name, value in sorted(info.headers.items()))),
    Field("max_retry", Kind.NUMBER),
    Field("retried", Kind.NUMBER, facts=(6, "Retried"), shown=lambda info: f"{info.retried}/{info.max_retry}"),
    Field("lost", Kind.NUMBER, help="how often it was lost with its server, which uses up no retry",
          facts=(7, "Lost"), shown=lambda info: info.lost and f"{info.lost} times, with its server"),
    Field("last_err", Kind.TEXT, "last_error", facts=(11, "Last error"), optional=True),
    Field("last_failed_at", Kind.TIME, facts=(10, "Last failed"), web=(1, "Last failed"), admin=(3, "Failed"),
          optional=True),
    Field("timeout", Kind.SPAN, "timeout_s", facts=(12, "Timeout"), web=(3, "Timeout"), optional=True),
    Field("deadline", Kind.TIME, facts=(13, "Deadline"), web=(4, "Deadline"), optional=True),
    Field("group", Kind.TEXT, facts=(5, "Group"), optional=True),
    Field("next_process_at", Kind.TIME, facts=(9, "Next process time"), admin=(1, "Runs at"), shown=_next,
          optional=True),
    Field("is_orphaned", Kind.FLAG, help="active, but no server holds it any more"),
    Field("progress", Kind.PROGRESS, help="what the handler told last; null if it told nothing",
          facts=(8, "Progress"), optional=True),
    Field("retention", Kind.SPAN, "retention_s", facts=(14, "Retention"), web=(5, "Kept for"), optional=True),
    Field("completed_at", Kind.TIME, facts=(15, "Completed"), web=(2, "Completed"), admin=(2, "Completed"),
          optional=True),
    Field("result", Kind.DATA, optional=True),
)  # fmt: skip


def _holder(locks: TaskLocks) -> str:
    return locks.lock_holder and f"held by {locks.lock_holder}"


def _follow_up(locks: TaskLocks) -> str | None:
    size = locks.follow_up_size
    return None if size is None else f"once this run has ended, with a payload of {size:,} bytes"


LOCKS: Final = (
    Field("leased_until", Kind.TIME, help="null where no server has it"),
    Field("is_leased_by_go", Kind.FLAG),
    Field("is_unique", Kind.FLAG),
    Field("lock_holder", Kind.TEXT, help="the id of the task that has its unique lock", facts=(1, "Unique lock"),
          shown=_holder, optional=True),
    Field("locked_until", Kind.TIME, facts=(2, "Lock ends")),
    Field("follow_up_size", Kind.NUMBER, "follow_up_bytes", "the newest payload that came by key while it ran",
          facts=(3, "Runs again"), web=(1, "Runs again"), shown=_follow_up),
    Field("follow_up_at", Kind.TIME, help="it does not run again before that", facts=(4, "Not before"),
          web=(2, "Not before")),
    Field("follow_up_latest", Kind.TIME, help="it is put off until then at most", facts=(5, "At the latest"),
          web=(3, "At the latest")),
)  # fmt: skip
