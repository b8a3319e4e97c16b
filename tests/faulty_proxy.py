"""A proxy between a client and a real Redis that fails where a test tells it to, and nowhere else.

It takes one command after the other from each connection, sends it on and brings the reply back. A ``Fault`` names the
command at which something happens, and how often. Nothing is random and nothing is timed: a reply that is to be late is
released by the test.
"""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

from tests.waiting import PATIENCE_S

Words: TypeAlias = Sequence[bytes]


class Act(Enum):
    """What the proxy does with a command."""

    CUT_BEFORE_REQUEST = auto()
    """Cut the connection; Redis never sees the command."""

    CUT_BEFORE_REPLY = auto()
    """Let Redis carry the command out, then cut the connection."""

    CUT_IN_REPLY = auto()
    """Bring the first ``bytes_kept`` bytes of the reply, then cut the connection."""

    SWALLOW = auto()
    """Let Redis carry the command out and say nothing, until the client gives up."""

    DELAY = auto()
    """Let Redis carry the command out, and bring the reply once the test sets ``until``."""

    HOLD = auto()
    """Cut the connection, and keep the command for ``release``: a packet that arrives after its sender gave up."""

    ANSWER = auto()
    """Bring ``answer`` instead; Redis never sees the command."""

    PASS = auto()
    """Do as if there were no fault; for its ``then``."""


@dataclass
class Fault:
    """Fail at the commands of a name: all but the first ``skip`` of them, ``times`` often (None: for ever).

    ``then`` is called when the command was carried out, before its sender hears of it.
    """

    command: str
    act: Act
    times: int | None = 1
    skip: int = 0
    bytes_kept: int = 1
    answer: bytes = b""
    until: threading.Event = field(default_factory=threading.Event)
    then: Callable[[], object] = field(default=lambda: None)

    def strikes(self, words: Words) -> bool:
        """Return whether this command should fail, and count it."""
        if words[0].decode().upper() != self.command or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


INVALIDATION = b">2\r\n$10\r\ninvalidate\r\n"
"""What a message of client-side tracking begins with; it goes on to the client with the next reply."""


def frame_end(data: bytes, start: int = 0) -> int | None:
    """Return where the first RESP2 or RESP3 value ends, None if it is not all there."""
    line_end = data.find(b"\r\n", start)
    if line_end < 0:
        return None
    end, kind, head = line_end + 2, data[start : start + 1], data[start + 1 : line_end]
    if kind in b"$=!":
        end += int(head) + 2 if head != b"-1" else 0
        return end if end <= len(data) else None
    inner = {b"*": 1, b"~": 1, b">": 1, b"%": 2}.get(kind, 0)
    for _ in range(inner * int(head) if inner else 0):
        after = frame_end(data, end)
        if after is None:
            return None
        end = after
    return end


def words_of(command: bytes) -> list[bytes]:
    """Take a command, an array of bulk strings, apart."""
    words, at = [], command.index(b"\r\n") + 2
    while at < len(command):
        line_end = command.index(b"\r\n", at)
        size = int(command[at + 1 : line_end])
        words.append(command[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2
    return words


class Wire:
    """Read one value of the protocol after the other from a socket."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._data = b""

    def read(self) -> bytes:
        """Wait for the next value; ``ConnectionError`` when there will be none."""
        while (end := frame_end(self._data)) is None:
            more = self.socket.recv(1 << 20)
            if not more:
                raise ConnectionResetError("the other end has gone")
            self._data += more
        frame, self._data = self._data[:end], self._data[end:]
        return frame

    def close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class FaultyProxy:
    """Stand between clients and the Redis at a Unix socket; ``seen`` are the commands that Redis got, in order."""

    def __init__(self, redis_socket: str, faults: Sequence[Fault] = ()) -> None:
        self._redis_socket = redis_socket
        self.faults = list(faults)
        self.seen: list[list[bytes]] = []
        self.connections = 0
        self.held: list[bytes] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._wires: list[Wire] = []
        self._has_vanished = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._start(self._accept)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def names_seen(self) -> list[str]:
        """Name the commands that Redis got from clients, without those with which a connection begins."""
        names = [words[0].decode().upper() for words in self.seen]
        return [name for name in names if name not in {"CLIENT", "HELLO", "AUTH", "SELECT"}]

    def vanish(self) -> None:
        """Cut all connections and take no new ones, as a Redis that died."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            self._has_vanished = True
            wires = list(self._wires)
        for wire in wires:
            wire.close()

    def release(self) -> None:
        """Let the commands that were held arrive at Redis now, and be carried out."""
        held, self.held = self.held, []
        for command in held:
            self._carry_out(self._upstream(), command)

    def close(self) -> None:
        self.vanish()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def _start(self, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                self._start(self._serve, self._kept(client))

    def _kept(self, end: socket.socket) -> Wire:
        wire = Wire(end)
        with self._lock:
            self._wires.append(wire)
            has_vanished = self._has_vanished
        if has_vanished:
            wire.close()
        return wire

    def _upstream(self) -> Wire:
        redis = self._kept(socket.socket(socket.AF_UNIX))
        redis.socket.connect(self._redis_socket)
        return redis

    def _serve(self, client: Wire) -> None:
        with suppress(OSError):
            redis = self._upstream()
            with closing(redis):
                while self._pass_on(client, redis, client.read()):
                    pass
        client.close()

    def _pass_on(self, client: Wire, redis: Wire, command: bytes) -> bool:
        """Treat one command as its fault says; tell whether the connection lives on."""
        words = words_of(command)
        with self._lock:
            fault = next((fault for fault in self.faults if fault.strikes(words)), Fault("", Act.PASS))
        match fault.act:
            case Act.CUT_BEFORE_REQUEST:
                fault.then()
                return False
            case Act.HOLD:
                self.held.append(command)
                return False
            case Act.ANSWER:
                client.socket.sendall(fault.answer)
                return True
        reply = self._carry_out(redis, command)
        fault.then()
        if fault.act is Act.CUT_IN_REPLY:
            client.socket.sendall(reply[: fault.bytes_kept])
        elif fault.act is Act.DELAY:
            fault.until.wait(PATIENCE_S)
        if fault.act in {Act.PASS, Act.DELAY}:
            client.socket.sendall(reply)
        return fault.act in {Act.PASS, Act.DELAY, Act.SWALLOW}

    def _carry_out(self, redis: Wire, command: bytes) -> bytes:
        with self._lock:
            self.seen.append(words_of(command))
        redis.socket.sendall(command)
        told = b""
        while (reply := redis.read()).startswith(INVALIDATION):
            told += reply
        return told + reply


@contextmanager
def faulty_proxy(redis_socket: str, *faults: Fault) -> Iterator[FaultyProxy]:
    """Run a proxy to the Redis at a Unix socket."""
    proxy = FaultyProxy(redis_socket, faults)
    try:
        yield proxy
    finally:
        proxy.close()
