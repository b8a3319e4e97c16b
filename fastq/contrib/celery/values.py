"""Arguments and results as JSON, with Celery's marks for the types that JSON lacks."""

import base64
import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

_TYPES: Final[tuple[tuple[str, type, Callable[[Any], Any], Callable[[Any], Any]], ...]] = (
    ("datetime", datetime, datetime.isoformat, datetime.fromisoformat),  # before date: it is a subclass
    ("date", date, date.isoformat, date.fromisoformat),
    ("time", time, time.isoformat, time.fromisoformat),
    ("decimal", Decimal, str, Decimal),
    ("uuid", UUID, lambda value: {"hex": value.hex}, lambda value: UUID(**value)),
    ("bytes", bytes, lambda value: base64.b64encode(value).decode(), base64.b64decode),
)
_READERS: Final = {name: read for name, _, _, read in _TYPES}


def encode(value: Any, what: str) -> bytes:
    """Return a value as JSON; ``TypeError``, or ``ValueError`` for NaN and infinity, names ``what``."""
    try:
        return json.dumps(value, default=_marked, allow_nan=False, separators=(",", ":")).encode()
    except TypeError as error:
        raise TypeError(f"{what} cannot be sent: {error}") from None
    except ValueError as error:
        raise ValueError(f"{what} cannot be sent: {error}") from None


def decode(data: bytes | None) -> Any:
    """Return the value that was encoded, None if ``data`` is None; ``ValueError`` if ``data`` is malformed."""
    return None if data is None else json.loads(data, object_hook=_unmarked)


def _marked(value: object) -> dict[str, Any]:
    for name, kind, write, _ in _TYPES:
        if isinstance(value, kind):
            return {"__type__": name, "__value__": write(value)}
    raise TypeError(f"{value!r} is of type {type(value).__qualname__}, which JSON cannot hold")


def _unmarked(found: dict[str, Any]) -> Any:
    if found.keys() != {"__type__", "__value__"}:
        return found
    read = _READERS.get(found["__type__"])
    return found if read is None else read(found["__value__"])
