"""Results of Django's tasks, made from the data in Redis."""

import builtins
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote

import orjson
from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

from fastq import errors
from fastq.common.states import TaskState
from fastq.contrib.django.framework import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from fastq.info import TaskInfo
from fastq.inspector.records import FailedAttempt

ENQUEUED_AT: Final = "fastq-enqueued-at"
"""The header with the time at which a task was enqueued."""

_STATUS: Final = {
    TaskState.ACTIVE: TaskResultStatus.RUNNING,
    TaskState.COMPLETED: TaskResultStatus.SUCCESSFUL,
    TaskState.ARCHIVED: TaskResultStatus.FAILED,
}


def kept_value(value: object, started_at: datetime, worker_id: str) -> dict[str, Any]:
    """Return what is stored in Redis for a run that has just succeeded."""
    times = {"started_at": started_at.isoformat(), "finished_at": timezone.now().isoformat()}
    return {"value": value, **times, "worker_id": worker_id}


def result_id_of(queue: str, task_id: str) -> str:
    """Return the id of a result. It contains the task's id in an escaped form, since a task's id may contain colons."""
    return f"{queue}:{quote(task_id, safe='')}"


def place_of(result_id: str) -> tuple[str, str]:
    """Return the queue and the id of a result's task."""
    queue, _, task_id = result_id.rpartition(":")
    return queue, unquote(task_id)


def result_of(backend: BaseTaskBackend, info: TaskInfo, attempts: Sequence[FailedAttempt]) -> AnyResult:
    """Return the result of a task; ``attempts`` are its failed attempts."""
    status = _STATUS.get(info.state, TaskResultStatus.READY)
    call = orjson.loads(info.payload)
    kept = orjson.loads(info.result) if status == TaskResultStatus.SUCCESSFUL and info.result else {}
    starts = [_local(one.started_at) for one in attempts]
    if status == TaskResultStatus.SUCCESSFUL:
        starts.append(_local(_moment(kept.get("started_at"))))
    if status == TaskResultStatus.FAILED and not attempts:  # archived by a server that records no attempts
        attempts = [FailedAttempt(1, None, info.last_failed_at or timezone.now(), "", info.last_err, "", None)]
    result: AnyResult = TaskResult(
        task=_task_of(backend, info),
        id=result_id_of(info.queue, info.id),
        status=status,
        enqueued_at=_local(_moment(info.headers.get(ENQUEUED_AT))),
        started_at=starts[0] if starts else None,
        last_attempted_at=starts[-1] if starts else None,
        finished_at=_local(_finished_at(status, attempts, kept)),
        args=call["args"],
        kwargs=call["kwargs"],
        backend=backend.alias,
        errors=[_error_of(one) for one in attempts],
        worker_ids=_worker_ids(status, info, attempts, kept),
    )
    object.__setattr__(result, "_return_value", kept.get("value"))
    return result


def _task_of(backend: BaseTaskBackend, info: TaskInfo) -> AnyTask:
    try:
        task = import_string(info.type)
    except ImportError:
        task = None
    if not isinstance(task, Task):
        raise TaskResultDoesNotExist(f"{info.queue}:{info.id} is no task of Django, but one of type {info.type!r}")
    run_after = _local(info.next_process_at) if info.state is TaskState.SCHEDULED else None
    return replace(task, queue_name=info.queue, run_after=run_after, backend=backend.alias)


def _finished_at(status: TaskResultStatus, attempts: Sequence[FailedAttempt], kept: dict[str, Any]) -> datetime | None:
    if status == TaskResultStatus.SUCCESSFUL:
        return _moment(kept.get("finished_at"))
    return attempts[-1].ended_at if status == TaskResultStatus.FAILED else None


def _worker_ids(
    status: TaskResultStatus, info: TaskInfo, attempts: Sequence[FailedAttempt], kept: dict[str, Any]
) -> list[str]:
    """Return a worker id for each attempt, "" for an attempt that is not recorded: Redis keeps the last five only."""
    ids = [one.server for one in attempts]
    if status in (TaskResultStatus.SUCCESSFUL, TaskResultStatus.RUNNING):
        ids.append(kept.get("worker_id", ""))
    begun = info.retried + (status != TaskResultStatus.READY)
    return [""] * (begun - len(ids)) + ids


def _error_of(attempt: FailedAttempt) -> TaskError:
    return TaskError(exception_class_path=_path_of(attempt), traceback=attempt.traceback or attempt.error)


def _path_of(attempt: FailedAttempt) -> str:
    """Return the path of an error's class, from the end of the traceback: the attempt has only the class name."""
    name = attempt.error_class
    for line in reversed((attempt.traceback or "").splitlines()):
        path = line.partition(":")[0]
        if path.endswith(f".{name}") and all(part.isidentifier() for part in path.split(".")):
            return path
    for module in (builtins, errors):
        if isinstance(getattr(module, name, None), type):
            return f"{module.__name__}.{name}"
    return "builtins.Exception"


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _local(moment: datetime | None) -> datetime | None:
    """Return a time as the settings require: without USE_TZ, without its zone."""
    if moment is None or settings.USE_TZ or timezone.is_naive(moment):
        return moment
    return timezone.make_naive(moment)
