"""The HTTP side of ``fastq exporter``; importing it needs ``fastq-worker[metrics]``."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import ThreadingMixIn
from threading import Lock, Thread
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from fastq.inspector import Inspector
from fastq.metrics.collector import QueueCollector

MOST_CONNECTIONS: Final = 16
"""How many connections may be open; a further one ends the oldest. prometheus_client's own server has no limit."""
PATIENCE_S: Final = 10.0
"""The time limit for reading a request, and for writing the answer."""


@contextmanager
def exporting(inspector: Inspector, host: str, port: int) -> Iterator[int]:
    """Serve the metrics of all queues in the block, and yield the port; ``OSError`` if the address cannot be used."""
    registry = CollectorRegistry()
    registry.register(QueueCollector(inspector))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kind: type[Server] = type("_Server", (Server,), {"address_family": family})
    with make_server(host, port, make_wsgi_app(registry), kind, Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class Handler(WSGIRequestHandler):
    """A connection for one request."""

    timeout = PATIENCE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class Server(ThreadingMixIn, WSGIServer):
    """A server with a thread for each of at most ``MOST_CONNECTIONS`` connections."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._open: dict[Any, None] = {}
        self._lock = Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a connection; if there are too many, end the oldest one first."""
        with self._lock:
            if len(self._open) >= MOST_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # the thread of that connection closes the socket
            self._open[request] = None
        super().process_request(request, client_address)

    def close_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.pop(request, None)
            super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that are slow or gone; the WSGI app reports its own errors."""
