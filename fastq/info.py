"""``TaskInfo``: the data of a task in Redis, as ``Client.enqueue`` and ``Inspector`` return it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from fastq.common.clock import at_unix_ns
from fastq.common.states import KeyOutcome, TaskState
from fastq.errors import no_attribute
from fastq.wire.messages import TaskMessage
from fastq.wire.progress import TaskProgress

_WAIT: Final = ".submit(...).result(timeout=...) in place of .enqueue(...): its handle waits for the task"
_ELSEWHERE: Final = {
    **dict.fromkeys(("get", "wait", "wait_result", "return_value", "get_result"), _WAIT),
    **dict.fromkeys(("ready", "status", "get_status", "is_finished", "successful", "done"), ".state"),
    **dict.fromkeys(("revoke", "abort", "cancel"), ".submit(...).cancel(), or Inspector().cancel_processing(id)"),
}
"""Attributes that other libraries' results of enqueueing have, and their equivalents here."""


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """The data of a task at the time when it was read.

    Times are in UTC, or None if there is none. A ``timeout`` or ``retention`` of zero means none. ``result`` is the
    handler's result, or None, as for a task that was just enqueued. ``result`` is not a method: to wait for the result,
    enqueue with ``submit``. ``is_orphaned`` means that the lease of an active task has expired. ``lost`` is the number
    of times that the task was lost with its server; a loss uses up no retry. ``progress`` is the handler's last report
    by ``task.progress``, or None. ``key_outcome`` says what became of a task that was just enqueued with a ``key``. If
    the outcome is ``KEPT``, nothing of this call was stored, and ``state`` is the state of the task that keeps the key.
    """

    id: str
    queue: str
    type: str
    payload: bytes
    headers: Mapping[str, str]
    state: TaskState
    max_retry: int
    retried: int
    last_err: str
    last_failed_at: datetime | None
    timeout: timedelta
    deadline: datetime | None
    group: str
    next_process_at: datetime | None
    is_orphaned: bool
    retention: timedelta
    completed_at: datetime | None
    result: bytes | None
    lost: int = 0
    progress: TaskProgress | None = None
    key_outcome: KeyOutcome | None = None

    if not TYPE_CHECKING:  # a type checker that saw this would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, "a TaskInfo", name, _ELSEWHERE)


@dataclass(frozen=True, slots=True)
class TaskHead(TaskInfo):
    """A task whose payload, result and error may be cut; ``payload_size`` and ``result_size`` are the full sizes.

    ``cut_size`` is the size of the whole message if the message was cut, else 0.
    """

    payload_size: int = 0
    result_size: int = 0
    is_cut: bool = False
    cut_size: int = 0

    @classmethod
    def of(
        cls, info: TaskInfo, payload_size: int | None, result_size: int | None, message_size: int | None = None
    ) -> "TaskHead":
        """Add the full sizes to a description; None means that the part was not cut."""
        values = {each.name: getattr(info, each.name) for each in fields(TaskInfo)}
        values["payload_size"] = len(info.payload) if payload_size is None else payload_size
        values["result_size"] = len(info.result or b"") if result_size is None else result_size
        is_cut = payload_size is not None or result_size is not None
        return cls(**values, is_cut=is_cut, cut_size=message_size or 0)


def task_info(
    message: TaskMessage,
    state: TaskState,
    *,
    next_process_at: datetime | None = None,
    is_orphaned: bool = False,
    result: bytes | None = None,
    lost: int = 0,
) -> TaskInfo:
    """Describe the task that a message holds."""
    return TaskInfo(
        id=message.id,
        queue=message.queue,
        type=message.type,
        payload=message.payload,
        headers=message.headers,
        state=state,
        max_retry=message.retry,
        retried=message.retried,
        last_err=message.error_msg,
        last_failed_at=_at_unix_s(message.last_failed_at),
        timeout=_seconds(message.timeout),
        deadline=_at_unix_s(message.deadline),
        group=message.group_key,
        next_process_at=next_process_at,
        is_orphaned=is_orphaned,
        retention=_seconds(message.retention),
        completed_at=_at_unix_s(message.completed_at),
        result=result,
        lost=lost,
    )


def _at_unix_s(unix_s: int) -> datetime | None:
    return at_unix_ns(unix_s * 1_000_000_000) if unix_s else None


def _seconds(seconds: int) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        return timedelta.max if seconds > 0 else timedelta.min
