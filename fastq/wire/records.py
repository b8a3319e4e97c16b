"""Encoding and decoding of asynq's messages about servers, running tasks and schedulers.

Each message is a class of ``fastq.wire.messages`` here; on the wire it is a ``protobuf`` message with fields of the
same names. Times have nanoseconds on the wire and microseconds here, so reading rounds down. A time outside of the
years 1 to 9999 becomes the nearest time that Python has. ``None`` is Go's zero time. Every time is written. A missing
time is read as the epoch, as in Go. These functions are not in ``codec``, because a producer needs no ``protobuf``.
"""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from fastq.common.clock import EPOCH, at_unix_ns
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

_GO_ZERO_TIME_S: Final = -62_135_596_800

R = TypeVar("R", bound=ServerInfoMessage | WorkerInfo | SchedulerEntry | SchedulerEnqueueEvent)


def encode_server_info(info: ServerInfoMessage) -> bytes:
    """Return the bytes of ``info``; the order of its queues makes no difference."""
    return _encode(_SERVER, info)


def decode_server_info(data: bytes) -> ServerInfoMessage:
    """Return the server that ``data`` describes."""
    return _decode(_SERVER, data)


def encode_worker_info(info: WorkerInfo) -> bytes:
    """Return the bytes of ``info``."""
    return _encode(_WORKER, info)


def decode_worker_info(data: bytes) -> WorkerInfo:
    """Return the running task that ``data`` describes."""
    return _decode(_WORKER, data)


def encode_scheduler_entry(entry: SchedulerEntry) -> bytes:
    """Return the bytes of ``entry``."""
    return _encode(_ENTRY, entry)


def decode_scheduler_entry(data: bytes) -> SchedulerEntry:
    """Return the periodic task that ``data`` describes."""
    return _decode(_ENTRY, data)


def encode_scheduler_enqueue_event(event: SchedulerEnqueueEvent) -> bytes:
    """Return the bytes of ``event``."""
    return _encode(_EVENT, event)


def decode_scheduler_enqueue_event(data: bytes) -> SchedulerEnqueueEvent:
    """Return the event that ``data`` describes."""
    return _decode(_EVENT, data)


class _Kind(Generic[R]):
    """A kind of record: its class, its protobuf message, and the names of its fields and of those that are times."""

    def __init__(self, record: type[R], message: type[Message]) -> None:
        self.record = record
        self.message = message
        self.names = [field.name for field in fields(record)]
        of = message.DESCRIPTOR.fields_by_name
        self.times = [name for name in self.names if of[name].message_type is Timestamp.DESCRIPTOR]


def _encode(kind: _Kind[R], record: R) -> bytes:
    values = {name: getattr(record, name) for name in kind.names}
    for name in kind.times:
        values[name] = _timestamp(name, values[name])
    try:
        return kind.message(**values).SerializeToString(deterministic=True)
    except ValueError as error:
        what = f"{kind.message.DESCRIPTOR.name}: {_culprit(kind.message, values)}"
        raise InvalidMessageError(f"cannot encode {what}: {error}") from error


def _culprit(message: type[Message], values: Mapping[str, object]) -> str:
    """Return the name of the refused field, which protobuf's errors do not contain."""
    for name, value in values.items():
        try:
            message(**{name: value})
        except ValueError:
            return name
    return "a field"


def _decode(kind: _Kind[R], data: bytes) -> R:
    try:
        message = kind.message.FromString(data)
    except (DecodeError, UnicodeDecodeError) as error:  # UnicodeDecodeError: from protobuf without a compiled parser
        raise InvalidMessageError(f"cannot decode {kind.message.DESCRIPTOR.name}: {error}") from error
    values = {name: getattr(message, name) for name in kind.names}
    for name in kind.times:
        values[name] = _moment(values[name])
    for name, plain in _CONTAINERS.items():
        if name in values:
            values[name] = plain(values[name])
    return kind.record(**values)


def _timestamp(name: str, moment: datetime | None) -> Timestamp:
    if moment is None:
        return Timestamp(seconds=_GO_ZERO_TIME_S)
    if moment.utcoffset() is None:
        raise InvalidMessageError(f"{name} has no time zone: {moment!r}")
    since = moment - EPOCH
    return Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1_000)


def _moment(stamp: Timestamp) -> datetime | None:
    ns = stamp.seconds * 1_000_000_000 + stamp.nanos
    return None if ns == _GO_ZERO_TIME_S * 1_000_000_000 else at_unix_ns(ns)


_CONTAINERS: Final[Mapping[str, type]] = {"queues": dict, "enqueue_options": tuple}
_SERVER: Final = _Kind(ServerInfoMessage, pb.ServerInfo)
_WORKER: Final = _Kind(WorkerInfo, pb.WorkerInfo)
_ENTRY: Final = _Kind(SchedulerEntry, pb.SchedulerEntry)
_EVENT: Final = _Kind(SchedulerEnqueueEvent, pb.SchedulerEnqueueEvent)
