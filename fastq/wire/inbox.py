"""Inboxes: how a server tells a waiting client that its tasks have ended.

A task that a client waits for names the client's inbox in one header, and the nonce of its submit in another. An inbox
is a pub/sub channel with JSON messages: ``{"queue": …, "ended": [[id, kind, error or result, nonce], …]}``. With a
message, the client need not look at the task; without it, the client finds the end in Redis. A message about a deleted
task may arrive when another task has the same id. So a client takes a message as the end only if the message echoes the
nonce.
"""

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from fastq.errors import InvalidMessageError, TaskFailedError, TaskGoneError
from fastq.wire.codec import decode_task_message

INBOX_HEADER: Final = "fastq-inbox"
SUBMIT_HEADER: Final = "fastq-submit"
_NAME: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")
MAX_ERROR: Final = 300
"""How many characters of an error a message holds at most; the archived task holds the whole error."""
MAX_RESULT: Final = 500
"""How many bytes of a result a message holds at most.

A longer result, or one that is not UTF-8, is read from the task.
"""


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
    """The end of a task, as far as it is known; if ``is_whole``, Redis has no further data about it.

    ``fingerprint`` identifies the kind of the last error; ``traceback`` is empty unless one is kept for this
    fingerprint.
    """

    kind: EndKind
    error: str = ""
    result: bytes | None = None
    is_whole: bool = False
    fingerprint: str = ""
    traceback: str = ""


ERRORS: Final[Mapping[EndKind, Callable[[str, str, TaskEnd], Exception]]] = {
    EndKind.FAILED: lambda queue, task_id, end: TaskFailedError(queue, task_id, end.error, end.traceback),
    EndKind.GONE: lambda queue, task_id, end: TaskGoneError(queue, task_id),
}
"""The errors of ends without a result, by queue, id and end."""
TOLD_ONCE: Final = ERRORS.keys() - {EndKind.GONE}
"""Ends that a message may tell, and a later look in Redis may not: by then the task may be gone."""


class Awaiter(NamedTuple):
    """The client that waits for a task: its inbox, and the nonce of its submit; "" from a client that sends none."""

    inbox: str
    submit: str = ""


def awaiter_in(headers: Mapping[str, str]) -> Awaiter | None:
    """Return the client that a task's headers name."""
    inbox, submit = headers.get(INBOX_HEADER, ""), headers.get(SUBMIT_HEADER, "")
    return Awaiter(inbox, submit if _NAME.fullmatch(submit) else "") if _NAME.fullmatch(inbox) else None


def new_name() -> str:
    """Return a new, unique name for an inbox or a submit."""
    return secrets.token_urlsafe(12)


def mark_of(submit: str) -> bytes:
    """Return the bytes of the submit header, which the messages of its tasks contain; empty for ""."""
    if not submit:
        return b""
    name, value = SUBMIT_HEADER.encode(), submit.encode()
    return b"\n%c%b\x12%c%b" % (len(name), name, len(value), value)


def error_in(message: bytes | None) -> str:
    """Return the error text in an archived task's message; "" if the message cannot be read."""
    try:
        return decode_task_message(message or b"").error_msg
    except InvalidMessageError:
        return ""


def encode_ends(queue: str, ends: Iterable[tuple[str, TaskEnd, str]]) -> bytes:
    """Return the message about some ends; each end comes with its task's id and the nonce of the submit."""
    return orjson.dumps({"queue": queue, "ended": [_entry(*end) for end in ends]})


def opening_of(queue: str) -> bytes:
    """Return the beginning of a message, before its first end."""
    return b'{"queue":%b,"ended":[' % orjson.dumps(queue)


def encode_end(task_id: str, end: TaskEnd, submit: str) -> bytes:
    """Return the part of a message about one end."""
    return orjson.dumps(_entry(task_id, end, submit))


def _entry(task_id: str, end: TaskEnd, submit: str) -> tuple[str | None, ...]:
    more = _more(end)
    if submit:
        return task_id, end.kind, more, submit
    return (task_id, end.kind) if more is None else (task_id, end.kind, more)


def _more(end: TaskEnd) -> str | None:
    if end.error:
        return end.error[:MAX_ERROR]
    if end.result is not None and len(end.result) <= MAX_RESULT:
        with suppress(UnicodeDecodeError):
            return end.result.decode()
    return None


def read_ends_message(data: bytes | str) -> list[tuple[tuple[str, str, str], TaskEnd]]:
    """Return the ends in a message by queue, id and nonce; ``ValueError`` unless all of it is well-formed.

    The nonce is "" from a server that sends none. An end of an unknown kind is left out.
    """
    try:
        body: Any = orjson.loads(data)
    except ValueError as error:
        raise ValueError(f"{data[:200]!r} is not JSON: {error}") from None
    is_formed = isinstance(body, dict) and isinstance(body.get("queue"), str) and isinstance(body.get("ended"), list)
    if not is_formed or not all(map(_is_formed, body["ended"])):
        raise ValueError(f"{data[:200]!r} is not a message of ends")
    queue = body["queue"]
    return [
        ((queue, entry[0], entry[3] if len(entry) > 3 else ""), _end_in(*entry[1:3]))
        for entry in body["ended"]
        if entry[1] in _ENDS
    ]


def _end_in(kind: str, more: str | None = None) -> TaskEnd:
    end = _ENDS[kind]
    if more is not None and end.kind is EndKind.RESULT:
        return end._replace(result=more.encode(), is_whole=True)
    return end._replace(error=more) if more is not None and end.kind in TOLD_ONCE else end


def _is_formed(entry: Any) -> bool:
    if type(entry) is not list or len(entry) < 2:
        return False
    return all(type(word) is str or (word is None and at == 2) for at, word in enumerate(entry))


_KEPT: Final = (EndKind.RESULT, EndKind.FAILED)
_ENDS: Final = {kind.value: TaskEnd(kind, is_whole=kind not in _KEPT) for kind in EndKind}
