"""The JSON of asynqmon's REST API: its fields, and its formats of times, durations and bytes."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fastq.common.durations import format_duration, nanoseconds_of
from fastq.common.states import TaskState
from fastq.info import TaskInfo
from fastq.inspector import DailyStats, GroupInfo, QueueInfo, ServerInfo
from fastq.web.redaction import HIDDEN
from fastq.web.site import Formatter, Site
from fastq.wire.messages import SchedulerEnqueueEvent, SchedulerEntry, WorkerInfo

ZERO_TIME: Final = "0001-01-01T00:00:00Z"
UNPRINTABLE: Final = "non-printable bytes"
ASYNQ_STATUS: Final = {"quiet": "stopped", "stopping": "closed"}
CENTISECOND_NS: Final = 10_000_000
SECOND: Final = timedelta(seconds=1)


def _time(moment: datetime | None) -> str:
    """Format a time in whole seconds; None becomes Go's zero time."""
    return ZERO_TIME if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time_or_nothing(moment: datetime | None) -> str:
    return "" if moment is None else _time(moment)


def printable_text(data: bytes) -> str:
    """Return bytes as text if they are printable UTF-8 and not blank, otherwise asynqmon's placeholder."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return UNPRINTABLE
    return text if text.isprintable() and text.strip() else UNPRINTABLE


def _payload(site: Site, type: str, payload: bytes) -> str:
    return _formatted(site.payload_formatter, type, payload)


def _result(site: Site, type: str, result: bytes | None) -> str:
    return _formatted(site.result_formatter, type, result or b"")


def _formatted(formatter: Formatter | None, type: str, data: bytes) -> str:
    return printable_text(data) if formatter is None or data == HIDDEN else formatter(type, data)


def queue_json(info: QueueInfo) -> dict[str, Any]:
    """Describe a queue."""
    latency_ns = nanoseconds_of(info.latency, name="latency")
    rounded_ns = (latency_ns + CENTISECOND_NS // 2) // CENTISECOND_NS * CENTISECOND_NS
    return {
        "queue": info.queue,
        "memory_usage_bytes": info.memory_usage or 0,
        "size": info.size,
        "groups": info.groups,
        "latency_msec": latency_ns // 1_000_000,
        "display_latency": format_duration(rounded_ns),
        **{state.value: getattr(info, state.value) for state in TaskState},
        "processed": info.processed,
        "succeeded": info.processed - info.failed,
        "failed": info.failed,
        "paused": info.paused,
        "timestamp": info.timestamp.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }


def daily_json(day: DailyStats) -> dict[str, Any]:
    """Describe the runs that ended on a day."""
    return {
        "queue": day.queue,
        "processed": day.processed,
        "succeeded": day.processed - day.failed,
        "failed": day.failed,
        "date": day.date.isoformat(),
    }


def group_json(group: GroupInfo) -> dict[str, Any]:
    """Describe a group."""
    return {"group": group.group, "size": group.size}


def listed_json(site: Site, info: TaskInfo, workers: Mapping[str, WorkerInfo]) -> dict[str, Any]:
    """Describe a task in the list of its state; ``workers`` are those of active tasks, by id."""
    return {
        "id": info.id,
        "type": info.type,
        "payload": _payload(site, info.type, info.payload),
        "queue": info.queue,
        "max_retry": info.max_retry,
        "retried": info.retried,
        "error_message": info.last_err,
        **_of_state(site, info, workers),
    }


def _of_state(site: Site, info: TaskInfo, workers: Mapping[str, WorkerInfo]) -> dict[str, Any]:
    match info.state:
        case TaskState.ACTIVE:
            worker = workers.get(info.id)
            return {
                "start_time": _time(worker.start_time) if worker else "-",
                "deadline": _time(worker.deadline) if worker else "-",
                "is_orphaned": info.is_orphaned,
            }
        case TaskState.SCHEDULED | TaskState.RETRY:
            return {"next_process_at": _time(info.next_process_at)}
        case TaskState.ARCHIVED:
            return {"last_failed_at": _time(info.last_failed_at)}
        case TaskState.COMPLETED:
            return {
                "completed_at": _time(info.completed_at),
                "result": _result(site, info.type, info.result),
                "ttl_seconds": _left_s(info),
            }
        case TaskState.AGGREGATING:
            return {"group": info.group}
        case _:
            return {}


def task_json(site: Site, info: TaskInfo) -> dict[str, Any]:
    """Describe a task in full."""
    return {
        "id": info.id,
        "queue": info.queue,
        "type": info.type,
        "payload": _payload(site, info.type, info.payload),
        "state": info.state.value,
        "max_retry": info.max_retry,
        "retried": info.retried,
        "error_message": info.last_err,
        "last_failed_at": _time_or_nothing(info.last_failed_at),
        "timeout_seconds": int(info.timeout / SECOND),
        "deadline": _time_or_nothing(info.deadline),
        "next_process_at": _time_or_nothing(info.next_process_at),
        "completed_at": _time_or_nothing(info.completed_at),
        "result": _result(site, info.type, info.result),
        "ttl_seconds": _left_s(info),
    }


def _left_s(info: TaskInfo) -> int:
    """Return the seconds for which a completed task is still kept."""
    if info.state is not TaskState.COMPLETED or info.completed_at is None:
        return 0
    return int((info.completed_at - datetime.now(UTC) + info.retention) / SECOND)


def server_json(site: Site, server: ServerInfo) -> dict[str, Any]:
    """Describe a server, with asynq's words for its status."""
    return {
        "id": server.id,
        "host": server.host,
        "pid": server.pid,
        "concurrency": server.concurrency,
        "queue_priorities": dict(server.queues),
        "strict_priority_enabled": server.strict_priority,
        "start_time": _time(server.started),
        "status": ASYNQ_STATUS.get(server.status, server.status),
        "active_workers": [
            {
                "task_id": worker.task_id,
                "queue": worker.queue,
                "task_type": worker.task_type,
                "task_payload": _payload(site, worker.task_type, worker.task_payload),
                "start_time": _time(worker.start_time),
            }
            for worker in server.active_workers
        ],
    }


def entry_json(site: Site, entry: SchedulerEntry) -> dict[str, Any]:
    """Describe a periodic task."""
    previous = {"prev_enqueue_at": _time(entry.prev_enqueue_time)} if entry.prev_enqueue_time else {}
    return {
        "id": entry.id,
        "spec": entry.spec,
        "task_type": entry.task_type,
        "task_payload": _payload(site, entry.task_type, entry.task_payload),
        "options": list(entry.enqueue_options),
        "next_enqueue_at": _time(entry.next_enqueue_time),
        **previous,
    }


def event_json(event: SchedulerEnqueueEvent) -> dict[str, Any]:
    """Describe one time at which a periodic task was enqueued."""
    return {"task_id": event.task_id, "enqueued_at": _time(event.enqueue_time)}
