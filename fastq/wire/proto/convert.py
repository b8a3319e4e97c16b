"""Turns servers, workers and scheduler entries into the bytes that asynq keeps in Redis, and back.

Times have microseconds here and nanoseconds on the wire: what is read is cut off, and beyond the years 1 to 9999 it is
the nearest time that Python has. ``None`` stands for Go's zero time. A time is always written; one that is missing
reads as the epoch, as in Go.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from fastq.errors import InvalidMessageError
from fastq.wire.messages import SchedulerEnqueueEvent, SchedulerEntry, ServerInfoMessage, WorkerInfo
from fastq.wire.proto import asynq_pb2 as pb

__all__ = [
    "decode_scheduler_enqueue_event",
    "decode_scheduler_entry",
    "decode_server_info",
    "decode_worker_info",
    "encode_scheduler_enqueue_event",
    "encode_scheduler_entry",
    "encode_server_info",
    "encode_worker_info",
]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GO_ZERO_TIME_S = -62_135_596_800

M = TypeVar("M", bound=Message)


def encode_server_info(info: ServerInfoMessage) -> bytes:
    """Return the bytes of ``info``, the same ones in whatever order its queues are."""
    return _serialise(
        pb.ServerInfo,
        {
            "host": info.host,
            "pid": info.pid,
            "server_id": info.server_id,
            "concurrency": info.concurrency,
            "queues": info.queues,
            "strict_priority": info.strict_priority,
            "status": info.status,
            "start_time": _timestamp("start_time", info.start_time),
            "active_worker_count": info.active_worker_count,
        },
    )


def decode_server_info(data: bytes) -> ServerInfoMessage:
    """Return the server that ``data`` describes."""
    msg = _parse(pb.ServerInfo, data)
    return ServerInfoMessage(
        host=msg.host,
        pid=msg.pid,
        server_id=msg.server_id,
        concurrency=msg.concurrency,
        queues=dict(msg.queues),
        strict_priority=msg.strict_priority,
        status=msg.status,
        start_time=_moment(msg.start_time),
        active_worker_count=msg.active_worker_count,
    )


def encode_worker_info(info: WorkerInfo) -> bytes:
    """Return the bytes of ``info``."""
    return _serialise(
        pb.WorkerInfo,
        {
            "host": info.host,
            "pid": info.pid,
            "server_id": info.server_id,
            "task_id": info.task_id,
            "task_type": info.task_type,
            "task_payload": info.task_payload,
            "queue": info.queue,
            "start_time": _timestamp("start_time", info.start_time),
            "deadline": _timestamp("deadline", info.deadline),
        },
    )


def decode_worker_info(data: bytes) -> WorkerInfo:
    """Return the running task that ``data`` describes."""
    msg = _parse(pb.WorkerInfo, data)
    return WorkerInfo(
        host=msg.host,
        pid=msg.pid,
        server_id=msg.server_id,
        task_id=msg.task_id,
        task_type=msg.task_type,
        task_payload=msg.task_payload,
        queue=msg.queue,
        start_time=_moment(msg.start_time),
        deadline=_moment(msg.deadline),
    )


def encode_scheduler_entry(entry: SchedulerEntry) -> bytes:
    """Return the bytes of ``entry``."""
    return _serialise(
        pb.SchedulerEntry,
        {
            "id": entry.id,
            "spec": entry.spec,
            "task_type": entry.task_type,
            "task_payload": entry.task_payload,
            "enqueue_options": entry.enqueue_options,
            "next_enqueue_time": _timestamp("next_enqueue_time", entry.next_enqueue_time),
            "prev_enqueue_time": _timestamp("prev_enqueue_time", entry.prev_enqueue_time),
        },
    )


def decode_scheduler_entry(data: bytes) -> SchedulerEntry:
    """Return the periodic task that ``data`` describes."""
    msg = _parse(pb.SchedulerEntry, data)
    return SchedulerEntry(
        id=msg.id,
        spec=msg.spec,
        task_type=msg.task_type,
        task_payload=msg.task_payload,
        enqueue_options=tuple(msg.enqueue_options),
        next_enqueue_time=_moment(msg.next_enqueue_time),
        prev_enqueue_time=_moment(msg.prev_enqueue_time),
    )


def encode_scheduler_enqueue_event(event: SchedulerEnqueueEvent) -> bytes:
    """Return the bytes of ``event``."""
    return _serialise(
        pb.SchedulerEnqueueEvent,
        {"task_id": event.task_id, "enqueue_time": _timestamp("enqueue_time", event.enqueue_time)},
    )


def decode_scheduler_enqueue_event(data: bytes) -> SchedulerEnqueueEvent:
    """Return the event that ``data`` describes."""
    msg = _parse(pb.SchedulerEnqueueEvent, data)
    return SchedulerEnqueueEvent(task_id=msg.task_id, enqueue_time=_moment(msg.enqueue_time))


def _serialise(kind: type[M], values: Mapping[str, object]) -> bytes:
    try:
        return kind(**values).SerializeToString(deterministic=True)
    except ValueError as error:
        raise InvalidMessageError(f"cannot encode {kind.DESCRIPTOR.name}: {_culprit(kind, values)}: {error}") from error


def _culprit(kind: type[Message], values: Mapping[str, object]) -> str:
    """Return the name of the field that is refused, which protobuf's errors leave out."""
    for name, value in values.items():
        try:
            kind(**{name: value})
        except ValueError:
            return name
    return "a field"


def _parse(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InvalidMessageError(f"cannot decode {kind.DESCRIPTOR.name}: {error}") from error


def _timestamp(name: str, moment: datetime | None) -> Timestamp:
    if moment is None:
        return Timestamp(seconds=GO_ZERO_TIME_S)
    if moment.utcoffset() is None:
        raise InvalidMessageError(f"{name} has no time zone: {moment!r}")
    since = moment - EPOCH
    return Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1_000)


def _moment(stamp: Timestamp) -> datetime | None:
    ns = stamp.seconds * 1_000_000_000 + stamp.nanos
    if ns == GO_ZERO_TIME_S * 1_000_000_000:
        return None
    try:
        return EPOCH + timedelta(microseconds=ns // 1_000)
    except OverflowError:
        return (datetime.max if ns > 0 else datetime.min).replace(tzinfo=UTC)
