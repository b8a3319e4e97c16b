"""The audit: a line of JSON in the log ``fastq.audit`` for each call of an inspector that changes something.

A line says who made the call, on which Redis, with which arguments and outcome, and how many tasks were changed.
Payloads are left out.
"""

import getpass
import json
import logging
import os
import socket
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import Enum
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from fastq.broker.operation import Flow
from fastq.wire.limit import Limit

P = ParamSpec("P")
T = TypeVar("T")

HAS_AUDIT: Final[ContextVar[bool]] = ContextVar("fastq_has_audit", default=False)
"""Whether the caller writes an audit line itself, as the web UI does, whose line also names its user."""
_SECRET: Final = frozenset({"payload"})

_log = logging.getLogger("fastq.audit")


def audited(flow: Callable[Concatenate[Any, P], Flow[T]]) -> Callable[Concatenate[Any, P], Flow[T]]:
    """Make a method write an audit line for each call, unless it refuses its arguments."""
    its = signature(flow)

    @wraps(flow)
    def method(self: Any, /, *args: P.args, **named: P.kwargs) -> Flow[T]:
        result: T | None = None
        outcome = "stopped"
        try:
            result = yield from flow(self, *args, **named)
            outcome = "done"
            return result
        except (ValueError, TypeError):
            outcome = ""
            raise
        except Exception as error:
            outcome = f"failed: {error}"
            raise
        finally:
            if outcome and not HAS_AUDIT.get():
                given = its.bind(self, *args, **named).arguments
                note_change(
                    method.__name__.lstrip("_"), self.where, {**_plain(given), "outcome": outcome, **_count_of(result)}
                )

    return method


def note_change(action: str, where: str, notes: dict[str, Any]) -> None:
    """Write the audit line of a change."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user id has no name
        user = str(os.getuid())
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    who = {"time": now, "user": user, "host": socket.gethostname(), "pid": os.getpid(), "redis": where}
    _log.info("%s", json.dumps({**who, "action": action, **notes}))


def _plain(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that an audit line may show: names, states, numbers, limits, and the question of a job."""
    said = {name: getattr(value, "question", value) for name, value in given.items() if name not in _SECRET}
    said = {name: value.value if isinstance(value, Enum) else value for name, value in said.items()}
    said = {name: str(value) if isinstance(value, Limit) else value for name, value in said.items()}
    return {name: value for name, value in said.items() if isinstance(value, str | int)}


def _count_of(result: object) -> dict[str, int]:
    """Return how many tasks were changed, if the method's result says so."""
    counts = (result, getattr(result, "count", None), getattr(result, "done", None))
    return next(({"count": n} for n in counts if isinstance(n, int) and not isinstance(n, bool)), {})
