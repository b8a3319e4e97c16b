"""The server's log: on stderr, a line an event, in asynq's form or as JSON. Payloads are never in it."""

import logging
import os
import sys
import time
from typing import Final

import orjson

__all__ = ["set_up_logging"]

_LEVELS: Final = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}


class TextFormatter(logging.Formatter):
    """Write ``fastq: pid=1 2026/11/21 00:49:04.781966 INFO: text``, time in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and a traceback after it if there is one."""
        seconds = time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(record.created))
        micros = int(record.created % 1 * 1_000_000)
        level = _LEVELS.get(record.levelno, record.levelname)
        line = f"fastq: pid={os.getpid()} {seconds}.{micros:06d} {level}: {_where(record)}{record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """Write an object a line: time (RFC 3339, UTC), level, logger, pid, message, and error if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{seconds}.{int(record.created % 1 * 1_000_000):06d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": os.getpid(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def _where(record: logging.LogRecord) -> str:
    actor = record.name.removeprefix("fastq").removeprefix(".")
    return f"{actor}: " if actor else ""


def set_up_logging(level: str, form: str) -> None:
    """Send fastq's log to stderr; called once, by the process that is a server."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logger = logging.getLogger("fastq")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())
