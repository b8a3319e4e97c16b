"""The JSON that commands write; ``docs/cli.schema.json`` is its schema, and tests check the JSON against it.

Times are RFC 3339 in UTC. Durations are in seconds, with names that end in ``_s``. Bytes are text if they are UTF-8,
otherwise base64.
"""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from fastq.info import TaskInfo
from fastq.inspector.doctor.examination import Report
from fastq.inspector.doctor.finding import Level
from fastq.inspector.doctor.repairs import Repair
from fastq.inspector.fields import LOCKS, QUEUE, TASK, Field, Kind
from fastq.inspector.records import (
    DailyStats,
    Drain,
    FailedAttempt,
    ImportReport,
    LaneInfo,
    Moved,
    QueueInfo,
    ServerInfo,
    TaskEvent,
    TaskLocks,
)
from fastq.inspector.runs import Durations, RunHistory, RunStats, outcomes_of
from fastq.wire.messages import ChildInfo, SchedulerEnqueueEvent, SchedulerEntry, WorkerInfo

Row: TypeAlias = tuple[str, str, Callable[..., Any] | None]
"""The key of a value in JSON, its attribute, and the function that converts it, None for no conversion."""


def time_text(moment: datetime | None) -> str | None:
    """Format a time as in RFC 3339."""
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _data(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None, f"{name}_encoding": None}
    try:
        return {name: data.decode(), f"{name}_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data).decode(), f"{name}_encoding": "base64"}


_WRITERS: Final[Mapping[Kind, Callable[[Any], Any]]] = {
    Kind.SPAN: timedelta.total_seconds,
    Kind.TIME: time_text,
    Kind.STATE: lambda state: state.value,
    Kind.HEADERS: dict,
    Kind.PROGRESS: lambda progress: {**progress._asdict(), "at": time_text(progress.at)},
}


def _row(field: Field) -> Row:
    write = _WRITERS.get(field.kind)
    if field.kind is Kind.DATA:
        return field.json_key, field.name, _data
    if write is not None and field.optional:
        return field.json_key, field.name, lambda value: write(value) if value else None
    return field.json_key, field.name, (lambda value: value or None) if field.optional else write


_QUEUE: Final = [_row(field) for field in QUEUE if field.key is not None]
_TASK: Final = [_row(field) for field in TASK]
_LOCKS: Final = [_row(field) for field in LOCKS]


def _record(rows: Iterable[Row], record: object) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, name, write in rows:
        value = getattr(record, name)
        if write is None:
            found[key] = value
        elif write is _data:
            found.update(_data(key, value))
        else:
            found[key] = write(value)
    return found


def queue_record(info: QueueInfo) -> dict[str, Any]:
    """Describe a queue."""
    return _record(_QUEUE, info)


def lane_record(info: LaneInfo) -> dict[str, Any]:
    """Describe a lane."""
    return {
        "queue": info.queue,
        "lane": info.lane,
        "waiting": info.waiting,
        "running": info.running,
        "limit": None if info.limit is None else str(info.limit),
        "has_own_limit": info.has_own_limit,
        "state": info.state.value,
        "by": info.by,
        "until": time_text(info.until),
        "holders": list(info.holders),
        "lost_holders": list(info.lost_holders),
        "retried_holders": list(info.retried_holders),
    }


def daily_record(day: DailyStats) -> dict[str, Any]:
    """Describe the runs that ended on one UTC day."""
    return {"date": day.date.isoformat(), "processed": day.processed, "failed": day.failed}


def history_record(history: RunHistory) -> dict[str, Any]:
    """Describe the runs of a queue's tasks."""
    return {
        "queue": history.queue,
        "step_s": history.step.total_seconds(),
        "total": _runs_record(history.total),
        "types": {name: _runs_record(stats) for name, stats in history.types.items()},
        "points": [_runs_record(stats) for stats in history.points],
    }


def _runs_record(stats: RunStats) -> dict[str, Any]:
    return {
        "start": time_text(stats.start),
        **outcomes_of(stats),
        **{
            f"{name}_p{round(100 * share)}_s": _quantile_s(durations, share)
            for name, durations in (("run", stats.run), ("wait", stats.wait))
            for share in (0.5, 0.95, 0.99)
        },
    }


def _quantile_s(durations: Durations, share: float) -> float | None:
    bound = durations.quantile(share)
    return None if bound is None else bound.total_seconds()


def task_record(info: TaskInfo) -> dict[str, Any]:
    """Describe a task."""
    return _record(_TASK, info)


def locks_record(locks: TaskLocks) -> dict[str, Any]:
    """Describe the lease and lock of a task, and the run that will follow the current run."""
    return _record(_LOCKS, locks)


def attempt_record(attempt: FailedAttempt) -> dict[str, Any]:
    """Describe a failed attempt of a task."""
    return {
        "attempt": attempt.attempt,
        "started_at": time_text(attempt.started_at),
        "ended_at": time_text(attempt.ended_at),
        "server": attempt.server or None,
        "error": attempt.error,
        "error_class": attempt.error_class,
        "fingerprint": attempt.fingerprint or None,
        "traceback": attempt.traceback,
    }


def server_record(server: ServerInfo) -> dict[str, Any]:
    """Describe a server and the tasks that it runs."""
    return {
        "id": server.id,
        "host": server.host,
        "pid": server.pid,
        "status": server.status,
        "concurrency": server.concurrency,
        "queues": dict(server.queues),
        "strict_priority": server.strict_priority,
        "started": time_text(server.started),
        "active_workers": [_worker_record(worker) for worker in server.active_workers],
        "children": [_child_record(child) for child in server.children],
        "places": [each._asdict() for each in server.places],
    }


def _child_record(child: ChildInfo) -> dict[str, Any]:
    return {
        "pid": child.pid,
        "state": child.state,
        "since": time_text(child.since),
        "rss_bytes": child.rss,
        "task_ids": list(child.task_ids),
    }


def _worker_record(worker: WorkerInfo) -> dict[str, Any]:
    return {
        "task_id": worker.task_id,
        "task_type": worker.task_type,
        **_data("task_payload", worker.task_payload),
        "queue": worker.queue,
        "started": time_text(worker.start_time),
        "deadline": time_text(worker.deadline),
    }


def drain_record(drain: Drain) -> dict[str, Any]:
    """Describe how far a queue is drained."""
    return {
        "queue": drain.queue,
        "empty": drain.empty,
        "paused": drain.paused,
        "waited_s": round(drain.waited.total_seconds(), 3),
        "processed": drain.processed,
        "failed": drain.failed,
        "remaining": {state.value: count for state, count in drain.left.items()},
    }


def follow_record(event: TaskEvent, at: datetime) -> dict[str, Any]:
    """Describe an event of a task, or the number of runs missed."""
    is_task = event.name != "missed"
    return {
        "at": time_text(at),
        "event": event.name,
        "id": event.id if is_task else None,
        "type": event.type if is_task else None,
        "state": event.state,
        "previous": event.previous,
        "error": event.error or None,
        "runs": None if is_task else event.runs,
    }


def moved_record(moved: Moved) -> dict[str, Any]:
    """Describe the result of a move."""
    return {
        "count": moved.count,
        "stayed": {"exists": moved.id_conflicts, "lock_held": moved.lock_conflicts},
        "failed": [{"id": task_id, "error": why} for task_id, why in moved.failed],
    }


def import_record(report: ImportReport, *, error: str | None = None, dry_run: bool = False) -> dict[str, Any]:
    """Describe the result of an import; ``error`` is the error that ended it early."""
    return {
        "lines": report.lines,
        "count": report.count,
        "skipped": {
            "exists": report.exists,
            "active": report.active,
            "expired": report.expired,
            "archive_full": report.archive_full,
            "bad": report.bad,
        },
        "without_lock": {"held": report.locks_held, "expired": report.locks_expired},
        "conflicts": report.conflicts,
        "bad_lines": report.bad_lines,
        "error": error,
        "dry_run": dry_run,
    }


def acted_record(count: int, failed: Mapping[str, str]) -> dict[str, Any]:
    """Describe the result of an action: the number of changed tasks, and the reason for each failed task."""
    return {"count": count, "failed": [{"id": name, "error": error} for name, error in failed.items()]}


def report_record(report: Report, repaired: Sequence[tuple[Repair, int]]) -> dict[str, Any]:
    """Describe the doctor's findings and repairs."""
    return {
        "healthy": not report.of_level(Level.PROBLEM),
        "checks": [
            {
                "check": finding.check,
                "level": finding.level.value,
                "queue": finding.queue,
                "seen": finding.seen,
                "why": finding.why or None,
                "advice": finding.advice or None,
                "count": finding.count,
                "examples": list(finding.examples),
            }
            for finding in report.findings
        ],
        "repairable": [_repair_record(one, one.count) for one in report.repairs],
        "repaired": [_repair_record(one, count) for one, count in repaired],
        "tasks": max(report.tasks, report.tasks_looked_at),
        "tasks_looked_at": report.tasks_looked_at,
        "is_partial": report.is_partial,
    }


def _repair_record(repair: Repair, count: int) -> dict[str, Any]:
    return {"check": repair.check, "queue": repair.queue, "what": repair.what, "count": count}


def entry_record(entry: SchedulerEntry) -> dict[str, Any]:
    """Describe a periodic task."""
    return {
        "id": entry.id,
        "spec": entry.spec,
        "queue": entry.queue,
        "task_type": entry.task_type,
        **_data("task_payload", entry.task_payload),
        "options": list(entry.enqueue_options),
        "next": time_text(entry.next_enqueue_time),
        "prev": time_text(entry.prev_enqueue_time),
    }


def event_record(event: SchedulerEnqueueEvent) -> dict[str, Any]:
    """Describe one time at which a periodic task was enqueued."""
    return {"task_id": event.task_id, "enqueued_at": time_text(event.enqueue_time)}
