"""The log of servers and schedulers: on stderr, a line per event, in asynq's form or as JSON, without payloads.

Parts of a message may come from any producer, so control characters are escaped. A traceback, and any other text of
several lines, is indented below its message, so that nothing in it looks like a separate log line. Warnings and errors
are limited by kind, so that a fault that many tasks share does not flood the log.
"""

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import orjson

from fastq.common.clock import Clock, SystemClock
from fastq.log.limit import PER_S, LogLimit
from fastq.log.printable import clean

_LEVELS: Final = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}
_INDENT: Final = "    "

About: TypeAlias = Callable[[], Mapping[str, Any]]
"""A function that returns the data about the running task for each log line."""


class TextFormatter(logging.Formatter):
    """The text format: ``fastq: pid=1 2026/11/21 00:49:04.781966 INFO: text``, time in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and a traceback below it if there is one."""
        seconds = time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(record.created))
        micros = int(record.created % 1 * 1_000_000)
        level = _LEVELS.get(record.levelno, record.levelname)
        message = clean(record.getMessage())
        line = f"fastq: pid={os.getpid()} {seconds}.{micros:06d} {level}: {_where(record)}{message}"
        return "\n".join([line, *(_INDENT + below for below in _lines_below(self, record))])


class JsonFormatter(logging.Formatter):
    """The JSON format, one object per line: time (RFC 3339, UTC), level, logger, pid, message, data, traceback."""

    def __init__(self, about: About) -> None:
        super().__init__()
        self._about = about

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.created % 1 * 1_000_000):06d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": os.getpid(),
            "message": clean(record.getMessage()),
        }
        for name, value in {**self._about(), **getattr(record, "about", {})}.items():
            line[name] = clean(value) if isinstance(value, str) else value
        if below := _lines_below(self, record):
            line["traceback"] = "\n".join(below)
        return orjson.dumps(line, default=str).decode()


_LineKind: TypeAlias = tuple[str, int, str]
"""The logger, the level, and the format of the message, without arguments."""

_OTHERS: Final = ("fastq", logging.WARNING, "others")


class _StderrHandler(logging.Handler):
    """A handler that writes to the current ``sys.stderr``: of fastq's warnings and errors, ten of a kind in 10 s.

    Further lines are counted, and the counts are written before the next line. A record with ``is_limited`` always
    passes: the code that logs it limits such lines.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._limit = LogLimit[_LineKind]()

    def emit(self, record: logging.LogRecord) -> None:
        now_s = self._clock.monotonic_s()
        self._write_counts(now_s)
        kind = record.name, record.levelno, str(record.msg)
        if not _may_flood(record) or self._limit.allows(kind, now_s):
            self._write(record)

    def close(self) -> None:
        """Write the last counts; called at the end of the process."""
        self._write_counts(self._clock.monotonic_s() + PER_S)
        super().close()

    def _write_counts(self, now_s: float) -> None:
        for kind, count in self._limit.ended(now_s):
            name, level, text = kind or _OTHERS
            told = f"{count} more lines in {PER_S:.0f} s like: {re.sub('%[-#0-9.]*[a-z]', '…', text)}"
            record = logging.LogRecord(name, level, __file__, 0, told, None, None)
            record.__dict__["about"] = {"count": count}
            self._write(record)

    def _write(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - as in logging's own handlers: a failing log is no reason to fail, nor is none
            self.handleError(record)


def _may_flood(record: logging.LogRecord) -> bool:
    is_ours = record.name == "fastq" or record.name.startswith("fastq.")
    return is_ours and record.levelno >= logging.WARNING and not getattr(record, "is_limited", False)


def _where(record: logging.LogRecord) -> str:
    actor = record.name.removeprefix("fastq").removeprefix(".")
    return f"{actor}: " if actor else ""


def _lines_below(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    text = getattr(record, "below", "") or (formatter.formatException(record.exc_info) if record.exc_info else "")
    return [clean(line) for line in text.rstrip("\n").split("\n")] if text else []


def log_text(logger: logging.Logger, level: int, text: str) -> None:
    """Log a text of several lines: the first is the message, the others are indented below it."""
    first, _, below = text.partition("\n")
    logger.log(level, "%s", first, extra={"below": below})


def set_up_logging(level: str, form: str, about: About = dict, clock: Clock | None = None) -> None:
    """Send fastq's log to stderr; called once in each process of a server.

    Lines in JSON also contain what ``about`` returns.
    """
    handler = _StderrHandler(clock or SystemClock())
    handler.setFormatter(JsonFormatter(about) if form == "json" else TextFormatter())
    logger = logging.getLogger("fastq")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


def log_apps_lines() -> None:
    """Send the app's own lines to the handler of fastq's log, if it writes JSON and the root logger has no handlers.

    The level of the root logger stays as it is.
    """
    root = logging.getLogger()
    if not root.handlers:
        root.handlers = [one for one in logging.getLogger("fastq").handlers if isinstance(one.formatter, JsonFormatter)]
