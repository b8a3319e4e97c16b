"""Ask Redis one thing without redis-py, whose import would be most of what the start of a worker of the tests costs."""

import os
import socket
import time
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis

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
    with socket.socket(family) as connection:
        connection.connect(address)
        packed = [hiredis.pack_command(each) for each in (*before, words)]  # type: ignore[arg-type]  # its stub is wrong
        connection.sendall(b"".join(packed))
        reader = hiredis.Reader()
        *_, reply = (_reply(connection, reader) for _ in (*before, words))
    return reply


def _reply(connection: socket.socket, reader: hiredis.Reader) -> Any:
    while (reply := reader.gets()) is False:
        data = connection.recv(65_536)
        if not data:
            raise EOFError
        reader.feed(data)
    if isinstance(reply, hiredis.ReplyError):
        raise EOFError if str(reply).startswith("LOADING") else reply
    return reply
