"""Reads a command's own settings from its flags, environment variables or file, in this order."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fastq.cli.connection import runner_url
from fastq.server.base.settings import from_file, parse_kind
from fastq.worker.shared.names import split_name

T = TypeVar("T")


class Sources:
    """The sources of the command's own settings (not the server's): flag, environment, file."""

    def __init__(self, flags: dict[str, Any]) -> None:
        self._flags = flags
        path = flags["config"] or os.environ.get("FASTQ_CONFIG")
        self.file = from_file(Path(path)) if path else {}

    def redis(self) -> str | None:
        """Return the URL of Redis, None if no source names one."""
        return runner_url(self._flags, self.file)

    def connect_timeout_s(self) -> float:
        """Return how long to wait for Redis at the start."""
        seconds = self.first("connect_timeout", read_seconds)
        return 30.0 if seconds is None else seconds

    def first(self, name: str, read: Callable[[Any], T]) -> T | None:
        """Return the first source's value, None if no source has one; ``ValueError`` names the source."""
        variable = f"FASTQ_{name.upper()}"
        for source, value in (
            (name.replace("_", "-"), self._flags[name]),
            (variable, os.environ.get(variable) or None),
            (f"{name} in the file", self.file.get(name)),
        ):
            if value is not None:
                try:
                    return read(value)
                except ValueError as error:
                    raise ValueError(f"{source}: {error}") from None
        return None


def read_text(value: object) -> str:
    """Check that a value is a string."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


def read_flag(value: object) -> bool:
    """Return a boolean, also from a text such as "true"."""
    flag: bool = value if isinstance(value, bool) else parse_kind("flag", read_text(value))
    return flag


def read_count(value: object) -> int:
    """Return a number of at least 1."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    count: int = parse_kind("count", str(value) if is_number else read_text(value))
    if count < 1:
        raise ValueError(f"{value!r} is not a number of at least 1")
    return count


def read_seconds(value: object) -> float:
    """Return a time to wait: a number of seconds, or a duration such as 1m30s."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    seconds = float(parse_kind("seconds", str(value) if is_number else read_text(value)))
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{value!r} is not a time to wait")
    return seconds


def checked_app(app: str | None, what: str) -> str:
    """Return the name of an app; ``ValueError`` if it is missing, or not a name."""
    if not app:
        raise ValueError(f"APP is missing: name {what}")
    split_name(app)
    return app
