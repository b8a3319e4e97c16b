"""The control socket: short JSON messages with descriptors, over a pair of connected unix sockets.

A frame is a 4-byte length and JSON text; descriptors travel with its first byte. Nothing that is received is ever
executed. The task path uses the socket to pass the segment of a record that is too big for a ring. An empty frame wakes
a sleeping child.
"""

import array
import errno
import json
import os
import socket
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_LENGTH = struct.Struct("=I")
_EMPTY = _LENGTH.pack(0)
_MAX_FDS = 16
_MAX_FRAME = 1 << 20
_CHUNK = 1 << 16
_WAKE_UP_CHUNK = 256
_ANCILLARY = socket.CMSG_SPACE(_MAX_FDS * 4)
_BUSY = (errno.EAGAIN, errno.ETOOMANYREFS, errno.ENOBUFS)

Value = str | int | float | bool | None


class ChannelClosedError(Exception):
    """Raised when the other end of a control socket is gone or sends something that is not a frame."""


class ChannelBusyError(ChannelClosedError):
    """Raised when nothing was sent and the caller may try again.

    The socket is full, or this user has as many descriptors in transit through sockets as the kernel allows.
    """


@dataclass(frozen=True, slots=True)
class Frame:
    """A received message; the receiver owns ``fds``.

    ``fds`` is empty if this process had no room for one of them.
    """

    op: str
    body: dict[str, Value]
    fds: list[int] = field(default_factory=list)

    def text(self, name: str) -> str:
        """Return the string field ``name``, or ``""``."""
        value = self.body.get(name, "")
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        """Return the integer field ``name``, or 0."""
        value = self.body.get(name, 0)
        return value if isinstance(value, int) else 0


class Channel:
    """One end of a control socket; whether calls block is a property of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = bytearray()
        # One list for each message that had descriptors: a recvmsg returns those of at most one message.
        self._fds: deque[list[int]] = deque()

    @staticmethod
    def pair() -> tuple["Channel", "Channel"]:
        """Return two connected channels, both blocking."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return Channel(one), Channel(other)

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 once closed."""
        return self._socket.fileno()

    def set_blocking(self, blocking: bool) -> None:
        """Choose whether calls wait."""
        self._socket.setblocking(blocking)

    def close(self) -> None:
        """Close the socket, and every received descriptor that nobody has taken."""
        self._socket.close()
        while self._fds:
            _close_all(self._fds.popleft())

    def send(self, op: str, fds: Sequence[int] = (), **body: Value) -> None:
        """Send one frame; the caller keeps its own ``fds``.

        Raises ``ChannelBusyError`` when the socket has no room and does not block. Raises ``ChannelClosedError`` when
        the other end is gone, or does not read the rest of a frame.
        """
        text = json.dumps({"op": op, "fds": len(fds), **body}).encode()
        if len(text) > _MAX_FRAME:
            raise ValueError(f"control message {op!r} has {len(text)} bytes, more than {_MAX_FRAME}")
        rest = memoryview(_LENGTH.pack(len(text)) + text)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = 0
        try:
            sent = self._socket.sendmsg([rest], ancillary)
            while sent < len(rest):
                rest = rest[sent:]
                sent = self._socket.send(rest)
        except OSError as error:
            kind = ChannelBusyError if not sent and error.errno in _BUSY else ChannelClosedError
            raise kind(f"cannot send {op!r}: {error}") from error

    def receive(self) -> Frame:
        """Wait for one frame and return it."""
        while (frame := self._parse()) is None:
            self._fill(0)
        return frame

    def drain(self) -> None:
        """Read what has arrived, without waiting; its frames are kept for ``receive`` and ``poll``."""
        try:
            self._fill(socket.MSG_DONTWAIT, _WAKE_UP_CHUNK)
        except BlockingIOError:
            return

    def poll(self) -> Frame | None:
        """Return the next frame without waiting, or ``None`` when there is none yet.

        Raises ``ChannelClosedError`` when the other end is gone and every frame was returned.
        """
        while (frame := self._parse()) is None:
            try:
                self._fill(socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
        return frame

    def _fill(self, flags: int, most: int = _CHUNK) -> None:
        try:
            data, ancillary, came_with, _ = self._socket.recvmsg(most, _ANCILLARY, flags)
        except BlockingIOError:
            raise
        except OSError as error:
            raise ChannelClosedError(f"control socket failed: {error}") from error
        fds = array.array("i")
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        for fd in fds:
            os.set_inheritable(fd, False)
        if came_with & socket.MSG_CTRUNC:  # at the limit of descriptors: the kernel has dropped some or all
            _close_all(fds)
            self._fds.append([])
        elif fds:
            self._fds.append(list(fds))
        if not data:
            raise ChannelClosedError("the other end of the control socket is gone")
        self._buffer += data

    def _parse(self) -> Frame | None:
        while self._buffer.startswith(_EMPTY):
            del self._buffer[: len(_EMPTY)]
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > _MAX_FRAME:
            raise ChannelClosedError(f"a control message of {length} bytes is not ours")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        body = json.loads(bytes(self._buffer[_LENGTH.size : end]))
        del self._buffer[:end]
        return Frame(body.pop("op"), body, self._fds.popleft() if body.pop("fds") else [])


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)
