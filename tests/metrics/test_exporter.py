"""The port of ``fastq exporter``: nobody keeps Prometheus out by holding connections."""

import http.client
import socket
from contextlib import ExitStack

from redis import Redis

from fastq.inspector import Inspector
from fastq.metrics.exporter import MOST_CONNECTIONS, exporting
from tests.waiting import PATIENCE_S


def test_whoever_holds_connections_keeps_no_scrape_out(db: Redis, url: str) -> None:
    with Inspector(url) as inspector, exporting(inspector, "127.0.0.1", 0) as port, ExitStack() as stack:

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))

        def scrape() -> bytes:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
            connection.request("GET", "/metrics")
            reply = connection.getresponse()
            assert reply.status == 200
            return reply.read()

        assert b"fastq_exporter_" in scrape()
        held = [connect() for _ in range(MOST_CONNECTIONS)]
        for each in held:
            each.sendall(b"GET /metrics HT")
        for each in held[:3]:
            assert b"fastq_exporter_" in scrape()
            held.append(connect())
            assert each.recv(1) == b""  # the oldest
        held[-1].sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert held[-1].recv(12) == b"HTTP/1.0 200"
