"""A task as its producer makes it: a type, a payload of bytes, headers and options, checked when it is made."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Unpack

import orjson

from fastq.encoding import encode_strictly
from fastq.options import NO_OPTIONS, EnqueueOptions, check_headers, check_options, check_text

__all__ = ["MAX_MESSAGE_BYTES", "Task", "encode_payload", "lock_payload"]

MAX_MESSAGE_BYTES: Final = 512 * 1024 * 1024
"""Redis takes no value above this (proto-max-bulk-len's default)."""

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


def encode_payload(payload: object, what: str = "payload") -> bytes:
    """Return bytes as they are, and anything else as JSON; ``None`` is no payload at all.

    ``TypeError`` names what cannot be encoded and its path, ``ValueError`` NaN and infinity, or the size beyond Redis'
    limit of 512 MB. ``what`` it is stands in these texts.
    """
    if payload is None:
        return b""
    if isinstance(payload, (bytes, bytearray, memoryview)):
        _check_size(memoryview(payload).nbytes, what)
        return payload if isinstance(payload, bytes) else bytes(payload)
    data = encode_strictly(payload, what)
    _check_size(len(data), what)
    return data


def _check_size(size: int, what: str) -> None:
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"{what} of {size} bytes is over Redis' limit of {MAX_MESSAGE_BYTES} bytes for a value; "
            "store it elsewhere and enqueue where it is"
        )


class Task:
    """A unit of work: ``type`` chooses the handler, ``payload`` is bytes, options say how it is to be run.

    A payload that is not bytes is encoded as JSON, numpy's scalars and arrays too; NaN and infinity are refused.
    ``None``, the default, means no payload: Go's ``nil``. On the wire it is the same as ``b""``, Go's ``[]byte{}``, but
    with its own unique lock. Options are those of ``Client.enqueue``.
    """

    __slots__ = ("_has_payload", "headers", "options", "payload", "type")

    def __init__(self, type: str, payload: Any = None, **options: Unpack[EnqueueOptions]) -> None:
        self.type = check_text(type, "task type")
        # The common case first: encode_payload returns bytes as they are, but checks more than a short one needs.
        self.payload: bytes = (
            payload if payload.__class__ is bytes and len(payload) < MAX_MESSAGE_BYTES else encode_payload(payload)
        )
        self._has_payload = payload is not None
        self.headers: Mapping[str, str] = _NO_HEADERS
        self.options: Mapping[str, Any] = NO_OPTIONS
        if options:
            headers = options.pop("headers", None)
            if headers is not None:
                self.headers = check_headers(headers, "headers")
            if options:
                self.options = check_options(options)

    def json(self) -> Any:
        """Decode the payload as JSON; ``ValueError`` if it is none."""
        return orjson.loads(self.payload)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.type!r}, <{len(self.payload)} bytes>)"


def lock_payload(task: Task) -> bytes | None:
    """Return what the unique lock of a task is made from: its payload, or None if it has none."""
    return task.payload if task._has_payload else None
