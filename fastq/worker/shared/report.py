"""A child's report of a failed task: the error as it is stored, and the decisions of the hooks.

It is the data of the pool's ``Event`` for the end of the attempt.
"""

import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import Final, NamedTuple

import orjson

from fastq.log.traces import is_library, is_ours
from fastq.worker.shared.known_traces import KnownTraces

_MAX_TEXT: Final = 64_000
_MOST_ERRORS: Final = 5
_MOST_PLACES: Final = 1000
_CAUSE: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"
_INNER: Final = "\nThe above exception is one of this group:\n\n"
_PLAIN: Final = ("builtins", "__main__")
"""Modules that Python's own tracebacks leave out, too."""


class FailureReport(NamedTuple):
    """The error text, whether it counts as a failure, and the seconds until the next attempt.

    ``retry_in_s`` None means the default delay. ``trace`` is for the log, and None if the log limit is reached. If
    ``is_snoozed``, the handler asked for another run, which the task gets even if it is out of retries. If
    ``rests_lane``, the task's lane starts nothing until that run. ``final`` is the reason why a task with retries left
    is not retried. ``fingerprint`` identifies the kind of error (``worker/shared/fingerprint.py``). ``kept`` is the
    text of ``frames_of`` to keep in Redis, empty if the limit (``Turns``) keeps none of this error. ``max_retry`` is
    the limit that the handler has set, or None for the limit in the message.
    """

    error: str
    is_failure: bool = True
    retry_in_s: float | None = None
    trace: str | None = ""
    is_snoozed: bool = False
    final: str = ""
    fingerprint: str = ""
    kept: str = ""
    max_retry: int | None = None
    rests_lane: bool = False

    @property
    def error_class(self) -> str:
        """Return the class of the error, which begins the error's text."""
        return self.error.partition(":")[0].partition(" ")[0]

    def limit(self, of_message: int) -> int:
        """Return how often the task may be retried, given the message's number."""
        return of_message if self.max_retry is None else self.max_retry

    def encode(self) -> bytes:
        """Return the report as JSON."""
        return orjson.dumps(tuple(self))

    def encode_with(self, trace: str | None, fingerprint: str, kept: str) -> bytes:
        """Return the report as JSON, with a traceback for the log, a fingerprint, and the frames to keep."""
        # ``_replace`` and ``encode`` do the same at twice the price.
        error, is_failure, retry_in_s, _, is_snoozed, final, _, _, *rest = self
        return orjson.dumps((error, is_failure, retry_in_s, trace, is_snoozed, final, fingerprint, kept, *rest))

    @classmethod
    def decode(cls, data: bytes) -> "FailureReport":
        """Return the report that ``encode`` has encoded."""
        return cls._make(orjson.loads(data))


def describe_error(error: BaseException) -> str:
    """Return ``Class: message (file:line)`` with the last place in the user's code; bad Unicode is replaced."""
    text = f"{type(error).__name__}: {_message(error)}".removesuffix(": ")
    place = _USER_PLACES.of((error,))
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    if len(text) > _MAX_TEXT:
        text = text[:_MAX_TEXT] + "…"
    return f"{text} ({place})" if place else text


def trace_of(error: BaseException) -> str:
    """Return the traceback as text for the log; it begins in the user's code, if it passes through any."""
    lines = traceback.format_exception(type(error), error, _outside(error))
    return "".join(lines)[-_MAX_TEXT:].encode("utf-8", "replace").decode()


def frames_of(error: BaseException) -> str:
    """Return the traceback with the class of each error and no messages; the last line is the class of this error.

    One such text is kept for many tasks with different messages, and no task may show the values of another.
    """
    return "".join(_frames(error, [error])).removesuffix("\n").encode("utf-8", "replace").decode()


def _frames(error: BaseException, seen: list[BaseException]) -> Iterator[str]:
    """Yield the lines of the errors that led to ``error``, and then its own; ``seen`` limits their number."""
    cause, context = error.__cause__, None if error.__suppress_context__ else error.__context__
    before = [(cause, _CAUSE) if cause is not None else (context, _CONTEXT)]
    before += [(each, _INNER) for each in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    for each, link in before:
        if each is not None and len(seen) < _MOST_ERRORS and all(each is not other for other in seen):
            seen.append(each)
            yield from _frames(each, seen)
            yield link
    if trace := _outside(error):
        yield "Traceback (most recent call last):\n"
        yield from traceback.format_tb(trace)
    kind = type(error)
    yield f"{kind.__qualname__}\n" if kind.__module__ in _PLAIN else f"{kind.__module__}.{kind.__qualname__}\n"


def _outside(error: BaseException) -> TracebackType | None:
    """Return the traceback from the first frame outside of fastq; all of it if there is no such frame."""
    trace = error.__traceback__
    while trace is not None and is_ours(trace.tb_frame):
        trace = trace.tb_next
    return trace or error.__traceback__


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the user's __str__; a failure to describe must not become another failure
        return "<its __str__ raised>"


def _last_user_place(errors: Sequence[BaseException]) -> str:
    """Return the last place in the user's own code; without one, the last place in a library."""
    users = outside = None
    trace = errors[0].__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if not is_ours(frame):
            outside = trace
            if not is_library(frame.f_code.co_filename):
                users = trace
        trace = trace.tb_next
    last = users or outside
    return _place(last.tb_frame.f_code.co_filename, last.tb_lineno) if last else ""


@lru_cache(_MOST_PLACES)
def _place(file: str, line: int) -> str:
    """Return a place in the code, relative to the directory that was the working directory at the first error there."""
    with suppress(OSError):
        file = file.removeprefix(f"{os.getcwd().rstrip('/')}/")
    return f"{file}:{line}"


_USER_PLACES: Final = KnownTraces(_last_user_place)
