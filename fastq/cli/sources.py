"""The settings of a command from flag, environment variable or file, in this order; and the search path for the app."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from fastq.app.app import App
from fastq.cli.connection import runner_url, search_here
from fastq.log.traces import own_trace
from fastq.server.settings import from_file, parse_kind
from fastq.worker.names import AppNameError, resolve, split_name

__all__ = [
    "Sources",
    "checked_app",
    "import_app",
    "read_count",
    "read_flag",
    "read_seconds",
    "read_text",
    "search_here",
    "typed_app",
]

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
        """Return the value of the first source that has one, else None; ``ValueError`` names the source."""
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
    """Return a string as it is."""
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


def import_app(name: str) -> Any:
    """Import what ``module:attr`` names; a name that leads nowhere is misuse.

    If the module raises, the command ends with 1, and the user's own lines of the traceback.
    """
    search_here()
    try:
        return resolve(name)
    except AppNameError as error:
        raise click.UsageError(str(error)) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything at its import
        click.echo(f"fastq: the import of {name} failed:\n{own_trace(error)}", err=True, nl=False)
        raise click.exceptions.Exit(1) from None


def typed_app(name: str) -> App:
    """Import an ``App`` that has typed tasks."""
    found = import_app(name)
    if not isinstance(found, App):
        raise click.UsageError(f"{name!r} must be a fastq.App, not {type(found).__name__}")
    if not found.tasks:
        raise click.UsageError(f"{name!r} has no typed tasks; add some with @app.task")
    return found
