"""What a child says of a failed task: the error as it is stored, and what the hooks decided."""

import os
import traceback
from types import FrameType, TracebackType
from typing import Final, NamedTuple

import orjson

__all__ = ["FailureReport", "describe_error"]

_MAX_TEXT: Final = 64_000


class FailureReport(NamedTuple):
    """The error text, whether it counts as a failure, and the seconds until the next attempt.

    ``retry_in_s`` None means the default delay. ``trace`` is for the log: None where it has had enough of such errors.
    A task ``is_snoozed`` that said so itself: it is run again even if it is out of retries.
    """

    error: str
    is_failure: bool = True
    retry_in_s: float | None = None
    trace: str | None = ""
    is_snoozed: bool = False

    def encode(self) -> bytes:
        """Return the report as JSON."""
        return orjson.dumps(tuple(self))

    @classmethod
    def decode(cls, data: bytes) -> "FailureReport":
        """Read what ``encode`` made."""
        return cls._make(orjson.loads(data))


def describe_error(error: BaseException) -> str:
    """Return ``Class: message (file:line)`` with the last place in the user's code; bad Unicode is replaced."""
    text = f"{type(error).__name__}: {_message(error)}".removesuffix(": ")
    place = _last_user_place(error.__traceback__)
    text = text.encode("utf-8", "replace").decode()
    if len(text) > _MAX_TEXT:
        text = text[:_MAX_TEXT] + "…"
    return f"{text} ({place})" if place else text


def trace_of(error: BaseException) -> str:
    """Return the traceback as text, for the log; it begins in the user's code if any of that is in it."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
    return "".join(lines)[-_MAX_TEXT:].encode("utf-8", "replace").decode()


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the user's __str__; a failure to describe must not become another failure
        return "<its __str__ raised>"


def _last_user_place(trace: TracebackType | None) -> str:
    """Name the last place in the user's code; if all that is not ours is installed, as libraries are, its last."""
    users = outside = None
    while trace is not None:
        frame = trace.tb_frame
        if not _is_ours(frame):
            outside = trace
            if not _is_library(frame.f_code.co_filename):
                users = trace
        trace = trace.tb_next
    last = users or outside
    return f"{_short(last.tb_frame.f_code.co_filename)}:{last.tb_lineno}" if last else ""


def _is_ours(frame: FrameType) -> bool:
    # Not by its path: compiled code knows none, and the user's package may lie beside ours.
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "fastq"


def _is_library(file: str) -> bool:
    return file.startswith("<") or "site-packages" in file or "dist-packages" in file or "/lib/python" in file


def _short(file: str) -> str:
    try:
        return file.removeprefix(f"{os.getcwd().rstrip('/')}/")
    except OSError:
        return file
