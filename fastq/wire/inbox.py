"""Inboxes: how a server tells a waiting client that its tasks have ended.

A task that somebody waits for names a client's inbox in a header. An inbox is a pub/sub channel, whose messages are
JSON: ``{"queue": …, "ended": [[id, kind, error], …]}``. A message saves the client a look; what a client misses it
finds in Redis.
"""

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from fastq.errors import InvalidMessageError
from fastq.wire.codec import decode_task_message

__all__ = ["INBOX_HEADER", "EndKind", "TaskEnd", "encode_ends", "error_in", "inbox_of", "read_ends_message"]

INBOX_HEADER: Final = "fastq-inbox"
_INBOX: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")
MAX_ERROR: Final = 300
"""Characters of an error in a message; the task in the archive has all of it."""


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
    listed = [(task_id, end.kind, end.error[:MAX_ERROR]) if end.error else (task_id, end.kind) for task_id, end in ends]
    return orjson.dumps({"queue": queue, "ended": listed})


def read_ends_message(data: bytes | str) -> Iterator[tuple[str, str, TaskEnd]]:
    """Yield queue, id and end of each task in a message; what cannot be read is left out."""
    try:
        body: Any = orjson.loads(data)
        queue = body["queue"]
        for task_id, kind, *error in body["ended"]:
            if kind in _KINDS:
                yield queue, task_id, TaskEnd(_KINDS[kind], error[0] if error else "", is_whole=kind in _WHOLE)
    except (ValueError, TypeError, KeyError):
        return


_KINDS: Final = {str(kind): kind for kind in EndKind}
_WHOLE: Final = frozenset({"done", "gone"})
