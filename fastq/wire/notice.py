"""The notice of a fastq server, its data beyond asynq's ServerInfo: JSON of bounded size."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from fastq.errors import InvalidMessageError
from fastq.wire.messages import ChildInfo, Places

FORMAT: Final = 1
"""This changes only if old readers would misread the new format; new fields do not change it."""
DATA_FORMAT: Final = 1
"""The format of the data that fastq keeps in Redis beyond asynq's; docs/upgrading.md says when it changes."""
MAX_NAME_BYTES: Final = 64_000
"""The bytes of names are limited: every server writes its notice every 5 s, and readers read all notices at once."""
MAX_CHILDREN_BYTES: Final = 32_000
CHILD_BYTES: Final = 100
"""About how many bytes a child takes without the ids of its tasks."""


@dataclass(frozen=True, slots=True)
class ServerNotice:
    """The queues of a server, the patterns of its mux, the format of the data that it writes, its children and places.

    ``left_out`` counts the names that did not fit. Children that do not fit are left out, uncounted.
    """

    version: str
    queues: tuple[str, ...]
    patterns: tuple[str, ...]
    left_out: int = 0
    data_format: int = DATA_FORMAT
    children: tuple[ChildInfo, ...] = ()
    places: tuple[Places, ...] = ()

    def encode(self) -> bytes:
        """Return the JSON, with as many names as fit."""
        names = (*self.queues, *self.patterns)
        room, _ = _fitting(names, MAX_NAME_BYTES)
        fields = {
            "format": FORMAT,
            "version": self.version,
            "data_format": self.data_format,
            "queues": self.queues[:room],
            "patterns": self.patterns[: max(0, room - len(self.queues))],
            "left_out": self.left_out + len(names) - room,
            "children": _fitting_children(self.children),
            "places": [tuple(each) for each in self.places],
        }
        return orjson.dumps(fields)

    @classmethod
    def decode(cls, data: bytes) -> "ServerNotice":
        """Read a notice; raise ``InvalidMessageError`` if the data is no notice, or has another format."""
        try:
            fields: dict[str, Any] = orjson.loads(data)
            if fields["format"] != FORMAT:
                raise InvalidMessageError(f"a server's notice has format {fields['format']!r}, not {FORMAT}")
            queues, patterns = _names(fields["queues"]), _names(fields["patterns"])
            data_format = int(fields.get("data_format", 1))
            children = tuple(map(_child, fields.get("children", ())))
            places = tuple(Places(str(kind), int(busy), int(size)) for kind, busy, size in fields.get("places", ()))
            left_out = int(fields["left_out"])
            return cls(str(fields["version"]), queues, patterns, left_out, data_format, children, places)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, InvalidMessageError):
                raise
            raise InvalidMessageError(f"a server's notice cannot be read: {data[:100]!r}") from error


def _fitting(names: Iterable[str], room: int) -> tuple[int, int]:
    """Return how many of the names fit, and the room that is left."""
    fitting = 0
    for name in names:
        size = len(orjson.dumps(name)) + 1
        if size > room:
            break
        room -= size
        fitting += 1
    return fitting, room


def _fitting_children(children: Iterable[ChildInfo]) -> list[dict[str, Any]]:
    """Return the children that fit, each with as many of its task ids as fit."""
    found: list[dict[str, Any]] = []
    room = MAX_CHILDREN_BYTES
    for child in children:
        if room < CHILD_BYTES:
            break
        fitting, room = _fitting(child.task_ids, room - CHILD_BYTES)
        since = int(child.since.timestamp())
        tasks = child.task_ids[:fitting]
        found.append({"pid": child.pid, "state": child.state, "since": since, "rss": child.rss, "tasks": tasks})
    return found


def _child(fields: dict[str, Any]) -> ChildInfo:
    since = datetime.fromtimestamp(int(fields["since"]), UTC)
    return ChildInfo(int(fields["pid"]), str(fields["state"]), since, int(fields["rss"]), _names(fields["tasks"]))


def _names(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(name, str) and name for name in found):
        raise TypeError(found)
    return tuple(found)
