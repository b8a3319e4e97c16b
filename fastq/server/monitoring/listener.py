"""The HTTP side of ``metrics_listen``: ``/metrics``, ``/healthz`` and ``/readyz``, from the loop of the server.

It answers GET and HEAD, one request a connection. A long answer is made in stretches of a millisecond, between which
the loop does its other work.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final, NamedTuple

from fastq.errors import ServerStartError
from fastq.server.base.config import host_and_port
from fastq.server.monitoring.exposition import Format, render
from fastq.server.monitoring.families import families
from fastq.server.monitoring.health import why_not_ready, why_unhealthy
from fastq.server.wiring.process import ServerProcess

STRETCH_S: Final = 0.001
MOST_CONNECTIONS: Final = 16
"""The most connections at a time.

A further connection ends the one whose client has kept us waiting longest. If no client does, the new connection is
closed.
"""
MOST_HEAD_BYTES: Final = 16_384
HEAD_S: Final = 2.0
"""The time limit for a request."""
PATIENCE_S: Final = 10.0
"""The time limit for an answer."""
_PLAIN: Final = "text/plain; charset=utf-8"

_log = logging.getLogger("fastq")


class _Answer(NamedTuple):
    status: HTTPStatus
    content_type: str
    blocks: Iterator[str]


@asynccontextmanager
async def monitoring(address: str | None, process: ServerProcess) -> AsyncIterator[None]:
    """Answer requests at an address until the context ends; ``ServerStartError`` if it cannot be used.

    Without an address, do nothing.
    """
    if address is None:
        yield
        return
    host, port = host_and_port(address)
    listener = Listener(process)
    try:
        server = await asyncio.start_server(listener.serve, host, port, limit=MOST_HEAD_BYTES)
    except OSError as error:
        raise ServerStartError(f"metrics_listen: cannot listen on {address}: {error.strerror or error}") from None
    port = server.sockets[0].getsockname()[1]
    _log.info("metrics at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)
    try:
        yield
    finally:
        server.close()
        await listener.close()


class Listener:
    """The connections of the monitoring side of a server."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self._connections: set[asyncio.Task[None]] = set()
        # The connections that wait for their client to send the request or to read the answer; the oldest first.
        self._idle: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        if len(self._connections) >= MOST_CONNECTIONS and not self._end_the_oldest():
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._idle[task] = writer
        try:
            # Whatever the peer does (close, reset, wait, send no HTTP), only its connection is given up.
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(HEAD_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                self._idle.pop(task, None)
                async with asyncio.timeout(PATIENCE_S):
                    parts = await self._answer(head)
                    self._idle[task] = writer
                    await _send(parts, writer)
        finally:
            self._idle.pop(task, None)
            self._connections.discard(task)
            writer.transport.abort()  # close() would wait for as long as the client reads nothing

    def _end_the_oldest(self) -> bool:
        """End the connection whose client has kept us waiting for longest; return whether there is one."""
        if not self._idle:
            return False
        task, writer = next(iter(self._idle.items()))
        del self._idle[task]
        self._connections.discard(task)
        writer.transport.abort()  # a canceled coroutine would be logged by asyncio
        return True

    async def close(self) -> None:
        """Give up the connections that are open."""
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _answer(self, head: bytes) -> list[bytes]:
        """Return the parts of the answer to a request."""
        request, _, rest = head.decode("latin-1").partition("\r\n")
        method, _, target = request.partition(" ")
        answer = self._answer_to(method, target.split(" ")[0].partition("?")[0], rest)
        body = await in_stretches(answer.blocks)
        lines = (
            f"HTTP/1.1 {answer.status} {answer.status.phrase}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {sum(map(len, body))}",
            "Cache-Control: no-store",
            "Connection: close",
            *(("Allow: GET, HEAD",) if answer.status is HTTPStatus.METHOD_NOT_ALLOWED else ()),
        )
        head_of_it = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        return [head_of_it] if method == "HEAD" else [head_of_it, *body]

    def _answer_to(self, method: str, path: str, headers: str) -> _Answer:
        if method not in ("GET", "HEAD"):
            return _said(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not allowed")
        if path == "/metrics":
            is_open = "application/openmetrics-text" in _accepted(headers)
            format = Format.OPENMETRICS if is_open else Format.PROMETHEUS
            return _Answer(HTTPStatus.OK, format.value, render(families(self._process), format))
        checks: dict[str, Callable[[ServerProcess], str]] = {"/healthz": why_unhealthy, "/readyz": why_not_ready}
        if path not in checks:
            return _said(HTTPStatus.NOT_FOUND, "there are /metrics, /healthz and /readyz")
        why = checks[path](self._process)
        return _said(HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK, why or "ok")


async def _send(parts: Iterable[bytes], writer: asyncio.StreamWriter) -> None:
    """Send an answer, and wait until all of it has gone out."""
    writer.transport.set_write_buffer_limits(0)
    for part in parts:
        writer.write(part)
        await writer.drain()


async def in_stretches(blocks: Iterator[str]) -> list[bytes]:
    """Return the text of blocks in parts, each made in about a millisecond, with turns of the loop between them."""
    parts: list[bytes] = []
    texts: list[str] = []
    began_s = time.monotonic()
    for block in blocks:
        texts.append(block)
        if time.monotonic() - began_s > STRETCH_S:
            parts.append("".join(texts).encode())
            texts.clear()
            await asyncio.sleep(0)
            began_s = time.monotonic()
    parts.append("".join(texts).encode())
    return parts


def _accepted(headers: str) -> str:
    """Return the value of the Accept header, in lower case."""
    return next((line[7:].lower() for line in headers.split("\r\n") if line[:7].lower() == "accept:"), "")


def _said(status: HTTPStatus, text: str) -> _Answer:
    return _Answer(status, _PLAIN, iter((f"{text}\n",)))
