"""Serves a ``FastqWeb`` on a port of this machine."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fastq.log.setup import set_up_logging
from fastq.web.access import User
from fastq.web.app import FastqWeb
from fastq.web.auth import auth_of, new_token, new_user_line
from fastq.web.compat_records import printable_text
from fastq.web.site import Formatter

__all__ = [
    "FastqWeb",
    "Protocol",
    "ServeOptions",
    "User",
    "auth_of",
    "is_loopback",
    "new_token",
    "new_user_line",
    "serve",
    "shortened",
]

GRACE_S: Final = 5
HEAD_S: Final = 10.0
"""How long a connection may be open without the whole head of a request."""
MOST_CONNECTIONS: Final = 900
"""Below the usual limit of open files, 1024; further ones get status 503."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Where to listen; ``port`` 0 is any free one. ``say`` gets the line that says where."""

    host: str
    port: int
    log_format: str
    say: Callable[[str], None]


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def shortened(most: int) -> Formatter:
    """Return asynqmon's formatter, which cuts long texts."""

    def shorten(type: str, data: bytes) -> str:
        text = printable_text(data)
        return f"{text[:most]}…" if len(text) > most else text

    return shorten


def serve(app: FastqWeb, options: ServeOptions) -> None:
    """Serve until SIGINT or SIGTERM; ``OSError`` if the port cannot be had."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.create_server((options.host, options.port), family=family) as listener:
        host, port = listener.getsockname()[:2]
        set_up_logging("info", options.log_format)
        shown = f"[{host}]" if family is socket.AF_INET6 else host
        where = ", ".join(site.inspector.where for site in (app.site, *app.others.values()))
        options.say(f"http://{shown}:{port}{app.root_path.rstrip('/')}/ shows {where}")
        # A header with the client's address could be forged, and authentication by a proxy relies on the address.
        config = uvicorn.Config(
            app,
            http=Protocol,
            limit_concurrency=MOST_CONNECTIONS,
            proxy_headers=False,
            access_log=False,
            server_header=False,
            log_config=None,
            log_level="warning",
            ws="none",
            timeout_graceful_shutdown=GRACE_S,
        )
        _Server(config, app).run(sockets=[listener])


class Protocol(H11Protocol):
    """HTTP on one connection, which is closed if it keeps the server waiting for a request."""

    _waits: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        self._stop_waiting()

    def _wait(self) -> None:
        self._stop_waiting()
        self._waits = self.loop.call_later(HEAD_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waits is not None:
            self._waits.cancel()

    def _give_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]  # None at first
            self.transport.close()


class _Server(uvicorn.Server):
    """A server whose shutdown ends the streams of open pages, for which it would wait."""

    def __init__(self, config: uvicorn.Config, app: FastqWeb) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down."""
        await self._app.end_streams()
        await super().shutdown(sockets)
