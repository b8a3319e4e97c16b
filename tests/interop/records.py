"""What the Go peer tells, as Python values. Times and durations are whole nanoseconds; None is nil or the zero time."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, TypedDict


class PeerError(Exception):
    """An error of asynq's, or of the request: ``error_class`` is what README.md lists."""

    def __init__(self, error_class: str, text: str) -> None:
        super().__init__(f"{error_class}: {text}")
        self.error_class = error_class
        self.text = text


class GoOptions(TypedDict, total=False):
    """asynq's options; what is absent is not given to asynq. Times: unix seconds or RFC 3339."""

    queue: str
    task_id: str
    max_retry: int
    timeout_ns: int
    deadline: float | str
    unique_ns: int
    process_at: float | str
    process_in_ns: int
    retention_ns: int
    group: str


@dataclass(frozen=True)
class GoTask:
    """A task for asynq; payload None is Go's nil. ``task_options`` go to NewTask, ``options`` to Enqueue."""

    type: str
    payload: bytes | None = b""
    headers: Mapping[str, str] | None = None
    options: GoOptions | None = None
    task_options: GoOptions | None = None

    def params(self) -> dict[str, Any]:
        """Return the request's parameters; those not set are left out."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class _Record:
    """Fields named as in the peer's JSON; one too many or too few is an error."""

    @classmethod
    def from_json(cls, fields_: Mapping[str, Any]) -> Self:
        return cls(**{name: _value(name, value) for name, value in fields_.items()})


@dataclass(frozen=True)
class GoTaskInfo(_Record):
    """asynq.TaskInfo."""

    id: str
    queue: str
    type: str
    payload: bytes | None
    headers: Mapping[str, str] | None
    state: str
    max_retry: int
    retried: int
    last_err: str
    last_failed_at_ns: int | None
    timeout_ns: int
    deadline_ns: int | None
    group: str
    next_process_at_ns: int | None
    is_orphaned: bool
    retention_ns: int
    completed_at_ns: int | None
    result: bytes | None


@dataclass(frozen=True)
class Execution(_Record):
    """One run of the scripted handler; ``end_ns`` is None while it runs."""

    server: str
    id: str
    type: str
    payload: bytes | None
    headers: Mapping[str, str] | None
    queue: str
    retried: int
    max_retry: int
    deadline_ns: int | None
    start_ns: int
    end_ns: int | None
    outcome: str


def _value(name: str, value: Any) -> Any:
    if name in {"payload", "result"} and value is not None:
        return base64.b64decode(value)
    return value
