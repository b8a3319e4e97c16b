"""Blocking code on the simulated loop: in a greenlet, whose waits the loop does."""

import asyncio
import errno
import socket
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import redis.connection
from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]


async def blocking(call: Callable[[], Any]) -> Any:
    """Run blocking code on the machine of the caller."""
    inside = greenlet(call)
    inside.gr_context = copy_context()
    wanted = inside.switch()
    while not inside.dead:
        try:
            got = await wanted
        except Exception as error:  # noqa: BLE001 - it belongs to the code that waits
            wanted = inside.throw(error)
        else:
            wanted = inside.switch(got)
    return wanted


def _wait(work: Any) -> Any:
    return getcurrent().parent.switch(work)


class _Socket:
    """The part of a socket that redis-py's blocking connections use."""

    def __init__(self, host: str, port: int) -> None:
        self._timeout_s: float | None = None
        self._idle = socket.socketpair()  # redis-py polls it for data that nobody asked for
        self._reader, self._writer = _wait(asyncio.open_connection(host, port))

    def settimeout(self, seconds: float | None) -> None:
        self._timeout_s = seconds

    def gettimeout(self) -> float | None:
        return self._timeout_s

    def setsockopt(self, *_: Any) -> None: ...

    def fileno(self) -> int:
        return self._idle[0].fileno()

    def sendall(self, data: bytes) -> None:
        self._writer.write(bytes(data))

    def setblocking(self, blocks: bool) -> None:
        self._timeout_s = None if blocks else 0

    def recv(self, size: int, flags: int = 0) -> bytes:
        if flags & socket.MSG_PEEK or self._timeout_s == 0:
            if not self._reader._buffer and not self._reader.at_eof():
                raise BlockingIOError(errno.EWOULDBLOCK, "nothing yet")
            if flags & socket.MSG_PEEK:
                return bytes(self._reader._buffer[:size])
        data: bytes = _wait(asyncio.wait_for(self._reader.read(size), self._timeout_s or None))
        return data

    def recv_into(self, buffer: Any, *_: Any) -> int:
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def shutdown(self, _: int) -> None: ...

    def close(self) -> None:
        self._writer.close()
        for one in self._idle:
            one.close()


def _connect(connection: Any) -> _Socket:
    connected = _Socket(connection.host, connection.port)
    connected.settimeout(connection.socket_timeout)
    return connected


def _sleep(seconds: Any) -> None:
    _wait(asyncio.sleep(seconds))


def install() -> None:
    """Let redis-py's blocking connections, and ``time.sleep``, wait in simulated time."""
    redis.connection.Connection._connect = _connect  # type: ignore[method-assign]
    redis.connection.Connection._host_error = lambda self: f"{self.host}:{self.port}"  # type: ignore[method-assign]
    time.sleep = _sleep
