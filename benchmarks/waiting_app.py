"""Handlers that wait 100 ms for an HTTP server or PostgreSQL on this machine; each thread has its own connections."""

import asyncio
import os
import sys
import threading
import time
from http.client import HTTPConnection
from typing import Any, Final

from fastq import RunningTask, ServeMux

WAIT_S: Final = 0.1
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

mux = ServeMux()
_own = threading.local()


@mux.handler("bench:http")
def http(task: RunningTask) -> None:
    """Get an answer that takes 100 ms."""
    if not hasattr(_own, "http"):
        _own.http = HTTPConnection("127.0.0.1", int(os.environ["BENCH_HTTP_PORT"]))
    connection: HTTPConnection = _own.http
    connection.request("GET", "/")
    connection.getresponse().read()


@mux.handler("bench:postgres")
def postgres(task: RunningTask) -> None:
    """Run a query that takes 100 ms."""
    if not hasattr(_own, "postgres"):
        import psycopg  # only where it is measured

        _own.postgres = psycopg.connect(os.environ["BENCH_DSN"], autocommit=True)
    connection: Any = _own.postgres
    connection.execute("select pg_sleep(0.1)")


@mux.handler("bench:hang")
def hang(task: RunningTask) -> None:
    """Wait for ever, in one call, the first time."""
    if task.retried == 0:
        time.sleep(10**6)


class _Slow(asyncio.Protocol):
    """An HTTP server that answers each request after 100 ms."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        asyncio.get_running_loop().call_later(WAIT_S, self._transport.write, ANSWER)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Slow, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
