"""Queries to a Prometheus server, and asynqmon's reply with its nine series of metrics."""

import asyncio
import base64
import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlencode, urlsplit

import msgspec

T = TypeVar("T")

LIMIT_S: Final = 10.0
MOST_BYTES: Final = 8_000_000
"""How many bytes a reply may have; nine replies are in memory at a time."""
PIECE_BYTES: Final = 1_000_000
REDIRECTS: Final = range(300, 400)
HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
POINTS: Final = 3000
_STEPS: Final = ((6 * HOUR_S, 10), (DAY_S, 60), (8 * DAY_S, 180), (30 * DAY_S, 600))
_QUERIES: Final = {
    "queue_size": "asynq_queue_size{%s}",
    "queue_latency_seconds": "asynq_queue_latency_seconds{%s}",
    "queue_memory_usage_approx_bytes": "asynq_queue_memory_usage_approx_bytes{%s}",
    "tasks_processed_per_second": "rate(asynq_tasks_processed_total{%s}[5m])",
    "tasks_failed_per_second": "rate(asynq_tasks_failed_total{%s}[5m])",
    "error_rate": "rate(asynq_tasks_failed_total{%s}[5m]) / rate(asynq_tasks_processed_total{%s}[5m])",
    "pending_tasks_by_queue": 'asynq_tasks_enqueued_total{state="pending",%s}',
    "retry_tasks_by_queue": 'asynq_tasks_enqueued_total{state="retry",%s}',
    "archived_tasks_by_queue": 'asynq_tasks_enqueued_total{state="archived",%s}',
}
# Separate threads, so that a Prometheus that hangs does not keep logins waiting.
_THREADS: Final = ThreadPoolExecutor(len(_QUERIES), "prometheus")


@dataclass(frozen=True, slots=True)
class Times:
    """The times of the points of a series, in unix seconds."""

    start: int
    end: int
    step: int


def check_server(url: str) -> None:
    """Raise ``ValueError`` for a text that cannot be the URL of a server; an empty text means no server."""
    try:
        parts = urlsplit(url)
        is_right = not url or (parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0)
    except ValueError:  # the port is not a number
        is_right = False
    if not is_right:
        raise ValueError("the URL of Prometheus must be like http://prometheus.example:9090")


def without_password(url: str) -> str:
    """Return the URL of a server without its password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def selector_of(queues: Iterable[str]) -> str:
    """Return the selector for some queues, with special characters in their names escaped."""
    names = "|".join(map(re.escape, queues))
    quoted = names.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'queue=~"{quoted}"'


async def metrics(server: str, asked: Mapping[str, str]) -> bytes:
    """Return Prometheus' replies as one JSON object; ``ValueError`` names a bad parameter, ``OSError`` a failure."""
    duration_s = _whole(asked, "duration", HOUR_S)
    end_s = _whole(asked, "endtime", int(time.time()))
    if not server:
        raise OSError("no server is configured (--prometheus-addr)")
    step_s = next((step for longest, step in _STEPS if duration_s <= longest), duration_s // POINTS)
    queues = asked.get("queues", "")
    selector = selector_of(queues.split(",")) if queues else ""
    queries = [query.replace("%s", selector) for query in _QUERIES.values()]
    replies = await ask(server, queries, Times(end_s - duration_s, end_s, step_s), _json)
    return (
        b"{" + b",".join(b'"%b":%b' % (name.encode(), got) for name, got in zip(_QUERIES, replies, strict=True)) + b"}"
    )


def _whole(asked: Mapping[str, str], name: str, default: int) -> int:
    text = asked.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ValueError(f"invalid value provided for {name}: {text!r}") from None


def _json(body: bytes) -> bytes:
    """Return a reply unchanged if it is JSON."""
    msgspec.json.decode(body)
    return body


async def ask(server: str, queries: Iterable[str], times: Times, read: Callable[[bytes], T]) -> list[T]:
    """Send range queries, all at once; return the replies as decoded by ``read``, or raise ``OSError``. ``read`` runs
    in a thread, and raises ``msgspec.DecodeError`` for a body that is not a reply of Prometheus.
    """
    loop, told = asyncio.get_running_loop(), {"start": times.start, "end": times.end, "step": times.step}
    requests = [_request(server, urlencode({"query": query, **told})) for query in queries]
    try:
        async with asyncio.timeout(LIMIT_S):
            work = [loop.run_in_executor(_THREADS, partial(_read, request, read)) for request in requests]
            return await asyncio.gather(*work)
    except TimeoutError:
        raise OSError(f"no reply within {LIMIT_S:g} s") from None


def _request(server: str, query: str) -> urllib.request.Request:
    parts = urlsplit(server)
    userinfo, _, host = parts.netloc.rpartition("@")
    path = f"{parts.path.rstrip('/')}/api/v1/query_range"
    asked = "&".join(filter(None, (parts.query, query)))
    request = urllib.request.Request(parts._replace(netloc=host, path=path, query=asked, fragment="").geturl())
    if userinfo:
        credentials = base64.b64encode(unquote(userinfo).encode()).decode()
        request.add_header("Authorization", f"Basic {credentials}")
    return request


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects, since they could lead to any server, and send the password there."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse the redirect."""


_OPENER: Final = urllib.request.build_opener(_NoRedirects)


def _body(reply: Any) -> bytes:
    """Read a reply for ``LIMIT_S`` at most; the socket's own time limit applies only to each read."""
    until_s, body = time.monotonic() + LIMIT_S, bytearray()
    while piece := reply.read1(PIECE_BYTES):
        body += piece
        if len(body) > MOST_BYTES:
            raise OSError(f"the reply has more than {MOST_BYTES:,} bytes")
        if time.monotonic() > until_s:
            raise OSError(f"no whole reply within {LIMIT_S:g} s")
    return bytes(body)


def _read(request: urllib.request.Request, read: Callable[[bytes], T]) -> T:
    status = 200
    try:
        try:
            with _OPENER.open(request, timeout=LIMIT_S) as reply:
                body = _body(reply)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in REDIRECTS:
                    raise OSError(f"HTTP status {error.code}: redirects are not followed") from None
                status, body = error.code, _body(error)  # the JSON of the reply says what is wrong
        return read(body)
    except urllib.error.URLError as error:
        raise OSError(getattr(error.reason, "strerror", None) or str(error.reason)) from None
    except http.client.HTTPException as error:
        raise OSError(f"it speaks no HTTP: {error!r}") from None
    except (msgspec.DecodeError, RecursionError):
        raise OSError(f"HTTP status {status}, and no reply of Prometheus") from None
