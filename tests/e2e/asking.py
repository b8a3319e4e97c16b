"""Ask Redis one thing without redis-py, whose import would be most of what the start of a worker of the tests costs."""

import os
import socket
import time
from typing import Any, BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit

_PAUSE_S = 0.05
_PATIENCE_S = 90.0  # as in tests.waiting, which imports asyncio


def ask(*words: str | int) -> Any:
    """Return the reply to a command; wait for a Redis that is away, cuts the connection or loads its data."""
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return _answer(words)
        except (OSError, EOFError):
            if time.monotonic() > until_s:
                raise
            time.sleep(_PAUSE_S)


def _answer(words: tuple[str | int, ...]) -> Any:
    """Use a connection once: whatever is raised in the middle, and in whichever thread, no reply is left for others."""
    url = urlsplit(os.environ.get("EVENTS_URL") or os.environ["FASTQ_REDIS_URL"])
    assert url.username in (None, ""), "only the default user"
    assert "username" not in url.query, "only the default user"
    before: list[tuple[str | int, ...]] = []
    if url.password:
        before.append(("AUTH", unquote(url.password)))
    address: str | tuple[str | None, int]
    if url.scheme == "unix":
        family, address, number = socket.AF_UNIX, url.path, parse_qs(url.query).get("db", ["0"])[0]
    else:
        assert url.scheme == "redis", url.scheme
        family, address, number = socket.AF_INET, (url.hostname, url.port or 6379), url.path.strip("/")
    if number not in ("", "0"):
        before.append(("SELECT", number))
    with socket.socket(family) as connection, connection.makefile("rb") as replies:
        connection.connect(address)
        connection.sendall(b"".join(map(_encoded, (*before, words))))
        for _ in before:
            _read(replies)
        return _read(replies)


def _encoded(words: tuple[str | int, ...]) -> bytes:
    parts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def _read(replies: BinaryIO) -> Any:
    line = replies.readline()
    if not line.endswith(b"\r\n") or line.startswith(b"-LOADING"):
        raise EOFError
    kind, rest = line[:1], line[1:-2]
    match kind:
        case b"-":
            raise ValueError(rest.decode())
        case b"+":
            return rest
        case b":":
            return int(rest)
        case b"$":
            size = int(rest)
            data = replies.read(max(size, 0) + 2) if size >= 0 else b"\r\n"
            if not data.endswith(b"\r\n"):
                raise EOFError
            return None if size < 0 else data[:-2]
    return [_read(replies) for _ in range(int(rest))]
