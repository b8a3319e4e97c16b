"""``FastqWeb``: the web UI, its REST API and asynqmon's, as an ASGI app."""

import asyncio
import inspect
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from fastq.app.app import App
from fastq.client import AsyncClient
from fastq.common.extras import import_extra
from fastq.errors import BrokerError, FastqError
from fastq.inspector import AsyncInspector
from fastq.inspector.audit import HAS_AUDIT
from fastq.redis_url import is_cluster
from fastq.web.access import EVERYONE, Access, User
from fastq.web.audit import audit, note_refusal
from fastq.web.auth import Auth, BasicAuth, ProxyAuth, TokenAuth, TooManyFailuresError
from fastq.web.compat import ROUTES as API
from fastq.web.compressing import compress
from fastq.web.guard import SAFE, SECURITY_HEADERS, Source, is_known_host, is_same_origin, source_of
from fastq.web.links import Link
from fastq.web.metrics import METRICS
from fastq.web.pages import ROUTES as PAGES
from fastq.web.pages import error_page
from fastq.web.prometheus import check_server
from fastq.web.redaction import Redaction
from fastq.web.render import page
from fastq.web.site import Call, Exporter, Formatter, Refusal, Site, find_route
from fastq.web.streaming import EVENTS, in_parts
from fastq.web.v1 import ROOT, V1
from fastq.web.view import TooLargeError
from fastq.web.work import FullError, Shares

ROUTES: Final = [*V1, *API, *METRICS, *PAGES]
IS_LET_IN: Final = "fastq.web.is_let_in"
"""The key in a request's state that says that the request is authenticated; the server's limits depend on it."""
STREAMS_TO: Final = "fastq.web.streams_to"
"""The key in a request's state for the user against whose limit a streamed reply counts."""
REFUSED_S: Final = 1.0
EXPORTING: Final = "fastq.web.exporting"
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_OTHER: Final = re.compile(r"/(?:@|%40)([A-Za-z0-9_.-]+)(?=/|$)")
_LOGINS: Final = {NoneType: "nobody has to", BasicAuth: "name and password", TokenAuth: "token", ProxyAuth: "proxy"}
_COSTLY: Final = re.compile(r"/(?:api|doctor|events|find|history|metrics|search)(?:/|$)")
"""The paths that start work or read much data. If another site links to such a path, a page asks the user first."""


def _UNSAID(request: Request) -> None:  # noqa: N802 - a constant
    """Return None. This function is the default of ``auth``, which says that no ``auth`` was given."""


_PREFIX: Final = re.compile(r"(/[A-Za-z0-9_.~-]+)*/?")

_log = logging.getLogger("fastq.web")


@dataclass(eq=False, repr=False)  # its URL may hold a password
class FastqWeb:
    """The web UI and asynqmon's REST API as an ASGI app, to be served alone or mounted in another app.

    ``redis`` is as for ``AsyncClient``. ``also`` are the URLs of further Redis by name; each is shown below ``/@NAME``,
    otherwise like the first. ``root_path`` is the path below which a proxy shows the app, whether or not the proxy
    removes it from requests. It is not needed if another app mounts this app, or if the proxy sends
    ``X-Forwarded-Prefix``.

    ``auth`` has to be given: a callable from a Starlette ``Request`` to a ``User``, or to None to refuse. With
    ``auth=None`` everyone who can reach the app is an admin. ``read_only`` forbids all changes, ``forbidden`` forbids
    single actions. The ``Host`` of a request must be an address, localhost, or one of ``allowed_hosts``. Nobody sees
    queues that do not match the patterns in ``queues``.

    ``hide_payloads`` hides all payloads and results. ``redact`` names members of JSON objects whose values are
    replaced; it also hides payloads and results that are not JSON. The formatters are those of asynqmon's API: they get
    the type of a task and the first bytes of its payload or result, redacted.

    ``prometheus`` is the URL of a Prometheus server whose series are shown as charts. With ``metrics``, Prometheus can
    scrape the metrics of the queues at ``/metrics``; this needs prometheus_client. ``links`` are the links on the page
    of a task: URLs by name, in which ``{id}``, ``{queue}``, ``{type}`` and ``{trace_id}`` are filled in. ``app`` is an
    ``App`` whose typed tasks have fields for their arguments in the form that enqueues.
    """

    redis: str | None = None
    root_path: str = ""
    auth: Auth | None = _UNSAID
    read_only: bool = False
    forbidden: Sequence[str] = ()
    allowed_hosts: Sequence[str] = ()
    queues: Sequence[str] = ("*",)
    hide_payloads: bool = False
    redact: Sequence[str] = ()
    payload_formatter: Formatter | None = None
    result_formatter: Formatter | None = None
    prometheus: str = ""
    metrics: bool = False
    links: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[str, str] = field(default_factory=dict)
    app: App | None = None
    site: Site = field(init=False)
    others: Mapping[str, Site] = field(init=False)
    _shares: Shares = field(init=False, default_factory=Shares)

    def __post_init__(self) -> None:
        if self.auth is _UNSAID:
            raise TypeError("auth must be given; auth=None lets everyone who reaches the app do everything")
        if not _PREFIX.fullmatch(self.root_path):
            raise ValueError(f"root_path must be like /monitoring/tasks, not {self.root_path!r}")
        for name in ("forbidden", "allowed_hosts", "queues", "redact"):
            if isinstance(given := getattr(self, name), str):
                raise TypeError(f"{name} must be a sequence of str, not {given!r}")
        for name in self.also:
            if not _NAME.fullmatch(name):
                raise ValueError(f"the name of a further Redis has letters, digits, -, _ and . only, not {name!r}")
        if self.app is not None and not isinstance(self.app, App):
            raise TypeError(f"app must be a fastq.App, not {self.app!r}")
        check_server(self.prometheus)
        self.site = self._site("", self.redis)
        self.others = {name: self._site(name, url) for name, url in self.also.items()}

    def _site(self, name: str, redis: str | None) -> Site:
        return Site(
            name=name,
            others=tuple(self.also),
            inspector=AsyncInspector(redis),
            client=AsyncClient(redis),
            access=Access.of(self.read_only, self.forbidden),
            redaction=Redaction.of(self.hide_payloads, self.redact),
            queues=tuple(self.queues),
            payload_formatter=self.payload_formatter,
            result_formatter=self.result_formatter,
            prometheus=self.prometheus,
            links=Link.each_of(self.links),
            is_cluster=redis is not None and is_cluster(redis),
            app=self.app,
            login=_LOGINS.get(type(self.auth), "a function of the app"),
            exporter=_exporter(redis) if self.metrics else None,
        )

    async def close(self) -> None:
        """Stop all jobs, each between two tasks, and close the connections of the running loop."""
        await self.end_streams()
        for site in (self.site, *self.others.values()):
            await site.board.close()
            await site.inspector.close()
            await site.client.close()
            if site.exporter is not None:
                site.exporter.close()

    async def end_streams(self) -> None:
        """End the streams of all open pages; browsers connect again."""
        for site in (self.site, *self.others.values()):
            await site.live.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            request = Request(scope, receive)
            try:
                response = await self._respond(request)
                await compress(request, response)
                for name, value in SECURITY_HEADERS.items():
                    response.headers.setdefault(name, value)
                await response(scope, receive, in_parts(send))
            except FastqError as error:  # the error was raised after the head of the reply was sent
                _log.warning("%s %s was cut off: %s", scope["method"], quote(scope["path"]), error)
            finally:
                if (owner := scope.get("state", {}).pop(STREAMS_TO, None)) is not None:
                    self._shares.end_stream(owner)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _respond(self, request: Request) -> Response:
        base, path = self._paths(request)
        site = self.site
        if (found := _OTHER.match(path)) and found[1] in self.others:
            site, base, path = self.others[found[1]], f"{base}/@{found[1]}", path[found.end() :] or "/"
        call = Call(site, request, EVERYONE, base)
        try:
            self._check_origin(request)
            call.user = await self._user(request)
            call.is_let_in = True
            request.scope.setdefault("state", {})[IS_LET_IN] = True
            async with self._shares.one_of(call.owner):
                response = await self._answer(call, path)
            if isinstance(response, StreamingResponse) and response.media_type != EVENTS:
                self._shares.begin_stream(call.owner)
                request.scope["state"][STREAMS_TO] = call.owner
            return response
        except Refusal as refusal:
            note_refusal(call, path, refusal.status, refusal.text)
            response = _error(call, path, refusal.status, refusal.text)
            response.headers.update(refusal.headers)
            return response
        except TooLargeError as error:
            return _error(call, path, 413, str(error))
        except FullError as error:
            return _error(call, path, 429, str(error))
        except (FastqError, ValueError) as error:
            return _error(call, path, _status_of(error, path), str(error))
        except Exception:  # noqa: BLE001 - logged, and answered with the headers of every reply
            _log.exception("%s %s met a defect", request.method, path)
            return PlainTextResponse("a defect; the log of fastq web has the traceback", 500)

    def _paths(self, request: Request) -> tuple[str, str]:
        """Return the path with which links begin, and the rest of the request's path, not decoded."""
        scope = request.scope
        mount: str = scope.get("root_path", "")
        path: str = (scope.get("raw_path") or quote(scope["path"]).encode()).decode("latin-1").partition("?")[0]
        for prefix in (mount, self.root_path.rstrip("/")):
            if path == prefix or path.startswith(f"{prefix}/"):
                path = path.removeprefix(prefix)
        before = request.headers.get("x-forwarded-prefix", "")
        if not _PREFIX.fullmatch(before) or mount.startswith(before):
            before = ""
        return before.rstrip("/") + (mount or self.root_path).rstrip("/"), path or "/"

    def _check_origin(self, request: Request) -> None:
        host = request.headers.get("host", "")
        if not is_known_host(host, self.allowed_hosts):
            raise Refusal(403, f"Host {host!r} is not one of this server's names; fastq web --allow-host lists it")
        is_foreign = not is_same_origin(request)
        if request.method in SAFE:
            is_foreign = source_of(request) is Source.EMBEDDED
        if is_foreign:
            raise Refusal(403, "this request comes from a page of another site")

    async def _user(self, request: Request) -> User:
        if self.auth is None:
            return EVERYONE
        try:
            found = self.auth(request)
            user = await found if inspect.isawaitable(found) else found
        except TooManyFailuresError:
            await asyncio.sleep(REFUSED_S)  # or clients that try passwords would keep others waiting
            raise Refusal(429, "too many failed logins; wait a minute", {"retry-after": "60"}) from None
        if user is None:
            challenge = getattr(self.auth, "challenge", "")
            raise Refusal(401, "log in to see this", {"www-authenticate": challenge} if challenge else {})
        return user

    async def _answer(self, call: Call, path: str) -> Response:
        route, call.names = find_route(ROUTES, call.request.method, path)
        call.check_names()
        if route.action is None:
            if _COSTLY.match(path) and source_of(call.request) is Source.LINK:
                return page(call, "stray.jinja", title="Go on?", section="")
            return await route.endpoint(call)
        if self.read_only:
            raise Refusal(405, f"this server is read-only: {call.request.method} is not allowed")
        if not call.may(route.action):
            raise Refusal(403, f"{call.user.name or 'you'} may not do this: {route.action}")
        told = HAS_AUDIT.set(True)
        outcome = "failed"
        try:
            response = await route.endpoint(call)
            outcome = "done"
            return response
        except (Refusal, FastqError, ValueError) as error:
            outcome = f"failed: {error}"
            raise
        finally:
            HAS_AUDIT.reset(told)
            if call.notes is not None:
                audit(call, route.action, {"outcome": outcome, **call.notes})


def _exporter(redis: str | None) -> Exporter:
    text = "metrics need prometheus_client; install it: pip install 'fastq-worker[web,metrics]'"
    exporter: Exporter = import_extra(EXPORTING, ["prometheus_client"], text).Exporter(redis)
    return exporter


def _status_of(error: Exception, path: str) -> int:
    if path.startswith("/api/") and not path.startswith(f"{ROOT}/"):
        return 500  # as asynqmon does
    if isinstance(error, BrokerError):
        return 503 if error.transient else 500
    return 400 if path.startswith(f"{ROOT}/") and not isinstance(error, FastqError) else 409


def _error(call: Call, path: str, status: int, text: str) -> Response:
    if status >= 500:
        _log.warning("%s %s failed: %s", call.request.method, path, text)
    if path.startswith(f"{ROOT}/"):
        return Response(json.dumps({"error": text}), status, media_type="application/json")
    # A page needs its style sheet, which is sent only to authenticated clients.
    if path.startswith("/api/") or not call.is_let_in:
        return PlainTextResponse(text, status)
    return error_page(call, status, text)
