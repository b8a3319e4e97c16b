"""What fastq's Inspector tells, put into the words of the Go peer, and what the peer told, made ready to compare.

What only Go tells apart (nil and empty) is made one; times are cut to the microseconds that a datetime has.
"""

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fastq import SchedulerEntry, TaskInfo, TaskState, WorkerInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OF_SERVER = {"host", "pid", "server_id"}
OUR_NAMES = {"started_ns": "started", "deadline_ns": "deadline"}


def unix_ns(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - EPOCH) // timedelta(microseconds=1) * 1000


def ns(length: timedelta) -> int:
    return length // timedelta(microseconds=1) * 1000


def task_as_go_tells(info: TaskInfo) -> dict[str, Any]:
    """Put a task into the words of the Go peer; what is now in one and a little later in the other is left out."""
    return {
        "id": info.id,
        "queue": info.queue,
        "type": info.type,
        "payload": info.payload,
        "headers": dict(info.headers),
        "state": info.state.value,
        "max_retry": info.max_retry,
        "retried": info.retried,
        "last_err": info.last_err,
        "last_failed_at_ns": unix_ns(info.last_failed_at),
        "timeout_ns": ns(info.timeout),
        "deadline_ns": unix_ns(info.deadline),
        "group": info.group,
        "next_process_at_ns": "now" if info.state is TaskState.PENDING else unix_ns(info.next_process_at),
        "is_orphaned": info.is_orphaned,
        "retention_ns": ns(info.retention),
        "completed_at_ns": unix_ns(info.completed_at),
        "result": info.result or b"",
    }


def task_as_go_told(told: dict[str, Any]) -> dict[str, Any]:
    """Make one of Go's nil and empty; the bytes are base64."""
    return {
        **told,
        "payload": base64.b64decode(told["payload"] or ""),
        "result": base64.b64decode(told["result"] or ""),
        "headers": told["headers"] or {},
        "next_process_at_ns": "now" if told["state"] == "pending" else told["next_process_at_ns"],
    }


def told_of(record: Any, names: Sequence[str]) -> dict[str, Any]:
    """Put a server or worker into the words of the Go peer, to the microsecond."""
    values = {name: getattr(record, name) for name in names}
    for name, value in values.items():
        if isinstance(value, datetime):
            values[name] = unix_ns(value)
    if workers := values.get("active_workers"):
        values["active_workers"] = [
            told_of(worker, [name for name in WorkerInfo.__slots__ if name not in OF_SERVER]) for worker in workers
        ]
    return values


def told(server: dict[str, Any]) -> dict[str, Any]:
    """Put what the Go peer told of a server into the same form."""
    workers = [
        {
            "start_time" if name == "started_ns" else OUR_NAMES.get(name, name): cut(name, value)
            for name, value in worker.items()
        }
        for worker in server["active_workers"]
    ]
    return {OUR_NAMES.get(name, name): cut(name, value) for name, value in server.items()} | {"active_workers": workers}


def cut(name: str, value: Any) -> Any:
    if name == "task_payload":
        return base64.b64decode(value)
    return value // 1000 * 1000 if name.endswith("_ns") else value


def entry_as_go_tells(entry: SchedulerEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "spec": entry.spec,
        "task": {"type": entry.task_type, "payload": base64.b64encode(entry.task_payload).decode(), "headers": None},
        "opts": list(entry.enqueue_options),
        "next_ns": unix_ns(entry.next_enqueue_time),
        "prev_ns": unix_ns(entry.prev_enqueue_time),
    }
