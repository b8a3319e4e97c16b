"""The JSON that commands write; ``docs/cli.schema.json`` says it for those who read it, and tests hold them together.

Times are RFC 3339 in UTC, durations are seconds and named so, bytes are text where they are UTF-8 and base64 elsewhere.
"""

import base64
from datetime import UTC, datetime
from typing import Any

from fastq.info import TaskInfo
from fastq.inspector import DailyStats, QueueInfo, ServerInfo
from fastq.wire.messages import SchedulerEnqueueEvent, SchedulerEntry, WorkerInfo

__all__ = ["daily_record", "entry_record", "event_record", "queue_record", "server_record", "task_record", "time_text"]


def time_text(moment: datetime | None) -> str | None:
    """Write a time as RFC 3339 has it."""
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _data(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None, f"{name}_encoding": None}
    try:
        return {name: data.decode(), f"{name}_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data).decode(), f"{name}_encoding": "base64"}


def queue_record(info: QueueInfo) -> dict[str, Any]:
    """Describe a queue."""
    return {
        "queue": info.queue,
        "paused": info.paused,
        "size": info.size,
        "groups": info.groups,
        "latency_s": info.latency.total_seconds(),
        "memory_bytes": info.memory_usage,
        "active": info.active,
        "pending": info.pending,
        "aggregating": info.aggregating,
        "scheduled": info.scheduled,
        "retry": info.retry,
        "archived": info.archived,
        "completed": info.completed,
        "processed": info.processed,
        "failed": info.failed,
        "lost": info.lost,
        "processed_total": info.processed_total,
        "failed_total": info.failed_total,
        "archive_max": info.archive_max,
        "archive_full": info.archive_full,
        "archive_dropped": info.archive_dropped,
        "timestamp": time_text(info.timestamp),
    }


def daily_record(day: DailyStats) -> dict[str, Any]:
    """Describe what ended on one UTC day."""
    return {"date": day.date.isoformat(), "processed": day.processed, "failed": day.failed}


def task_record(info: TaskInfo) -> dict[str, Any]:
    """Describe a task."""
    return {
        "id": info.id,
        "queue": info.queue,
        "type": info.type,
        "state": info.state.value,
        **_data("payload", info.payload),
        "headers": dict(info.headers),
        "max_retry": info.max_retry,
        "retried": info.retried,
        "lost": info.lost,
        "last_error": info.last_err or None,
        "last_failed_at": time_text(info.last_failed_at),
        "timeout_s": info.timeout.total_seconds() or None,
        "deadline": time_text(info.deadline),
        "group": info.group or None,
        "next_process_at": time_text(info.next_process_at),
        "is_orphaned": info.is_orphaned,
        "retention_s": info.retention.total_seconds() or None,
        "completed_at": time_text(info.completed_at),
        **_data("result", info.result),
    }


def server_record(server: ServerInfo) -> dict[str, Any]:
    """Describe a server and what it runs."""
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


def entry_record(entry: SchedulerEntry) -> dict[str, Any]:
    """Describe a periodic task."""
    return {
        "id": entry.id,
        "spec": entry.spec,
        "task_type": entry.task_type,
        **_data("task_payload", entry.task_payload),
        "options": list(entry.enqueue_options),
        "next": time_text(entry.next_enqueue_time),
        "prev": time_text(entry.prev_enqueue_time),
    }


def event_record(event: SchedulerEnqueueEvent) -> dict[str, Any]:
    """Describe one time at which a periodic task was enqueued."""
    return {"task_id": event.task_id, "enqueued_at": time_text(event.enqueue_time)}
