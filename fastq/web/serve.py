"""Serves a ``FastqWeb`` on a port of this machine."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fastq.log.setup import set_up_logging
from fastq.web.access import User
from fastq.web.addresses import Network, address_of, is_one_of, networks_of
from fastq.web.asgi import IS_LET_IN, FastqWeb
from fastq.web.auth import auth_of, new_token, new_user_line
from fastq.web.compat_records import printable_text
from fastq.web.render import load_templates
from fastq.web.site import Formatter

__all__ = [
    "FastqWeb",
    "Protocol",
    "ServeOptions",
    "User",
    "auth_of",
    "is_loopback",
    "networks_of",
    "new_token",
    "new_user_line",
    "serve",
    "shortened",
]

GRACE_S: Final = 5
HEAD_S: Final = 10.0
"""How long a connection may be open without having sent a complete request head."""
MOST_CONNECTIONS: Final = 900
"""How many connections may be open; this is below the usual limit of open files, 1024."""
MOST_OF_AN_ADDRESS: Final = 64
"""How many connections that have not logged in an address may have; another one closes the longest silent."""
BACKLOG: Final = 32
"""How many connections are accepted at a time; connections beyond a limit are closed only afterwards."""
MOST_UNACCEPTED: Final = 1_024
"""How many connections may wait to be accepted; the system drops more, and clients try again after a second."""
UNREAD_S: Final = 30.0
LEAST_READ_BYTES: Final = 16_384
"""A client that reads fewer bytes within ``UNREAD_S`` is cut off; otherwise its reply would stay in memory for hours.
"""


_log = logging.getLogger("fastq.web")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Where to listen; ``port`` 0 means any free port. ``say`` is called with a line that has the address. ``trusted``
    are the networks of proxies, which may have any number of connections.
    """

    host: str
    port: int
    log_format: str
    say: Callable[[str], None]
    trusted: Sequence[Network] = ()


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can reach an address."""
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
    """Serve until SIGINT or SIGTERM; ``OSError`` if the port cannot be used."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.create_server((options.host, options.port), family=family) as listener:
        host, port = listener.getsockname()[:2]
        load_templates()
        set_up_logging("info", options.log_format)
        shown = f"[{host}]" if family is socket.AF_INET6 else host
        where = ", ".join(site.inspector.where for site in (app.site, *app.others.values()))
        options.say(f"http://{shown}:{port}{app.root_path.rstrip('/')}/ shows {where}")
        # uvicorn must not take the client's address from headers of proxies: it could be forged, and authentication by
        # a proxy relies on the address.
        config = uvicorn.Config(
            app,
            http=type("_Protocol", (Protocol,), {"trusted": options.trusted}),
            backlog=BACKLOG,
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
    """HTTP on one connection, which is closed if its client is too slow or has too many connections. While the app
    answers an authenticated request on it, a connection does not count against the limit of its address.
    """

    trusted: Sequence[Network] = ()
    """The networks of proxies, which may have any number of connections."""
    _waits: asyncio.TimerHandle | None = None
    _sends: asyncio.TimerHandle | None = None
    _unread = 0
    """How many bytes of a reply the client had not read at the last check."""
    began_s = 0.0
    address = ""

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request, unless there are too many connections."""
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        self.address, self.began_s = address_of(host), time.monotonic()  # uvloop's clock has milliseconds
        self._make_room(is_one_of(host, self.trusted))
        self._wait()

    def _make_room(self, is_trusted: bool) -> None:
        """If this address, or all addresses together, have too many connections, close the longest silent one."""
        others = [each for each in self.connections if isinstance(each, Protocol) and each is not self]
        outside = [each for each in others if not each.is_let_in]
        own = [each for each in outside if each.address == self.address]
        if not is_trusted and len(own) >= MOST_OF_AN_ADDRESS:
            self._close_one(own)
        elif len(others) >= MOST_CONNECTIONS - 1:
            self._close_one(outside)

    def _close_one(self, some: Sequence["Protocol"]) -> None:
        if not some:
            self.transport.abort()
            return
        oldest = min([each for each in some if each.is_waiting] or some, key=lambda each: each.began_s)
        self.connections.discard(oldest)  # it will end in a moment, and must not be chosen again until then
        oldest.transport.abort()

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]  # None at first

    @property
    def is_let_in(self) -> bool:
        """Whether an authenticated request is being answered."""
        return not self.is_waiting and bool(self.scope.get("state", {}).get(IS_LET_IN))

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self.began_s = time.monotonic()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        super().connection_lost(exc)
        for timer in (self._waits, self._sends):
            if timer is not None:
                timer.cancel()

    def _wait(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
        self._waits = self.loop.call_later(HEAD_S, self._give_up)

    def _give_up(self) -> None:
        if self.is_waiting:
            self.transport.close()
            self._watch()  # a closed connection stays until its client has read all of the reply

    def pause_writing(self) -> None:
        """Watch whether the client reads."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Stop watching: the client has read."""
        super().resume_writing()
        if self._sends is not None:
            self._sends.cancel()

    def _watch(self) -> None:
        if self._sends is not None:
            self._sends.cancel()
        self._unread = self.transport.get_write_buffer_size()
        self._sends = self.loop.call_later(UNREAD_S, self._look)

    def _look(self) -> None:
        if self.transport.get_write_buffer_size() > self._unread - LEAST_READ_BYTES:
            _log.warning("a reply to %s is cut off: the client has read nothing for %g s", self.address, UNREAD_S)
            self.transport.abort()
        else:
            self._watch()


class _Server(uvicorn.Server):
    """A server that ends the streams of open pages at its shutdown, since it would otherwise wait for them."""

    def __init__(self, config: uvicorn.Config, app: FastqWeb) -> None:
        super().__init__(config)
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen; few connections are accepted at a time, but many may wait in the backlog."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(MOST_UNACCEPTED)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams of open pages, then shut down."""
        await self._app.end_streams()
        await super().shutdown(sockets)
