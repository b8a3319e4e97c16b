"""A task as its producer creates it: a type, a payload of bytes, headers and options, checked at creation."""

from collections.abc import Callable, Mapping
from copy import copy
from types import MappingProxyType
from typing import Any, Final, Generic, Self, TypeVar, Unpack

import orjson

from fastq.common.encoding import PayloadCodec, encode_strictly
from fastq.options import NO_OPTIONS, EnqueueOptions, check_headers, check_options, check_text

MAX_MESSAGE_BYTES: Final = 512 * 1024 * 1024
"""Redis takes no larger value (proto-max-bulk-len's default)."""

CONTENT_TYPE: Final = "content-type"
"""The header that names the codec of a payload; a payload without it is JSON."""
JSON: Final = "application/json"

_BYTES: Final = (bytes, bytearray, memoryview)
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


def encode_payload(payload: object, what: str = "payload", codec: PayloadCodec | None = None) -> bytes:
    """Return bytes as they are, anything else encoded by the codec, or as JSON without one; ``None`` is no payload.

    ``TypeError`` names a part that cannot be encoded, and its path. ``ValueError`` names NaN or infinity, or a size
    above Redis' limit of 512 MB. ``what`` is the name of the value in these errors.
    """
    if payload is None:
        return b""
    if isinstance(payload, _BYTES):
        _check_size(memoryview(payload).nbytes, what)
        return payload if isinstance(payload, bytes) else bytes(payload)
    data = encode_strictly(payload, what) if codec is None else codec.encode(payload)
    if not isinstance(data, bytes):
        raise TypeError(f"the payload codec {codec!r} returned {type(data).__name__}, not bytes")
    _check_size(len(data), what)
    return data


def _check_size(size: int, what: str) -> None:
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"{what} of {size} bytes is over Redis' limit of {MAX_MESSAGE_BYTES} bytes for a value; "
            "store it elsewhere and enqueue a reference"
        )


class Task:
    """A unit of work: ``type`` chooses the handler, ``payload`` is bytes, and options control how it runs.

    A payload that is not bytes is encoded by ``codec``, which the header ``content-type`` then names, or else as JSON.
    JSON takes numpy's scalars and arrays, but not NaN and infinity. ``None``, the default, means no payload: Go's
    ``nil``. On the wire it is the same as ``b""``, Go's ``[]byte{}``, but it has its own unique lock. The options are
    those of ``Client.enqueue``.
    """

    __slots__ = ("_has_payload", "headers", "options", "payload", "type")

    def __init__(
        self, type: str, payload: Any = None, codec: PayloadCodec | None = None, **options: Unpack[EnqueueOptions]
    ) -> None:
        self.type = check_text(type, "task type")
        # The common case first: encode_payload returns bytes unchanged, but checks more than a short payload needs.
        self.payload: bytes = (
            payload
            if payload.__class__ is bytes and len(payload) < MAX_MESSAGE_BYTES
            else encode_payload(payload, codec=codec)
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
        if codec is not None and payload is not None and not isinstance(payload, _BYTES):
            self.headers = {CONTENT_TYPE: check_text(codec.content_type, "content_type"), **self.headers}

    def json(self) -> Any:
        """Decode the payload as JSON; ``ValueError`` if it is not JSON."""
        return orjson.loads(self.payload)

    def decode(self, *codecs: PayloadCodec) -> Any:
        """Decode the payload by the codec that the header ``content-type`` names; without this header, as JSON.

        ``ValueError`` names a content type that none of ``codecs`` has.
        """
        content_type = self.headers.get(CONTENT_TYPE, JSON)
        for codec in codecs:
            if codec.content_type == content_type:
                return codec.decode(self.payload)
        if content_type == JSON:
            return self.json()
        known = ", ".join([JSON, *(codec.content_type for codec in codecs)])
        raise ValueError(f"the payload of a task {self.type!r} is {content_type!r}, and what can be decoded is {known}")

    def replace(self, payload: bytes | None = None, **options: Unpack[EnqueueOptions]) -> Self:
        """Return a copy with another payload or other options; ``headers``, if given, replace all headers."""
        checked = check_options(options)
        made = copy(self)
        made.headers = checked.pop("headers", self.headers)
        made.options = {**self.options, **checked}
        if payload is not None:
            if not isinstance(payload, bytes):
                raise TypeError(f"payload must be bytes, not {type(payload).__name__}: {payload!r}")
            made.payload, made._has_payload = payload, True
        return made

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.type!r}, <{len(self.payload)} bytes>)"


R = TypeVar("R")


class TaskCall(Task, Generic[R]):
    """A task made by the ``task`` method of a typed function; its result is of type ``R``."""

    __slots__ = ("decode_result",)

    decode_result: Callable[[bytes | None], R]


def lock_payload(task: Task) -> bytes | None:
    """Return the basis of a task's unique lock: its payload, or None if it has none."""
    return task.payload if task._has_payload else None


def with_options(task: Task, checked: Mapping[str, Any]) -> Task:
    """Return a task with the checked options of a call, which take precedence over the task's own."""
    if not checked:
        return task
    made, options = copy(task), dict(checked)
    made.headers = {**task.headers, **options.pop("headers", {})}
    made.options = {**task.options, **options}
    return made
