"""Links from the page of a task to other sites, such as its trace or its logs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Final
from urllib.parse import quote

from fastq.info import TaskInfo

FIELDS: Final = ("id", "queue", "type", "trace_id")
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


@dataclass(frozen=True, slots=True)
class Link:
    """A link that each task's page has; ``url`` has fields such as ``{id}``."""

    name: str
    url: str

    @classmethod
    def each_of(cls, given: Mapping[str, str]) -> tuple["Link", ...]:
        """Return the links for URLs by name; ``ValueError`` names a bad URL."""
        for name, url in given.items():
            if not name.strip() or not url.startswith(("http://", "https://")):
                raise ValueError(
                    f"link {name!r}: {url!r} must begin with http:// or https://, and the link needs a name"
                )
            for _, field, form, conversion in Formatter().parse(url):
                if field is not None and (field not in FIELDS or form or conversion):
                    known = ", ".join(f"{{{each}}}" for each in FIELDS)
                    raise ValueError(f"link {name!r}: {{{field}}} is not a field; fields are {known}")
        return tuple(cls(name, url) for name, url in given.items())

    def to(self, info: TaskInfo) -> str | None:
        """Return the URL for a task; None if the URL needs a trace id and the task has none."""
        trace = _TRACEPARENT.fullmatch(info.headers.get("traceparent", ""))
        if trace is None and "{trace_id}" in self.url:
            return None
        values = {"id": info.id, "queue": info.queue, "type": info.type, "trace_id": trace[1] if trace else ""}
        return self.url.format_map({name: quote(value, safe="", errors="replace") for name, value in values.items()})
