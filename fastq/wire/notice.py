"""The notice of a fastq server, its data beyond asynq's ServerInfo: JSON of bounded size."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from fastq.errors import InvalidMessageError

__all__ = ["DATA_FORMAT", "FORMAT", "ServerNotice"]

FORMAT: Final = 1
"""Changes only if present readers would misread the new form; new fields do not change it."""
DATA_FORMAT: Final = 1
"""The form of what fastq keeps in Redis beyond asynq's; see docs/upgrading.md for when it changes."""
MAX_NAME_BYTES: Final = 64_000
"""Bounded, because every server writes its notice every 5 s, and others read those of all servers at once."""


@dataclass(frozen=True, slots=True)
class ServerNotice:
    """The queues of a server, the patterns of its mux, and the form of the data that it writes.

    ``left_out`` counts the names without room.
    """

    version: str
    queues: tuple[str, ...]
    patterns: tuple[str, ...]
    left_out: int = 0
    data_format: int = DATA_FORMAT

    def encode(self) -> bytes:
        """Return the JSON, with as many names as fit."""
        names = (*self.queues, *self.patterns)
        room = _fitting(names)
        fields = {
            "format": FORMAT,
            "version": self.version,
            "data_format": self.data_format,
            "queues": self.queues[:room],
            "patterns": self.patterns[: max(0, room - len(self.queues))],
            "left_out": self.left_out + len(names) - room,
        }
        return orjson.dumps(fields)

    @classmethod
    def decode(cls, data: bytes) -> "ServerNotice":
        """Read a notice; ``InvalidMessageError`` if it is not one, or has another format."""
        try:
            fields: dict[str, Any] = orjson.loads(data)
            if fields["format"] != FORMAT:
                raise InvalidMessageError(f"a server's notice has format {fields['format']!r}, not {FORMAT}")
            queues, patterns = _names(fields["queues"]), _names(fields["patterns"])
            data_format = int(fields.get("data_format", 1))
            return cls(str(fields["version"]), queues, patterns, int(fields["left_out"]), data_format)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidMessageError):
                raise
            raise InvalidMessageError(f"a server's notice cannot be read: {data[:100]!r}") from error


def _fitting(names: Iterable[str]) -> int:
    """Return how many of the names fit."""
    fitting = size = 0
    for name in names:
        size += len(orjson.dumps(name)) + 1
        if size > MAX_NAME_BYTES:
            break
        fitting += 1
    return fitting


def _names(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(name, str) and name for name in found):
        raise TypeError(found)
    return tuple(found)
