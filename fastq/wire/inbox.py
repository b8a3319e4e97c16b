"""Inboxes: how a server tells a waiting client that its tasks have ended.

A task that somebody waits for names a client's inbox in a header. An inbox is a pub/sub channel, whose messages are
JSON: ``{"queue": …, "ended": [[id, kind, error or result], …]}``. A message saves the client a look; what a client
misses it finds in Redis.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from fastq.errors import InvalidMessageError
from fastq.wire.codec import decode_task_message

__all__ = [
    "INBOX_HEADER",
    "EndKind",
    "TaskEnd",
    "encode_end",
    "encode_ends",
    "error_in",
    "inbox_of",
    "opening_of",
    "read_ends_message",
]

INBOX_HEADER: Final = "fastq-inbox"
_INBOX: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")
MAX_ERROR: Final = 300
"""Characters of an error in a message; the task in the archive has all of it."""
MAX_RESULT: Final = 500
"""Bytes of a result in a message; a longer one, or one that is not UTF-8, is read from the task."""


class EndKind(StrEnum):
    """How a task has ended."""

    DONE = "done"
    """Completed without a result."""
    RESULT = "result"
    """Completed with a result."""
    FAILED = "failed"
    """Archived."""
    GONE = "gone"
    """Deleted."""


class TaskEnd(NamedTuple):
    """The end of a task, as far as it is known; ``is_whole`` if there is no more to be read of it.

    ``fingerprint`` is that of the last error; ``traceback`` is empty unless one is kept for it.
    """

    kind: EndKind
    error: str = ""
    result: bytes | None = None
    is_whole: bool = False
    fingerprint: str = ""
    traceback: str = ""


def inbox_of(data: bytes) -> str | None:
    """Return the inbox that a task's message names."""
    try:
        inbox = decode_task_message(data).headers.get(INBOX_HEADER)
    except InvalidMessageError:
        return None  # the child will say so
    return inbox if inbox is not None and _INBOX.fullmatch(inbox) else None


def error_in(message: bytes | None) -> str:
    """Return the error in the message of an archived task, "" if that cannot be read."""
    try:
        return decode_task_message(message or b"").error_msg
    except InvalidMessageError:
        return ""


def encode_ends(queue: str, ends: Iterable[tuple[str, TaskEnd]]) -> bytes:
    """Return the message that tells of ends by task id."""
    return orjson.dumps({"queue": queue, "ended": [_entry(task_id, end) for task_id, end in ends]})


def opening_of(queue: str) -> bytes:
    """Return a message up to its first end."""
    return b'{"queue":%b,"ended":[' % orjson.dumps(queue)


def encode_end(task_id: str, end: TaskEnd) -> bytes:
    """Return the part of a message that tells of one end."""
    return orjson.dumps(_entry(task_id, end))


def _entry(task_id: str, end: TaskEnd) -> tuple[str, ...]:
    if end.error:
        return task_id, end.kind, end.error[:MAX_ERROR]
    if end.result is not None and len(end.result) <= MAX_RESULT:
        with suppress(UnicodeDecodeError):
            return task_id, end.kind, end.result.decode()
    return task_id, end.kind


def read_ends_message(data: bytes | str) -> list[tuple[tuple[str, str], TaskEnd]]:
    """Return the ends in a message by queue and id; ``ValueError`` unless all of it is well-formed.

    An end of a kind that is not known is left out.
    """
    try:
        body: Any = orjson.loads(data)
    except ValueError as error:
        raise ValueError(f"{data[:200]!r} is not JSON: {error}") from None
    is_formed = isinstance(body, dict) and isinstance(body.get("queue"), str) and isinstance(body.get("ended"), list)
    if not is_formed or not all(map(_is_formed, body["ended"])):
        raise ValueError(f"{data[:200]!r} is not a message of ends")
    queue = body["queue"]
    return [((queue, entry[0]), _end_in(*entry[1:3])) for entry in body["ended"] if entry[1] in _ENDS]


def _end_in(kind: str, more: str | None = None) -> TaskEnd:
    if more is not None and kind == EndKind.FAILED:
        return TaskEnd(EndKind.FAILED, more)
    if more is not None and kind == EndKind.RESULT:
        return TaskEnd(EndKind.RESULT, result=more.encode(), is_whole=True)
    return _ENDS[kind]


def _is_formed(entry: Any) -> bool:
    return type(entry) is list and len(entry) > 1 and all(type(word) is str for word in entry)


_ENDS: Final = {kind.value: TaskEnd(kind, is_whole=kind in (EndKind.DONE, EndKind.GONE)) for kind in EndKind}
