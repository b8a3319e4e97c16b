"""The classes that all routes share: the site, a call to it, and a row of the route table."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote

from starlette.requests import Request
from starlette.responses import Response

from fastq.app.app import App
from fastq.client import AsyncClient
from fastq.common.states import TaskState
from fastq.errors import QueueNotFoundError
from fastq.inspector import AsyncInspector
from fastq.web.access import Access, User
from fastq.web.addresses import address_of
from fastq.web.links import Link
from fastq.web.live import Live
from fastq.web.past import Past
from fastq.web.redaction import Redaction
from fastq.web.view import View
from fastq.web.work import Board, Turns

MOST_BODY_BYTES: Final = 1_000_000
MOST_FIELDS: Final = 2_000
BODY_S: Final = 30.0

Formatter: TypeAlias = Callable[[str, bytes], str]
"""Turns the type of a task and its payload or result into text."""

_PLAIN: Final = re.compile(rb"[A-Za-z0-9_.:-]")
_ESCAPED: Final = re.compile(r"~([0-9A-Fa-f]{2})")


class Refusal(Exception):  # noqa: N818 - the reply to a request, not a defect
    """Raised to answer a request with an error."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers or {}


class Exporter(Protocol):
    """A writer of a Redis' metrics. Its implementation is in ``fastq.web.exporting``, which needs prometheus_client."""

    async def text(self, accept: str, view: View) -> tuple[bytes, str]:
        """Return the metrics that a user may see, in an accepted format, and the format's name."""

    def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True, slots=True)
class Site:
    """What a ``FastqWeb`` serves.

    The formatters are None if bytes are shown unchanged, ``exporter`` is None if no metrics are served. Nobody sees
    queues that do not match the patterns in ``queues``. ``name`` is empty for the first Redis, ``others`` are the names
    of further Redis. ``app`` has the typed tasks that the form offers, ``login`` says how users log in.
    """

    name: str
    others: tuple[str, ...]
    inspector: AsyncInspector
    client: AsyncClient
    access: Access
    redaction: Redaction
    queues: tuple[str, ...]
    payload_formatter: Formatter | None
    result_formatter: Formatter | None
    prometheus: str
    links: tuple[Link, ...]
    is_cluster: bool
    app: App | None
    login: str
    exporter: Exporter | None
    board: Board = field(default_factory=Board)
    live: Live = field(default_factory=Live)
    turns: Turns = field(default_factory=Turns)
    past: Past = field(default_factory=Past)


@dataclass(slots=True)
class Call:
    """One authenticated request. ``base`` is the path with which all links begin, ``names`` are the names in the path.
    ``notes`` are the route's additions to the audit line, None if it has changed nothing. ``parts`` are the parts of
    the page that are updated while it is open, by name; ``is_live`` means that only these parts are needed.
    """

    site: Site
    request: Request
    user: User
    base: str
    names: Mapping[str, str] = field(default_factory=dict)
    notes: dict[str, Any] | None = field(default_factory=dict)
    is_let_in: bool = False
    parts: dict[str, str] = field(default_factory=dict)
    is_live: bool = False

    @property
    def inspector(self) -> AsyncInspector:
        """Return the inspector, for actions; to read data, use ``view``, which leaves out what the user may not see."""
        return self.site.inspector

    @property
    def view(self) -> View:
        """Return a view of the data that the user may see."""
        globs = (self.site.queues, tuple(self.user.queues))
        return View(self.site.inspector, globs, self.site.redaction, self.site.turns, self.owner)

    @property
    def owner(self) -> str:
        """Return the name to which limits apply: the user's, or the address if there is no login."""
        client = self.request.client
        return self.user.name or (address_of(client.host) if client else "")

    def check_names(self) -> None:
        """Refuse the path of a queue that the user does not see, as if there were no such queue."""
        queue = self.names.get("queue")
        if queue is not None and not self.view.sees(queue):
            raise Refusal(404, str(QueueNotFoundError(queue)))

    def require_all_queues(self, what: str) -> None:
        """Refuse a page about all queues to a user who sees only some."""
        if not self.view.is_of_all:
            raise Refusal(403, f"{what} all queues, and you see some of them")

    def state(self) -> TaskState:
        """Return the state in the path."""
        try:
            return TaskState(self.names["state"])
        except ValueError:
            raise Refusal(404, f"there is no state {self.names['state']!r}") from None

    async def redis_info(self) -> Mapping[str, str]:
        """Return INFO, or CLUSTER INFO of a cluster."""
        self.require_all_queues("INFO tells of")
        return await (self.inspector.cluster_info() if self.site.is_cluster else self.inspector.redis_info())

    def may(self, action: str) -> bool:
        """Return whether the user may use an action here."""
        return self.site.access.may(self.user, action)

    def number(self, name: str, default: int, most: int) -> int:
        """Return a whole number of the query from 1 to ``most``; the default for anything else, as in asynqmon."""
        try:
            return min(max(1, int(self.request.query_params.get(name, default))), most)
        except ValueError:
            return default

    async def body(self) -> bytes:
        """Read the body, up to a limit."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(BODY_S):
                async for part in self.request.stream():
                    size += len(part)
                    if size > MOST_BODY_BYTES:
                        raise Refusal(413, f"the body is larger than {MOST_BODY_BYTES:,} bytes")
                    parts.append(part)
        except TimeoutError:
            raise Refusal(408, f"the body did not come within {BODY_S:g} s") from None
        return b"".join(parts)

    async def form(self) -> list[tuple[str, str]]:
        """Read the fields of a form."""
        try:
            text = (await self.body()).decode()
        except ValueError:
            raise Refusal(400, "the form is not UTF-8") from None
        if text.count("&") >= MOST_FIELDS:
            raise Refusal(400, f"the form has {text.count('&') + 1:,} fields; at most {MOST_FIELDS:,} are possible")
        try:
            return parse_qsl(text, keep_blank_values=True, errors="strict")
        except ValueError:
            raise Refusal(400, "the form is not UTF-8") from None


Endpoint: TypeAlias = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """A row of the route table: ``action`` is the action that it performs, None if it only reads. ``pattern`` is a path
    in which ``{name}`` matches anything without a slash. ``live_s`` is how many seconds pass between updates of an open
    page, 0 for no updates; ``is_own`` means that the page differs for each user. ``reply`` and ``query`` describe a
    route of ``/api/v1``: the schema of its reply, and the parameters that it takes.
    """

    method: str
    pattern: str
    endpoint: Endpoint
    action: str | None = None
    live_s: int = 0
    is_own: bool = False
    reply: str = ""
    query: tuple[str, ...] = ()
    regex: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        parts = re.split(r"\{(\w+)\}", self.pattern)
        regex = "".join(f"(?P<{part}>[^/]+)" if at % 2 else re.escape(part) for at, part in enumerate(parts))
        object.__setattr__(self, "regex", re.compile(regex))


def find_route(routes: list[Route], method: str, path: str) -> tuple[Route, dict[str, str]]:
    """Return the route for a path, given in its quoted form, and the names in the path."""
    path = path.replace("%3A", ":").replace("%3a", ":")
    known = set()
    for route in routes:
        if match := route.regex.fullmatch(path):
            if method in (route.method, "HEAD" if route.method == "GET" else ""):
                return route, {name: _read_name(value) for name, value in match.groupdict().items()}
            known.add(route.method)
    if known:
        raise Refusal(405, f"{method} is not possible here", {"allow": ", ".join(sorted(known))})
    raise Refusal(404, "there is no such page")


def name_in_path(name: str) -> str:
    """Return the name of a queue, task or group as one segment of a path. Special bytes become ``~2F`` and the like,
    because some proxies treat ``%2F`` as a slash, and browsers treat a quoted ``..`` as the folder above.
    """
    data = name.encode("utf-8", "surrogateescape")
    if not data.strip(b"."):
        return "".join(f"~{byte:02X}" for byte in data)
    return "".join(chr(byte) if _PLAIN.match(bytes([byte])) else f"~{byte:02X}" for byte in data)


def _read_name(text: str) -> str:
    return unquote(_ESCAPED.sub(r"%\1", text))
