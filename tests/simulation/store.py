"""A real redis-server on the clock of the simulation; what it is sent is carried out before the call returns."""

import os
import socket
import struct
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import hiredis

from tests.simulation.page import Page, real_s

START_WITHIN_S: Final = 10
REPLY_WITHIN_S: Final = 30
_MARK: Final = b"end of replies"
_MARKED: Final = b"$%d\r\n%s\r\n" % (len(_MARK), _MARK)
_PING: Final = b"*2\r\n$4\r\nPING\r\n"
_PONG_TO_A_SUBSCRIBER: Final = b"*2\r\n$4\r\npong\r\n"
_BEGIN: Final = b"$5\r\nbegin\r\n"
_READ_AT_ONCE: Final = 16_000
"""Bytes of requests, less than what the server reads at once."""


def pack(commands: Sequence[Sequence[bytes]]) -> bytes:
    """Return the bytes of commands."""
    return b"".join([hiredis.pack_command(tuple(command)) for command in commands])  # type: ignore[arg-type]


def texts_in(replies: bytes, count: int) -> list[Any]:
    """Return so many replies, with texts in place of bytes."""
    reader = hiredis.Reader(encoding="utf-8", errors="surrogateescape")
    reader.feed(replies)
    return [reader.gets() for _ in range(count)]


class Line:
    """A connection to the server."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", REPLY_WITHIN_S, 0))
        self.fileno = self._socket.fileno()

    def send(self, *words: bytes) -> None:
        """Send a command whose reply is read as if the server had sent it by itself."""
        self.carry_out(())  # a server that has answered has accepted the connection, and reads what comes next at once
        self._socket.sendall(hiredis.pack_command(words))  # type: ignore[arg-type]

    def carry_out(self, commands: Sequence[Sequence[bytes]], packed: bytes = b"") -> bytes:
        """Carry out commands, and return the bytes of their replies; a PING behind them shows where these end.

        Whoever has had a reply first is written to last. So a PING before them sees to it that all they make the
        server send to others is in the sockets when this returns.
        """
        packed = packed or pack(commands)
        got = self._exchange(b"".join((_PING, _BEGIN, packed, _PING, _MARKED)), commands)
        if len(packed) > _READ_AT_ONCE:
            self._exchange(_PING + _MARKED, commands)
        begin = _BEGIN if got.startswith(_BEGIN) else _PONG_TO_A_SUBSCRIBER + _BEGIN
        return got[len(begin) : -len(_MARKED)].removesuffix(_PONG_TO_A_SUBSCRIBER)

    def _exchange(self, data: bytes, commands: Sequence[Sequence[bytes]]) -> bytes:
        self._socket.sendall(data)
        got = b""
        while not got.endswith(_MARKED):
            try:
                piece = self._socket.recv(_READ_AT_ONCE)
            except BlockingIOError:
                raise TimeoutError(f"no reply to {list(commands)}, but {got!r}") from None
            if not piece:
                raise ConnectionError("redis-server closed a connection of the simulation")
            got += piece
        return got

    def pushed(self) -> bytes:
        """Return what the server has sent by itself."""
        got = bytearray()
        try:
            while piece := self._socket.recv(1 << 20, socket.MSG_DONTWAIT):
                got += piece
        except BlockingIOError:
            pass
        return bytes(got)

    def close(self) -> None:
        """Close it; the server has forgotten it when this returns, since it closes its side as the last of that."""
        self._socket.shutdown(socket.SHUT_WR)
        while self._socket.recv(_READ_AT_ONCE):
            pass
        self._socket.close()


class Store:
    """A server process; ``options`` are those of its command line beside the usual ones."""

    def __init__(self, directory: Path, shim: Path, name: str = "redis", options: Sequence[str] = ()) -> None:
        self.name = name
        self.page = Page(directory / f"{name}.page")
        self.page.set(1_700_000_000 * 10**9, 10**9)
        self.page.switch(True)
        self._path = str(directory / f"{name}.sock")
        words = [
            os.environ.get("FASTQ_REDIS_SERVER", "redis-server"),
            "--port",
            "0",
            "--unixsocket",
            self._path,
            "--dir",
            str(directory),
            "--save",
            "",
        ]
        words += ["--hz", "1", "--latency-tracking", "no"]
        words += ["--enable-debug-command", "yes", "--logfile", str(directory / f"{name}.log"), *options]
        environment = {**os.environ, "LD_PRELOAD": str(shim), "FASTQ_SIMULATION": str(self.page.path)}
        environment["FASTQ_SIMULATION_SERVER"] = "1"  # it ends with its parent, in whatever way that ends
        self._process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)
        self._control = self._first_line()
        # What is taken from users is not taken from the simulation.
        self.ask("ACL", "SETUSER", "simulation", "on", "nopass", "~*", "&*", "+@all")
        self.ask("AUTH", "simulation", "any")
        # Keys expire when they are looked at, not when a timer of the server's own finds them.
        self.ask("DEBUG", "SET-ACTIVE-EXPIRE", "0")

    def _first_line(self) -> Line:
        until_s = real_s() + START_WITHIN_S
        while real_s() < until_s:
            try:
                return Line(self._path)
            except (FileNotFoundError, ConnectionRefusedError):
                os.sched_yield()
        raise TimeoutError("redis-server did not start")

    def open(self) -> Line:
        return Line(self._path)

    def close(self, line: Line) -> None:
        line.close()

    def ask(self, *words: str) -> Any:
        """Carry out a command of the simulation's own; it takes no simulated time."""
        return self.ask_all([words])[0]

    def ask_all(self, commands: Iterable[Sequence[str]]) -> list[Any]:
        """Carry out commands as one pipeline."""
        packed = [[word.encode() for word in words] for words in commands]
        return texts_in(self._control.carry_out(packed), len(packed))

    def replies_to(self, packed: bytes) -> bytes:
        """Carry out commands of the simulation's own that are bytes already, and return the bytes of their replies."""
        return self._control.carry_out((), packed)

    def raw(self, *commands: Sequence[bytes]) -> list[Any]:
        """Carry out commands of the simulation's own, and return their replies, which may be errors, as bytes."""
        reader = hiredis.Reader()
        reader.feed(self._control.carry_out(commands))
        return [reader.gets() for _ in commands]

    def begin(self) -> None:
        """Be as after a start."""
        self.ask("FLUSHALL")
        self.ask("SCRIPT", "FLUSH")

    def stop(self) -> None:
        self._process.kill()  # SIGTERM would wait for a timer, whose clock stands still
        self._process.wait()
